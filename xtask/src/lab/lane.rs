//! Lanes: scenarios that share a boot. Several lanes run concurrently.
//!
//! If a machine stops during a scenario, only that scenario is affected:
//! another boot continues with the next ones. No user process may crash a
//! kernel, so the scenario is retried once, and its result reports that.

use super::image::Image;
use super::machine::{Accel, End, Machine};
use super::pair::Pair;
use super::report::Outcome;
use super::scenario::{self, Scenario};
use super::share::Share;
use super::wire::Host;
use crate::package;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Number of machines that one scenario may crash before it counts as failed.
const TRIES: u32 = 2;

/// Scenarios that test the packages of this tree.
const PACKAGED: &str = "packages/";

/// Options passed to scenarios.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    /// Captures each scenario's packets.
    pub(crate) capture: bool,
    /// Number of rounds of scenarios that have rounds.
    pub(crate) rounds: u8,
    /// Number of volumes of `csi/rounds`.
    pub(crate) volumes: u8,
}

/// Boots, and the scenarios that run in them.
#[derive(Debug)]
pub(crate) struct Lane {
    share: Share,
    chosen: Vec<Scenario>,
    number: usize,
    /// Number of the last boot, from 0.
    last_boot: AtomicU32,
}

impl Lane {
    /// Prepares the shared directory.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(crate) fn new(
        tree: &Path,
        binary: &Path,
        chosen: Vec<Scenario>,
        number: usize,
        options: Options,
    ) -> io::Result<Self> {
        let share = Share::new(tree, binary)?;
        fs::write(share.path().join("rounds"), options.rounds.to_string())?;
        fs::write(share.path().join("volumes"), options.volumes.to_string())?;
        if options.capture {
            fs::write(share.path().join("capture"), "")?;
        }
        if chosen.iter().any(|one| one.name.starts_with(PACKAGED)) {
            let packages = share.path().join("packages");
            fs::create_dir(&packages)?;
            package::for_the_lab(binary, &packages)?;
        }
        Ok(Self { share, chosen, number, last_boot: AtomicU32::new(0) })
    }

    /// Returns the path of a machine's console log.
    fn console(&self, out: &Path, host: Host, boot: u32) -> PathBuf {
        let number = if self.number == 0 { String::new() } else { format!("-{}", self.number + 1) };
        let host = if host == Host::A { "" } else { "-b" };
        let boot = if boot == 0 { String::new() } else { format!("-boot{}", boot + 1) };
        out.join(format!("serial{number}{host}{boot}.log"))
    }

    /// Boots until every scenario has run.
    fn run(&self, out: &Path, image: &Image, accel: Accel) -> io::Result<()> {
        let (mut left, mut boot) = (self.chosen.clone(), 0);
        while !left.is_empty() {
            self.share.set_plan(&left)?;
            self.share.forget_client()?;
            self.last_boot.store(boot, Ordering::Relaxed);
            let why = match self.boot(&left, boot, out, image, accel)? {
                End::Done => break,
                End::Stopped(why) => why,
                End::Late(why) => return Err(io::Error::other(why)),
            };
            eprintln!("   {why}");
            boot += 1;
            let before = left.len();
            left.retain(|one| !self.share.has_ended(one));
            let Some(interrupted) = left.first() else { break };
            if !self.share.has_begun(interrupted) {
                // Without any progress the next boot would not get further.
                if left.len() == before {
                    return Err(io::Error::other(why));
                }
                continue;
            }
            let lost = self.share.lost_machines(interrupted)? + 1;
            if lost < TRIES {
                self.share.forget(interrupted)?;
            }
            self.share.set_lost_machines(interrupted, lost)?;
            if lost >= TRIES {
                left.remove(0);
            }
        }
        Ok(())
    }

    /// Boots once; with two machines if a scenario needs them.
    fn boot(
        &self,
        left: &[Scenario],
        boot: u32,
        out: &Path,
        image: &Image,
        accel: Accel,
    ) -> io::Result<End> {
        let limit = scenario::time_limit(left);
        let wants_client = left.iter().any(|one| one.machines > 1);
        let shares_disk = left.iter().any(|one| one.shares_disk);
        let pair = wants_client.then(|| Pair::new(shares_disk)).transpose()?;
        let new = |host| Machine::new(image, &self.share, accel, host, pair.as_ref());
        let client = || new(Host::B)?.start(&self.console(out, Host::B, boot));
        let _client = wants_client.then(client).transpose()?;
        let _switch = pair.as_ref().and_then(|pair| pair.switch(self.share.orders()));
        new(Host::A)?.run(&self.console(out, Host::A, boot), limit)
    }

    /// Returns the results of its scenarios.
    ///
    /// # Errors
    /// If results exist and cannot be read.
    pub(crate) fn outcomes(&self) -> io::Result<Vec<Outcome>> {
        self.share.outcomes(&self.chosen)
    }

    /// Returns the directory of one scenario's results.
    pub(crate) fn result_dir(&self, name: &str) -> Option<PathBuf> {
        self.chosen.iter().any(|one| one.name == name).then(|| self.share.result_dir(name))
    }

    /// Removes console logs that are not needed: those of a machine that
    /// stopped are kept, regardless of the scenarios' results.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(crate) fn remove_consoles(&self, out: &Path) -> io::Result<()> {
        let last = self.last_boot.load(Ordering::Relaxed);
        for host in [Host::A, Host::B] {
            match fs::remove_file(self.console(out, host, last)) {
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
/// The error of the first lane whose machine did not end properly.
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
