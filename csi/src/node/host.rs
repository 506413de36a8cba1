//! The machine that the node service works on: commands, mounts, disks. Nothing
//! here waits without a bound, and no path that may be on a dead server is looked at
//! other than by a child process.

use super::places::Places;
use super::sysfs;
use crate::limits::{FORMAT_LOOK_SECONDS, MAX_OUTPUT_BYTES, MAX_PATIENCE_SECONDS, REAP_SECONDS};
use async_trait::async_trait;
use std::fmt;
use std::fs;
use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::Stdio;
use std::str::FromStr;
use std::time::Duration;
use thiserror::Error;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};
use tokio::time::{Instant, timeout, timeout_at};
use zgate_io::mountinfo::{self, MountLine};

/// Exit statuses of a program such as `nsenter` or `env` that could not start the program which
/// it was given (POSIX, `env`): it is there but does not start, and is not found.
const NOT_STARTED: RangeInclusive<i32> = 126..=127;

/// End of a command that failed.
#[derive(Debug, Error)]
pub enum HostError {
    /// The program cannot be started.
    #[error("{program}: {source}; install it on the node")]
    Start {
        /// The program.
        program: String,
        /// Error of the operating system.
        source: io::Error,
    },
    /// It ended with another status than 0.
    #[error("{program}: status {status}: {said}")]
    Failed {
        /// The program.
        program: String,
        /// Its exit status; -1 for a signal.
        status: i32,
        /// End of its output.
        said: String,
    },
    /// It did not end in time.
    #[error("{program}: no end within {} s", .limit.as_secs())]
    TimedOut {
        /// The program.
        program: String,
        /// Its limit.
        limit: Duration,
    },
    /// All places for commands were taken for all of its time, or for so much of it that it was
    /// cut short.
    #[error("too many other commands run, or wait for servers that do not answer")]
    Stuck,
    /// It was not started: others of the driver for the records of open-iscsi ran all the time.
    #[error(
        "no turn within {} s: other commands change the records of open-iscsi, one at a time",
        .waited.as_secs()
    )]
    NoTurn {
        /// Time until it was given up.
        waited: Duration,
    },
}

impl HostError {
    /// Exit status of the program, if it ended.
    #[must_use]
    pub fn status(&self) -> Option<i32> {
        match self {
            Self::Failed { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// Returns whether the program has ended by itself, or has had all of its time. Only then
    /// does this say something about the server that it asked: a program that was not started,
    /// be it by the driver or by `nsenter`, had no place, or was ended by a signal has asked
    /// nobody.
    #[must_use]
    pub fn has_run(&self) -> bool {
        match self {
            Self::Failed { status, .. } => *status >= 0 && !NOT_STARTED.contains(status),
            Self::TimedOut { .. } => true,
            Self::Start { .. } | Self::Stuck | Self::NoTurn { .. } => false,
        }
    }
}

/// A block device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// Path of its device node.
    pub device: PathBuf,
    /// Size in bytes.
    pub size_bytes: u64,
}

/// Time after which commands of a disk fail while its sessions are away: open-iscsi's
/// `replacement_timeout`, the kernel's `recovery_tmo`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// So many seconds.
    Seconds(u32),
    /// They never fail. They wait until the session is logged in again, or logged out.
    Unlimited,
}

/// The form of the kernel's `recovery_tmo` (drivers/scsi/scsi_transport_iscsi.c).
impl fmt::Display for Patience {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Seconds(seconds) => write!(f, "{seconds}"),
            Self::Unlimited => f.write_str("off"),
        }
    }
}

impl FromStr for Patience {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "off" {
            return Ok(Self::Unlimited);
        }
        let wrong = || format!("neither seconds from 1 to {MAX_PATIENCE_SECONDS} nor \"off\"");
        let seconds = text.parse::<u32>().ok();
        let seconds = seconds.filter(|seconds| (1..=MAX_PATIENCE_SECONDS).contains(seconds));
        seconds.map(Self::Seconds).ok_or_else(wrong)
    }
}

/// A place that a command holds until its process has ended.
pub type Held = Box<dyn Send>;

/// A machine.
#[async_trait]
pub trait Host: Send + Sync {
    /// Runs a program and returns its standard output.
    async fn run(
        &self,
        program: &str,
        arguments: &[&str],
        limit: Duration,
    ) -> Result<String, HostError>;

    /// Does what [`Self::run`] does, and drops `held` when the process has ended: that of a
    /// program which is left behind may go on long after the answer.
    async fn run_holding(
        &self,
        program: &str,
        arguments: &[&str],
        limit: Duration,
        held: Held,
    ) -> Result<String, HostError> {
        let ended = self.run(program, arguments, limit).await;
        drop(held);
        ended
    }

    /// Does what [`Self::run_holding`] does for a program that may take hours. It ends as if its
    /// limit was over when `goes_on`, which is asked every [`FORMAT_LOOK_SECONDS`], says no.
    async fn run_while(
        &self,
        program: &str,
        arguments: &[&str],
        limit: Duration,
        held: Held,
        goes_on: &mut (dyn FnMut() -> bool + Send),
    ) -> Result<String, HostError>;

    /// Reads the table of mounts.
    fn mounts(&self) -> io::Result<Vec<MountLine>>;

    /// Returns the paths to the disk with an identifier (`naa.` and digits) that came with
    /// sessions with an iSCSI target: other targets may offer a disk with the same one.
    fn paths(&self, target: &str, naa: &str) -> Vec<Disk>;

    /// Returns the multipath device of the disk with an identifier; none if one of its paths
    /// is of another target than this.
    fn multipath(&self, target: &str, naa: &str) -> Option<Disk>;

    /// Returns the multipath device of the disk with an identifier, also if paths of it are
    /// gone; none if one that is there is of another target than this.
    fn left_multipath(&self, target: &str, naa: &str) -> Option<Disk> {
        self.multipath(target, naa)
    }

    /// Returns whether other block devices lie on a device, such as logical volumes of LVM.
    fn has_holders(&self, _device: &Disk) -> bool {
        false
    }

    /// Returns the number of a block device (`st_dev` of what is mounted from it).
    fn number(&self, device: &Path) -> Option<u64>;

    /// Returns whether a session with an iSCSI target exists.
    fn has_session(&self, target: &str) -> bool;

    /// Returns the numbers of the sessions with an iSCSI target, as `iscsiadm` takes them.
    fn session_numbers(&self, _target: &str) -> Vec<String> {
        Vec::new()
    }

    /// Returns whether a session with an iSCSI target is logged in: its gateway has
    /// answered lately.
    fn is_logged_in(&self, target: &str) -> bool;

    /// Sets the time after which commands fail while the sessions with an iSCSI target are
    /// away, for as long as they exist.
    ///
    /// # Errors
    /// The first session that cannot be told; the others are.
    fn set_patience(&self, target: &str, patience: Patience) -> io::Result<()>;

    /// Returns whether the kernel has a file system of a disk in use, mounted in any
    /// name space or being unmounted.
    fn has_filesystem(&self, device: &Path) -> bool;
}

/// This machine.
#[derive(Debug)]
pub struct System {
    /// Program and arguments that every command follows, such as `nsenter`.
    prefix: Vec<String>,
    places: Places,
}

impl System {
    /// Creates a host whose commands follow a prefix.
    #[must_use]
    pub fn new(prefix: Vec<String>) -> Self {
        Self { prefix, places: Places::new() }
    }

    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut words = self.prefix.iter().map(String::as_str).chain([program]);
        let mut command = Command::new(words.next().unwrap_or(program));
        command.args(words).args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // A group of its own, so that children of the program end with it.
        command.env("LC_ALL", "C").process_group(0).kill_on_drop(true);
        command
    }
}

async fn read_some(stream: Option<impl AsyncReadExt + Unpin>) -> String {
    let mut text = Vec::new();
    if let Some(stream) = stream {
        let mut stream = stream.take(MAX_OUTPUT_BYTES as u64);
        // What was read before an error is still worth showing.
        let _ = stream.read_to_end(&mut text).await;
        // The rest is read as well: a program whose output nobody takes is killed.
        let _ = tokio::io::copy(&mut stream.into_inner(), &mut tokio::io::sink()).await;
    }
    String::from_utf8_lossy(&text).into_owned()
}

fn kill_group(child: &Child) {
    let group = child.id().and_then(|id| i32::try_from(id).ok());
    if let Some(group) = group.and_then(rustix::process::Pid::from_raw) {
        // It may have ended meanwhile.
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
}

#[async_trait]
impl Host for System {
    async fn run(
        &self,
        program: &str,
        arguments: &[&str],
        limit: Duration,
    ) -> Result<String, HostError> {
        self.run_holding(program, arguments, limit, Box::new(())).await
    }

    async fn run_holding(
        &self,
        program: &str,
        arguments: &[&str],
        limit: Duration,
        held: Held,
    ) -> Result<String, HostError> {
        self.run_while(program, arguments, limit, held, &mut || true).await
    }

    async fn run_while(
        &self,
        program: &str,
        arguments: &[&str],
        limit: Duration,
        held: Held,
        goes_on: &mut (dyn FnMut() -> bool + Send),
    ) -> Result<String, HostError> {
        let program = program.to_owned();
        // The wait for a place is part of the limit: callers add limits up.
        let begun = Instant::now();
        let end = begun + limit;
        // Longer programs hold the lock of their volume meanwhile.
        let place_end = end.min(begun + FORMAT_LOOK_SECONDS);
        let place = self.places.take((&program, arguments), place_end).await;
        let (permit, has_waited) = place.ok_or(HostError::Stuck)?;
        let mut child = self
            .command(&program, arguments)
            .spawn()
            .map_err(|source| HostError::Start { program: program.clone(), source })?;
        let (output, errors) = (child.stdout.take(), child.stderr.take());
        let ended = {
            let mut work = pin!(async {
                let (said, complained, status) =
                    tokio::join!(read_some(output), read_some(errors), child.wait());
                (said, complained, status)
            });
            loop {
                let look = end.min(Instant::now() + FORMAT_LOOK_SECONDS);
                match timeout_at(look, &mut work).await {
                    Ok(ended) => break Some(ended),
                    Err(_) if Instant::now() < end && goes_on() => {}
                    Err(_) => break None,
                }
            }
        };
        let Some((said, complained, status)) = ended else {
            let limit = limit.min(begun.elapsed());
            kill_group(&child);
            if timeout(REAP_SECONDS, child.wait()).await.is_err() {
                tracing::warn!(%program, ?arguments, "waits for a dead server and is left behind");
                tokio::spawn(async move {
                    let _ = child.wait().await;
                    drop((permit, held));
                });
            }
            // Less than its time says nothing about the server that it asked.
            let stuck = has_waited.then_some(HostError::Stuck);
            return Err(stuck.unwrap_or(HostError::TimedOut { program, limit }));
        };
        let status =
            status.map_err(|source| HostError::Start { program: program.clone(), source })?;
        if status.success() {
            return Ok(said);
        }
        let said = format!("{}{}", complained.trim(), said.trim());
        Err(HostError::Failed { program, status: status.code().unwrap_or(-1), said })
    }

    fn mounts(&self) -> io::Result<Vec<MountLine>> {
        mountinfo::read()
    }

    fn paths(&self, target: &str, naa: &str) -> Vec<Disk> {
        sysfs::paths(Path::new(SYS), target, naa).iter().map(|name| disk(name)).collect()
    }

    fn multipath(&self, target: &str, naa: &str) -> Option<Disk> {
        sysfs::multipath(Path::new(SYS), target, naa).map(|name| disk(&name))
    }

    fn left_multipath(&self, target: &str, naa: &str) -> Option<Disk> {
        sysfs::left_multipath(Path::new(SYS), target, naa).map(|name| disk(&name))
    }

    fn has_holders(&self, device: &Disk) -> bool {
        device.device.file_name().is_some_and(|name| sysfs::has_holders(Path::new(SYS), name))
    }

    fn number(&self, device: &Path) -> Option<u64> {
        let file = Path::new("/sys/block").join(device.file_name()?).join("dev");
        let text = fs::read_to_string(file).ok()?;
        let (major, minor) = text.trim().split_once(':')?;
        Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
    }

    fn has_session(&self, target: &str) -> bool {
        !session_states(target).is_empty()
    }

    fn session_numbers(&self, target: &str) -> Vec<String> {
        let number = |session: &PathBuf| {
            let name = session.file_name()?.to_str()?;
            Some(name.strip_prefix("session")?.to_owned())
        };
        sessions(target).iter().filter_map(number).collect()
    }

    fn is_logged_in(&self, target: &str) -> bool {
        session_states(target).iter().any(|state| state == "LOGGED_IN")
    }

    fn set_patience(&self, target: &str, patience: Patience) -> io::Result<()> {
        // A value that is written here stays over logins; that of the record does not
        // reach a session that runs.
        let set = |session: &PathBuf| fs::write(session.join("recovery_tmo"), patience.to_string());
        let told: Vec<io::Result<()>> = sessions(target).iter().map(set).collect();
        told.into_iter().collect()
    }

    fn has_filesystem(&self, device: &Path) -> bool {
        let Some(name) = device.file_name() else { return false };
        ["ext4", "xfs"].iter().any(|kind| Path::new("/sys/fs").join(kind).join(name).exists())
    }
}

/// Directories of the sessions with a target.
fn sessions(target: &str) -> Vec<PathBuf> {
    let Ok(sessions) = fs::read_dir("/sys/class/iscsi_session") else { return Vec::new() };
    let is_its = |session: &PathBuf| {
        let of = fs::read_to_string(session.join("targetname"));
        of.is_ok_and(|of| of.trim() == target)
    };
    sessions.flatten().map(|session| session.path()).filter(is_its).collect()
}

/// States of the sessions with a target, as the kernel names them.
fn session_states(target: &str) -> Vec<String> {
    let state = |session: &PathBuf| fs::read_to_string(session.join("state")).unwrap_or_default();
    sessions(target).iter().map(state).map(|state| state.trim().to_owned()).collect()
}

/// Where sysfs is mounted.
const SYS: &str = "/sys";

/// Sectors of `size` in sysfs, in bytes, for any disk.
const SECTOR_BYTES: u64 = 512;

fn disk(name: &str) -> Disk {
    let sectors = fs::read_to_string(format!("/sys/block/{name}/size")).unwrap_or_default();
    let sectors: u64 = sectors.trim().parse().unwrap_or(0);
    Disk { device: Path::new("/dev").join(name), size_bytes: sectors * SECTOR_BYTES }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::MAX_STUCK_CHILDREN;
    use std::sync::Arc;
    use std::time::Instant;

    #[test]
    fn patience_is_seconds_or_without_end() {
        for text in ["1", "120", "604800", "off"] {
            assert_eq!(text.parse::<Patience>().unwrap().to_string(), text);
        }
        // To the kernel, 0 is at once.
        for text in ["0", "-1", "604801", "99999999999", "", "never"] {
            assert!(text.parse::<Patience>().is_err(), "{text}");
        }
    }

    #[tokio::test]
    async fn a_command_ends_within_its_limit_with_its_children() {
        let host = System::new(Vec::new());
        let begun = Instant::now();
        let limit = Duration::from_millis(200);
        let error = host.run("sh", &["-c", "sleep 60 & sleep 60"], limit).await.unwrap_err();
        assert!(matches!(error, HostError::TimedOut { .. }), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(5));
    }

    /// The clock stands still while the program runs, and jumps to the next look.
    #[tokio::test(start_paused = true)]
    async fn a_program_that_takes_hours_is_looked_at_and_given_up() {
        let host = System::new(Vec::new());
        let mut looks = 0;
        let mut goes_on = || {
            looks += 1;
            looks < 3
        };
        let (limit, held) = (Duration::from_secs(3600), Box::new(()));
        let error = host.run_while("sleep", &["60"], limit, held, &mut goes_on).await.unwrap_err();
        let HostError::TimedOut { limit, .. } = &error else { panic!("{error}") };
        assert_eq!((limit.as_secs(), looks), (3 * FORMAT_LOOK_SECONDS.as_secs(), 3));
    }

    #[tokio::test]
    async fn a_command_waits_for_a_place() {
        let host = System::new(Vec::new());
        let all = u32::try_from(MAX_STUCK_CHILDREN).unwrap();
        let others = Arc::clone(&host.places.free).acquire_many_owned(all).await.unwrap();
        let run = host.run("sh", &["-c", "echo a"], Duration::from_secs(20));
        let (said, ()) = tokio::join!(run, async { drop(others) });
        assert_eq!(said.unwrap(), "a\n");
    }

    /// Otherwise its volume would stay locked for hours.
    #[tokio::test(start_paused = true)]
    async fn a_program_that_takes_hours_does_not_wait_for_hours_for_its_place() {
        let host = System::new(Vec::new());
        let all = u32::try_from(MAX_STUCK_CHILDREN).unwrap();
        let _others = Arc::clone(&host.places.free).acquire_many_owned(all).await.unwrap();
        let begun = tokio::time::Instant::now();
        let (limit, held) = (Duration::from_secs(3600), Box::new(()));
        let error = host.run_while("true", &[], limit, held, &mut || true).await.unwrap_err();
        assert!(matches!(error, HostError::Stuck), "{error}");
        assert!(begun.elapsed() < 2 * FORMAT_LOOK_SECONDS, "{:?}", begun.elapsed());
    }

    /// A server is dead for callers after a command that has timed out.
    #[tokio::test]
    async fn a_command_that_its_wait_cut_short_has_not_timed_out() {
        let host = System::new(Vec::new());
        let all = u32::try_from(MAX_STUCK_CHILDREN).unwrap();
        let others = Arc::clone(&host.places.free).acquire_many_owned(all).await.unwrap();
        let limit = Duration::from_millis(200);
        let error = host.run("sleep", &["60"], limit).await.unwrap_err();
        assert!(matches!(error, HostError::Stuck), "{error}");
        let run = host.run("sleep", &["60"], limit);
        let (ended, ()) = tokio::join!(run, async { drop(others) });
        assert!(matches!(ended.unwrap_err(), HostError::Stuck));
        let error = host.run("sleep", &["60"], limit).await.unwrap_err();
        assert!(matches!(error, HostError::TimedOut { .. }), "{error}");
    }

    #[tokio::test]
    async fn a_program_that_says_much_is_not_killed_by_it() {
        let host = System::new(Vec::new());
        let limit = Duration::from_secs(20);
        let said = host.run("sh", &["-c", "head -c 1000000 /dev/zero"], limit).await.unwrap();
        assert_eq!(said.len(), MAX_OUTPUT_BYTES);
        let killed = host.run("sh", &["-c", "kill -9 $$"], limit).await.unwrap_err();
        assert!(killed.status().is_some_and(|status| status < 0) && !killed.has_run());
    }

    #[tokio::test]
    async fn output_status_and_prefix() {
        let host = System::new(vec!["env".to_owned(), "A=b".to_owned()]);
        let limit = Duration::from_secs(10);
        assert_eq!(host.run("sh", &["-c", "echo $A"], limit).await.unwrap(), "b\n");
        let error = host.run("sh", &["-c", "echo no >&2; exit 3"], limit).await.unwrap_err();
        assert_eq!(error.status(), Some(3));
        assert!(error.to_string().contains("no"));
        let error = host.run("/nowhere/x", &[], limit).await.unwrap_err();
        assert!(error.status().is_some() && !error.has_run(), "{error}");
        let error = System::new(Vec::new()).run("/nowhere/x", &[], limit).await.unwrap_err();
        assert!(error.to_string().contains("install it"));
    }
}
