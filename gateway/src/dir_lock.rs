//! Exclusive lock on a directory that one gateway at a time may use. The lock
//! file names its holder, for the message to the next one.
//!
//! The lock is the kernel's (`flock`): it ends with the process, and it does not
//! reach other machines. Two machines that import one pool need fencing.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

/// Time for which a lock is awaited: a gateway that was just killed holds it
/// until the kernel has torn it down.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(20);

/// Most bytes read of a lock file.
const MAX_FILE_BYTES: u64 = 4096;

/// Process that holds or held a lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Holder {
    pid: u32,
    host: String,
    /// The kernel's id of this boot of the machine.
    boot_id: String,
}

impl Holder {
    fn this_process() -> Self {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        Self {
            pid: std::process::id(),
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            boot_id: boot.trim().to_owned(),
        }
    }

    /// Returns whether it ran on this machine, since it was booted; a container
    /// with a host name of its own is another machine.
    fn is_near(&self) -> bool {
        let me = Self::this_process();
        (&self.host, &self.boot_id) == (&me.host, &me.boot_id)
    }

    /// Returns whether it has ended but for threads that the kernel keeps: their calls wait for
    /// storage that hangs, and with them stays what the process had open.
    fn is_kept_by_storage(&self) -> bool {
        self.is_near() && has_ended(Path::new(&format!("/proc/{}", self.pid)))
    }
}

/// Returns whether the first thread of a process has ended, from its directory in proc(5).
fn has_ended(process: &Path) -> bool {
    let stat = std::fs::read_to_string(process.join("stat")).unwrap_or_default();
    // Its name may contain anything but ends with the last parenthesis.
    stat.rsplit_once(')').is_some_and(|(_, after)| after.trim_start().starts_with('Z'))
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_near() {
            write!(f, "process {}", self.pid)
        } else {
            write!(f, "process {} on host {}", self.pid, self.host)
        }
    }
}

/// A held lock; released when it is dropped or the process ends.
#[derive(Debug)]
pub(crate) struct DirLock {
    _file: File,
    /// The last holder, if it ran on another host.
    pub(crate) elsewhere: Option<Holder>,
}

/// Reason for which a lock was not taken.
#[derive(Debug)]
pub(crate) enum LockError {
    /// Another process holds it; its name, if the file has it.
    Held(Option<Holder>),
    /// The lock file cannot be used.
    Io(io::Error),
}

impl LockError {
    /// Returns the message: the directory, its user and the next step.
    pub(crate) fn message(&self, dir: &Path, next_step: &str) -> io::Error {
        let dir = dir.display();
        match self {
            Self::Io(error) => io::Error::new(error.kind(), format!("cannot lock {dir}: {error}")),
            Self::Held(Some(holder)) if holder.is_kept_by_storage() => {
                let reason = format!(
                    "{dir} is in use by {holder}, a zgate that was killed while storage hung; \
                     mend that storage (`zpool status`) or restart the machine"
                );
                io::Error::new(io::ErrorKind::AddrInUse, reason)
            }
            Self::Held(holder) => {
                let holder =
                    holder.as_ref().map(|holder| format!(", {holder}")).unwrap_or_default();
                let reason = format!("{dir} is in use by another zgate{holder}; {next_step}");
                io::Error::new(io::ErrorKind::AddrInUse, reason)
            }
        }
    }
}

fn lock_within(lock: &File, patience: Duration) -> io::Result<bool> {
    let deadline = Instant::now() + patience;
    loop {
        match rustix::fs::flock(lock, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(true),
            Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < deadline => {
                std::thread::sleep(PAUSE);
            }
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(false),
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Reads the holder; none if the file is empty, or of an earlier version.
fn holder(file: &File) -> Option<Holder> {
    let mut text = String::new();
    file.take(MAX_FILE_BYTES).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

/// Writes the holder. The file is not emptied first: on a full disk it would stay empty.
fn name_holder(file: &File, holder: &Holder) -> io::Result<()> {
    let text = serde_json::to_vec(holder).map_err(io::Error::other)?;
    file.write_all_at(&text, 0)?;
    file.set_len(text.len() as u64)
}

impl DirLock {
    /// Takes the lock with this file name in the directory.
    ///
    /// # Errors
    /// The holder, or the reason for which the file cannot be used.
    pub(crate) fn take(dir: &Path, name: &str) -> Result<Self, LockError> {
        Self::take_within(dir, name, PATIENCE)
    }

    fn take_within(dir: &Path, name: &str, patience: Duration) -> Result<Self, LockError> {
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .mode(0o600)
            .open(dir.join(name))
            .map_err(LockError::Io)?;
        let taken = lock_within(&file, patience).map_err(LockError::Io)?;
        let before = holder(&file);
        if !taken {
            return Err(LockError::Held(before));
        }
        let me = Holder::this_process();
        if let Err(error) = name_holder(&file, &me) {
            // The name is for people; the lock is the kernel's. A full disk is no reason to
            // serve nobody.
            let lock = dir.join(name);
            tracing::warn!(
                lock = %lock.display(), %error,
                "cannot write to the lock file that this process holds it; free space there"
            );
        }
        let elsewhere = before.filter(|before| before.host != me.host);
        Ok(Self { _file: file, elsewhere })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_one_is_told_who_holds_it() {
        let dir = tempfile::tempdir().unwrap();
        let first = DirLock::take(dir.path(), "lock").unwrap();
        assert_eq!(first.elsewhere, None);
        let refused = DirLock::take_within(dir.path(), "lock", Duration::ZERO).unwrap_err();
        let said = refused.message(dir.path(), "stop it").to_string();
        let pid = std::process::id();
        let wanted =
            format!("{} is in use by another zgate, process {pid}; stop it", dir.path().display());
        assert_eq!(said, wanted);
        drop(first);
        let again = DirLock::take(dir.path(), "lock").unwrap();
        assert_eq!(again.elsewhere, None, "a restart on the same host is no news");
    }

    #[test]
    fn a_holder_whose_first_thread_has_ended_is_kept_by_its_storage() {
        let dir = tempfile::tempdir().unwrap();
        let says = |stat: &str| {
            std::fs::write(dir.path().join("stat"), stat).unwrap();
            has_ended(dir.path())
        };
        assert!(says("569 (zgate) Z 1 569 569 0"));
        assert!(!says("569 (zgate) D 1 569") && !says("5 (a) Z) S 1 5") && !says(""));
        assert!(!has_ended(&dir.path().join("none")));
        assert!(!Holder::this_process().is_kept_by_storage());
    }

    #[test]
    fn a_holder_on_another_machine_is_named_before_and_after_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let other = r#"{"pid":12,"host":"nas1","boot_id":"another"}"#;
        let path = dir.path().join("lock");
        std::fs::write(&path, other).unwrap();
        let held = File::open(&path).unwrap();
        assert!(lock_within(&held, Duration::ZERO).unwrap());
        let refused = DirLock::take_within(dir.path(), "lock", Duration::ZERO).unwrap_err();
        let said = refused.message(dir.path(), "stop it").to_string();
        assert!(said.contains("process 12 on host nas1"), "{said}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), other, "who waits writes nothing");
        drop(held);
        let taken = DirLock::take(dir.path(), "lock").unwrap();
        assert_eq!(taken.elsewhere.unwrap().host, "nas1");
        assert_eq!(holder(&File::open(&path).unwrap()), Some(Holder::this_process()));
    }

    #[test]
    fn a_lock_file_of_an_earlier_version_or_damage_is_no_obstacle() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("lock"), "{\"pid\":".repeat(4096)).unwrap();
        let taken = DirLock::take(dir.path(), "lock").unwrap();
        assert_eq!(taken.elsewhere, None);
        let refused = DirLock::take_within(dir.path(), "lock", Duration::ZERO).unwrap_err();
        assert!(matches!(refused, LockError::Held(Some(_))), "the old content is gone");
        std::fs::write(dir.path().join("lock"), "").unwrap();
        let refused = DirLock::take_within(dir.path(), "lock", Duration::ZERO).unwrap_err();
        let said = refused.message(dir.path(), "stop it").to_string();
        assert!(said.ends_with("in use by another zgate; stop it"), "{said}");
    }

    #[test]
    fn a_lock_whose_file_takes_no_name_is_held() {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/dev/full", dir.path().join("lock")).unwrap();
        let taken = DirLock::take(dir.path(), "lock").unwrap();
        assert_eq!(taken.elsewhere, None);
        let refused = DirLock::take_within(dir.path(), "lock", Duration::ZERO).unwrap_err();
        assert!(matches!(refused, LockError::Held(None)));
    }
}
