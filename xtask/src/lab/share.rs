//! Directory shared by host and guest: programs and the plan are read by the
//! guest, results are written by it.

use super::report::{Figure, Outcome, Status, Step};
use super::scenario::Scenario;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Exit status of a scenario that was skipped.
const EXIT_SKIPPED: i32 = 77;
/// Exit statuses of `timeout` for a scenario that did not end; 137 if it had to
/// be killed.
const EXIT_HUNG: [i32; 2] = [124, 137];

/// File with the number of machines that stopped during a scenario, in place of
/// its results.
const LOST: &str = "lost";

/// Folder of the simulator and of what it found on this machine, for the scenario
/// `simulator/traces`.
pub(crate) const SIMULATOR: &str = "target/lab-programs/simulator";

/// A shared directory, removed on drop.
#[derive(Debug)]
pub(crate) struct Share {
    dir: tempfile::TempDir,
}

impl Share {
    /// Creates a directory with the lab's files and the gateway.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(crate) fn new(tree: &Path, binary: &Path) -> io::Result<Self> {
        let dir = tempfile::Builder::new().prefix("zgate-lab-").tempdir()?;
        let shipped = Path::new("deploy").to_owned();
        let layouts = shipped.join("layouts");
        let proxmox = Path::new("tests/proxmox").to_owned();
        for folder in [tree.join("guest"), tree.join("scenarios"), layouts, shipped, proxmox] {
            crate::servers::scratch::run(Command::new("cp").arg("-r").arg(folder).arg(dir.path()))?;
        }
        fs::copy(binary, dir.path().join("zgate"))?;
        // Judges of the CSI driver and the simulator, once `conformance csi` and
        // `simulate --two-machines` have built them.
        for programs in [crate::suite::csi::PROGRAMS, SIMULATOR] {
            if Path::new(programs).is_dir() {
                let mut copy = Command::new("cp");
                copy.arg("-rL").arg(programs).arg(dir.path());
                crate::servers::scratch::run(&mut copy)?;
            }
        }
        fs::create_dir(dir.path().join("results"))?;
        Ok(Self { dir })
    }

    /// Returns its path.
    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the directory of the orders between machines.
    pub(crate) fn orders(&self) -> PathBuf {
        self.path().join("peer")
    }

    /// Sets what the guest does after its boot.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(crate) fn set_mode(&self, mode: &str) -> io::Result<()> {
        fs::write(self.path().join("mode"), mode)?;
        fs::write(self.path().join("plan"), "")
    }

    /// Sets the scenarios that the guest runs.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(crate) fn set_plan(&self, chosen: &[Scenario]) -> io::Result<()> {
        let line = |one: &Scenario| format!("{} {}\n", one.name, one.seconds);
        self.set_mode("run")?;
        fs::write(self.path().join("plan"), chosen.iter().map(line).collect::<String>())
    }

    /// Returns the directory of a scenario's results.
    pub(crate) fn result_dir(&self, name: &str) -> PathBuf {
        self.path().join("results").join(name)
    }

    /// Returns whether a scenario has ended, with any result.
    pub(crate) fn has_ended(&self, one: &Scenario) -> bool {
        self.result_dir(&one.name).join("exit").exists()
    }

    /// Returns whether a scenario was started.
    pub(crate) fn has_begun(&self, one: &Scenario) -> bool {
        self.result_dir(&one.name).exists()
    }

    /// Returns the number of machines that stopped during a scenario so far.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(crate) fn lost_machines(&self, one: &Scenario) -> io::Result<u32> {
        let count = self.read(one, LOST)?;
        Ok(count.trim().parse().unwrap_or_default())
    }

    /// Sets that number.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(crate) fn set_lost_machines(&self, one: &Scenario, count: u32) -> io::Result<()> {
        fs::create_dir_all(self.result_dir(&one.name))?;
        fs::write(self.result_dir(&one.name).join(LOST), count.to_string())
    }

    /// Removes the results of a scenario.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(crate) fn forget(&self, one: &Scenario) -> io::Result<()> {
        fs::remove_dir_all(self.result_dir(&one.name))
    }

    /// Removes the files of a second machine of an earlier boot.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(crate) fn forget_client(&self) -> io::Result<()> {
        match fs::remove_dir_all(self.orders()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Reads a file of a scenario's results; empty if it does not exist.
    fn read(&self, one: &Scenario, name: &str) -> io::Result<String> {
        match fs::read(self.result_dir(&one.name).join(name)) {
            Ok(raw) => Ok(String::from_utf8_lossy(&raw).into_owned()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
            Err(error) => Err(error),
        }
    }

    /// Returns the results of the scenarios.
    ///
    /// # Errors
    /// If results exist and cannot be read.
    pub(crate) fn outcomes(&self, chosen: &[Scenario]) -> io::Result<Vec<Outcome>> {
        chosen.iter().map(|one| self.outcome(one)).collect()
    }

    fn outcome(&self, scenario: &Scenario) -> io::Result<Outcome> {
        let read = |name: &str| self.read(scenario, name);
        let exit = read("exit")?;
        let mut exit = exit.split_whitespace();
        let code = exit.next().and_then(|code| code.parse::<i32>().ok());
        let seconds = exit.next().and_then(|text| text.parse().ok()).unwrap_or_default();
        let status = match code {
            None => Status::Missing,
            Some(0) => Status::Pass,
            Some(EXIT_SKIPPED) => Status::Skip,
            Some(code) if EXIT_HUNG.contains(&code) => Status::Hung,
            Some(_) => Status::Fail,
        };
        Ok(Outcome {
            scenario: scenario.name.clone(),
            title: scenario.title.clone(),
            status,
            seconds,
            machines_lost: self.lost_machines(scenario)?,
            reason: read("skip")?.trim().to_owned(),
            steps: read("steps.tsv")?.lines().filter_map(step).collect(),
            figures: read("figures.tsv")?.lines().filter_map(figure).collect(),
            log: read("log")?,
        })
    }
}

fn step(line: &str) -> Option<Step> {
    let mut fields = line.splitn(4, '\t');
    Some(Step {
        passed: fields.next()? == "pass",
        seconds: fields.next()?.parse().ok()?,
        name: fields.next()?.to_owned(),
        detail: fields.next().unwrap_or_default().trim_end_matches(';').to_owned(),
    })
}

fn figure(line: &str) -> Option<Figure> {
    let mut fields = line.splitn(3, '\t');
    Some(Figure {
        name: fields.next()?.to_owned(),
        value: fields.next()?.parse().ok()?,
        unit: fields.next()?.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_guest_are_read() {
        let read = step("fail\t1.25\tlink and rename\tln: x;No space;").unwrap();
        assert!(!read.passed);
        assert_eq!((read.seconds, read.name.as_str()), (1.25, "link and rename"));
        assert_eq!(read.detail, "ln: x;No space");
        assert!(step("pass\tsoon\tx\t").is_none());
        let read = figure("read\t12.5\tMiB/s").unwrap();
        assert_eq!((read.name.as_str(), read.value, read.unit.as_str()), ("read", 12.5, "MiB/s"));
    }
}
