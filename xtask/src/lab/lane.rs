//! Scenarios that share a boot; several such lanes run beside each other.

use super::image::Image;
use super::machine::{Accel, Machine};
use super::report::Outcome;
use super::scenario::{self, Scenario};
use super::share::Share;
use super::wire::{Host, Wire};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// One boot and what is run in it.
#[derive(Debug)]
pub(crate) struct Lane {
    share: Share,
    chosen: Vec<Scenario>,
    number: usize,
}

impl Lane {
    /// Prepares the shared directory.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn new(
        tree: &Path,
        binary: &Path,
        chosen: Vec<Scenario>,
        number: usize,
        capture: bool,
    ) -> io::Result<Self> {
        let share = Share::new(tree, binary)?;
        share.set_plan(&chosen)?;
        if capture {
            fs::write(share.path().join("capture"), "")?;
        }
        Ok(Self { share, chosen, number })
    }

    /// Where a machine's console is written to.
    fn console(&self, out: &Path, host: Host) -> PathBuf {
        let number = if self.number == 0 { String::new() } else { format!("-{}", self.number + 1) };
        let host = if host == Host::A { "" } else { "-b" };
        out.join(format!("serial{number}{host}.log"))
    }

    /// One boot for all of it; of two machines when a scenario needs them.
    fn run(&self, out: &Path, image: &Image, accel: Accel) -> io::Result<()> {
        let limit = scenario::time_limit(&self.chosen);
        let wants_client = self.chosen.iter().any(|one| one.machines > 1);
        let wire = wants_client.then(Wire::new).transpose()?;
        let new = |host| Machine::new(image, &self.share, accel, host, wire.as_ref());
        let client = || new(Host::B)?.start(&self.console(out, Host::B));
        let _client = wants_client.then(client).transpose()?;
        new(Host::A)?.run(&self.console(out, Host::A), limit)
    }

    /// What became of its scenarios.
    ///
    /// # Errors
    /// When results are there and cannot be read.
    pub(crate) fn outcomes(&self) -> io::Result<Vec<Outcome>> {
        self.share.outcomes(&self.chosen)
    }

    /// Where one of its scenarios left its results.
    pub(crate) fn result_dir(&self, name: &str) -> Option<PathBuf> {
        self.chosen.iter().any(|one| one.name == name).then(|| self.share.result_dir(name))
    }

    /// Consoles are of interest when something failed.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn remove_consoles(&self, out: &Path) -> io::Result<()> {
        for host in [Host::A, Host::B] {
            match fs::remove_file(self.console(out, host)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

/// Runs all lanes to their ends.
///
/// # Errors
/// The first lane's complaint whose machine did not end as it should.
pub(crate) fn run_all(lanes: &[Lane], out: &Path, image: &Image, accel: Accel) -> io::Result<()> {
    std::thread::scope(|scope| {
        let run = |lane| scope.spawn(move || Lane::run(lane, out, image, accel));
        let threads: Vec<_> = lanes.iter().map(run).collect();
        let ends = threads.into_iter().map(|thread| {
            thread.join().unwrap_or_else(|_| Err(io::Error::other("a lane's thread panicked")))
        });
        ends.collect::<Vec<_>>().into_iter().collect()
    })
}
