//! The directory host and guest have in common: programs and the plan go in,
//! results come out.

use super::report::{Figure, Outcome, Status, Step};
use super::scenario::Scenario;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How a scenario ends that found nothing to run on.
const EXIT_SKIPPED: i32 = 77;
/// How `timeout` reports one that did not end; 137 when it had to be killed.
const EXIT_HUNG: [i32; 2] = [124, 137];

/// How many machines stopped under a scenario, in the place of its results.
const LOST: &str = "lost";

/// The shared directory; gone when dropped.
#[derive(Debug)]
pub(crate) struct Share {
    dir: tempfile::TempDir,
}

impl Share {
    /// Fills one with the lab's files and the gateway.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn new(tree: &Path, binary: &Path) -> io::Result<Self> {
        let dir = tempfile::Builder::new().prefix("zgate-lab-").tempdir()?;
        let layouts = Path::new("deploy/layouts").to_owned();
        for folder in [tree.join("guest"), tree.join("scenarios"), layouts] {
            crate::servers::scratch::run(Command::new("cp").arg("-r").arg(folder).arg(dir.path()))?;
        }
        fs::copy(binary, dir.path().join("zgate"))?;
        fs::create_dir(dir.path().join("results"))?;
        Ok(Self { dir })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// What the guest does once it is up.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn set_mode(&self, mode: &str) -> io::Result<()> {
        fs::write(self.path().join("mode"), mode)?;
        fs::write(self.path().join("plan"), "")
    }

    /// The scenarios the guest runs.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn set_plan(&self, chosen: &[Scenario]) -> io::Result<()> {
        let line = |one: &Scenario| format!("{} {}\n", one.name, one.seconds);
        self.set_mode("run")?;
        fs::write(self.path().join("plan"), chosen.iter().map(line).collect::<String>())
    }

    /// Where a scenario left its results.
    pub(crate) fn result_dir(&self, name: &str) -> PathBuf {
        self.path().join("results").join(name)
    }

    /// Whether a scenario came to an end, whichever.
    pub(crate) fn has_ended(&self, one: &Scenario) -> bool {
        self.result_dir(&one.name).join("exit").exists()
    }

    /// Whether a scenario was begun.
    pub(crate) fn has_begun(&self, one: &Scenario) -> bool {
        self.result_dir(&one.name).exists()
    }

    /// How many machines stopped under a scenario so far.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn lost_machines(&self, one: &Scenario) -> io::Result<u32> {
        let count = self.read(one, LOST)?;
        Ok(count.trim().parse().unwrap_or_default())
    }

    /// Notes it.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn set_lost_machines(&self, one: &Scenario, count: u32) -> io::Result<()> {
        fs::create_dir_all(self.result_dir(&one.name))?;
        fs::write(self.result_dir(&one.name).join(LOST), count.to_string())
    }

    /// Drops what a scenario has left so far.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn forget(&self, one: &Scenario) -> io::Result<()> {
        fs::remove_dir_all(self.result_dir(&one.name))
    }

    /// Drops what a second machine of an earlier boot left.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn forget_client(&self) -> io::Result<()> {
        match fs::remove_dir_all(self.path().join("peer")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// A file that a scenario left; empty when it left none.
    fn read(&self, one: &Scenario, name: &str) -> io::Result<String> {
        match fs::read(self.result_dir(&one.name).join(name)) {
            Ok(raw) => Ok(String::from_utf8_lossy(&raw).into_owned()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
            Err(error) => Err(error),
        }
    }

    /// What became of the scenarios.
    ///
    /// # Errors
    /// When results are there and cannot be read.
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
