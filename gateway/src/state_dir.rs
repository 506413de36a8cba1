//! The state directory: all state that must survive a restart and belongs to no
//! export.
//!
//! ```text
//! lock           held by the gateway that uses the directory, and names it
//! server_owner   name of this server to NFSv4.1 clients
//! epoch          number of the latest start, decimal
//! handle_secret  16 random bytes that sign file handles
//! clients/NAME   one file per client that may reclaim; NAME is a digest
//! reservations/NAA  persistent reservations of one logical unit
//! luns/NAME      numbers of the zvols of one target; NAME is a digest
//! files/NAA      path of the file that one logical unit was served from; while a change of it
//!                is not in effect, both, separated by a NUL
//! geometries/NAA  size and shape that one logical unit had when it was served last
//! connections    TCP connections, which the next start resets if they ended without a word
//! ```
//! Every change is written to a temporary file, synced, renamed over the old
//! one, and the directory is synced.

mod clients;
mod connections;
mod geometries;
mod place;

use crate::dir_lock::{DirLock, LockError};
use crate::missing_mount;
use sha2::{Digest, Sha256};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use zgate_control::ToolError;
use zgate_control::tool::QUESTION_SECONDS;

pub(crate) use clients::RecordChange;
pub(crate) use place::examine;

/// An open state directory, locked by one gateway.
#[derive(Debug)]
pub(crate) struct StateDir {
    path: PathBuf,
    /// Set while a record of a client that can be read may not be on stable storage yet: that of a
    /// gateway that was killed, or of a sync that failed.
    has_unsynced_clients: AtomicBool,
    /// Lock on the directory.
    _lock: DirLock,
}

/// Subdirectories.
const PARTS: [&str; 4] = ["clients", "reservations", "luns", "files"];
const LOCK: &str = "lock";
/// Next step for a directory that another gateway uses.
const OTHER_DIR: &str = "stop it, or give this gateway its own state_dir";
/// Most files in the note of a logical unit: that many changes of it may be refused one after the other.
const MAX_NOTED_FILES: usize = 16;
/// Latest time, in seconds since 1970, that is the number of a start: that of a clock in 2106 or
/// later leaves numbers for the starts after it.
const LATEST_CLOCK_SECONDS: u32 = u32::MAX - (1 << 20);
/// Longest server owner, in bytes (RFC 8881 §3.3.10: NFS4_OPAQUE_LIMIT).
const MAX_OWNER_BYTES: usize = 1024;

pub(crate) fn named(path: &Path, what: &str, error: &io::Error) -> io::Error {
    let hint = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "; run as root, or set state_dir to a directory of your own"
        }
        io::ErrorKind::NotADirectory => "; set state_dir to a directory",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; free space there, or raise the quota"
        }
        io::ErrorKind::ReadOnlyFilesystem => "; set state_dir to a directory on a writable disk",
        io::ErrorKind::TimedOut => "; check that disk, and repeat a command that failed",
        _ => "",
    };
    let reason = format!("state directory: cannot {what} {}: {error}{hint}", path.display());
    io::Error::new(error.kind(), reason)
}

/// Returns whether a disk takes no more data, although what it has can be read.
fn takes_nothing(error: &io::Error) -> bool {
    use io::ErrorKind::{QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | ReadOnlyFilesystem)
}

/// Refuses a directory without state at which a file system belongs that is not mounted;
/// not below the system's directories of temporary files. Returns the error of ZFS if it
/// does not tell its datasets within this limit, in seconds.
///
/// # Errors
/// The directory, what is to be mounted there, and the next step.
pub(crate) fn ask_for_mount(path: &Path, limit_seconds: u64) -> io::Result<Option<ToolError>> {
    if place::TEMPORARY_DIRS.iter().any(|dir| path.starts_with(dir)) {
        return Ok(None);
    }
    missing_mount::check(path, limit_seconds)
}

/// Does the same for a start, which goes on if ZFS does not answer.
///
/// # Errors
/// As above.
fn require_mount(path: &Path) -> io::Result<()> {
    if let Some(error) = ask_for_mount(path, QUESTION_SECONDS)? {
        tracing::warn!(
            state_dir = %path.display(),
            %error,
            "cannot tell whether a dataset belongs at this directory; if one does, stop the \
             gateway and mount it"
        );
    }
    Ok(())
}

impl StateDir {
    /// Opens the directory, but not a bare mount point without state. A new one is made where
    /// the mount of a pool cannot be missing: below the system's directory of gateways or of
    /// temporary files, or in a directory that has something in it or is a mount point.
    ///
    /// # Errors
    /// The path and the reason; also if another gateway uses it.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        require_mount(path)?;
        place::make(path, &place::TEMPORARY_DIRS.map(Path::new))?;
        for part in PARTS {
            let dir = path.join(part);
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&dir)
                .map_err(|error| named(&dir, "create", &error))?;
        }
        let lock = DirLock::take(path, LOCK).map_err(|error| match &error {
            LockError::Io(reason) => named(&path.join(LOCK), "lock", reason),
            LockError::Held(_) => error.message(path, OTHER_DIR),
        })?;
        if let Some(before) = &lock.elsewhere {
            tracing::warn!(
                state_dir = %path.display(),
                %before,
                "takes the place of a gateway that ran elsewhere; it must not run any more"
            );
        }
        let has_unsynced_clients = AtomicBool::new(true);
        Ok(Self { path: path.to_owned(), has_unsynced_clients, _lock: lock })
    }

    /// Increments and returns the number of starts. It is at least the time in
    /// seconds, so that ids of earlier starts do not recur if the directory was
    /// lost.
    ///
    /// A full disk keeps no gateway from starting: the time is the number then, if it is
    /// greater than the last one, and `wait` lets its second pass, so that the next start,
    /// which cannot know of it, has another one.
    ///
    /// # Errors
    /// The path and the reason.
    pub(crate) fn next_epoch(
        &self,
        now_unix_seconds: u32,
        wait: impl FnOnce(Duration),
    ) -> io::Result<u32> {
        let path = self.path.join("epoch");
        let last = match fs::read_to_string(&path) {
            Ok(text) => Some(text.trim().parse::<u32>().map_err(|_| {
                let reason = format!("{} does not hold a number", path.display());
                io::Error::new(io::ErrorKind::InvalidData, reason)
            })?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                tracing::info!(
                    state_dir = %self.path.display(),
                    "the state directory is new: so is this gateway to its clients, and no client \
                     can reclaim; if it is not new, mount the dataset of state_dir and restart"
                );
                None
            }
            Err(error) => return Err(named(&path, "read", &error)),
        };
        let now = now_unix_seconds.min(LATEST_CLOCK_SECONDS);
        // An earlier version stored the last number of all by such a clock, again and again.
        let epoch = last.unwrap_or(0).wrapping_add(1).max(now);
        let tells_apart = now == now_unix_seconds && last.is_some_and(|last| last < now);
        match self.replace(&path, epoch.to_string().as_bytes()) {
            Err(error) if takes_nothing(&error) && tells_apart => {
                tracing::error!(
                    %error,
                    "the number of this start is not stored; new clients wait until the disk of \
                     state_dir takes data"
                );
                wait(Duration::from_secs(1));
                Ok(epoch)
            }
            stored => stored.map(|()| epoch),
        }
    }

    /// Returns the name of this server to NFSv4.1 clients. It is chosen at the
    /// first start and belongs to the directory, not to the machine: a gateway
    /// that takes the directory over is the same server. A directory of an
    /// earlier version, which has no name yet, gets the one that clients know.
    ///
    /// # Errors
    /// The path and the reason.
    pub(crate) fn server_owner(&self, name_before: impl FnOnce() -> String) -> io::Result<String> {
        let path = self.path.join("server_owner");
        match fs::read_to_string(&path) {
            Ok(owner) if (1..=MAX_OWNER_BYTES).contains(&owner.trim().len()) => {
                Ok(owner.trim().to_owned())
            }
            Ok(_) => {
                let reason = format!(
                    "{} does not hold a name of 1 to {MAX_OWNER_BYTES} bytes; restore it, or set \
                     server_owner in the configuration",
                    path.display()
                );
                Err(io::Error::new(io::ErrorKind::InvalidData, reason))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let served_before = self.path.join("epoch").exists();
                let owner = if served_before {
                    name_before()
                } else {
                    let random = random_bytes()?;
                    format!("zgate-{}", hex(&random))
                };
                self.replace(&path, owner.as_bytes())?;
                Ok(owner)
            }
            Err(error) => Err(named(&path, "read", &error)),
        }
    }

    /// Returns the secret that signs file handles, created at the first start.
    ///
    /// # Errors
    /// The path and the reason.
    pub(crate) fn handle_secret(&self) -> io::Result<[u8; 16]> {
        let path = self.path.join("handle_secret");
        let mut secret = [0; 16];
        match File::open(&path) {
            Ok(mut file) => {
                file.read_exact(&mut secret).map_err(|error| named(&path, "read", &error))?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                secret = random_bytes()?;
                self.replace(&path, &secret)?;
            }
            Err(error) => return Err(named(&path, "read", &error)),
        }
        Ok(secret)
    }

    /// Returns the path of the file with the numbers of a target's zvols.
    pub(crate) fn luns_path(&self, target: &str) -> PathBuf {
        self.path.join("luns").join(digest_name(target.as_bytes()))
    }

    /// Returns the stored numbers of a target's zvols; empty if there are none.
    ///
    /// # Errors
    /// The path and the reason.
    pub(crate) fn lun_numbers(&self, target: &str) -> io::Result<String> {
        let path = self.luns_path(target);
        match fs::read_to_string(&path) {
            Ok(text) => Ok(text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
            Err(error) => Err(named(&path, "read", &error)),
        }
    }

    /// Saves the numbers of the zvols of these targets; on stable storage on return. None takes
    /// its place before all are written: a full disk changes those of no target.
    ///
    /// # Errors
    /// The path and the reason.
    pub(crate) fn put_lun_numbers(&self, changed: &[(&str, &str)]) -> io::Result<()> {
        let mut staged = Vec::new();
        for (target, text) in changed {
            let path = self.luns_path(target);
            let temporary = stage(&path, text.as_bytes());
            staged.push((temporary.map_err(|error| named(&path, "write", &error))?, path));
        }
        for (temporary, path) in &staged {
            let put = fs::rename(temporary, path).and_then(|()| sync_dir(&self.path.join("luns")));
            put.map_err(|error| named(path, "write", &error))?;
        }
        Ok(())
    }

    /// Returns the path of the saved persistent reservations of a logical unit.
    pub(crate) fn reservations_path(&self, name: &str) -> PathBuf {
        self.path.join("reservations").join(name)
    }

    /// Returns the saved persistent reservations of a logical unit.
    ///
    /// # Errors
    /// The path and the reason; a missing file means none.
    pub(crate) fn reservations(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let path = self.reservations_path(name);
        match fs::read(&path) {
            Ok(image) => Ok(Some(image)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(named(&path, "read", &error)),
        }
    }

    /// Saves persistent reservations; on stable storage on return.
    ///
    /// # Errors
    /// The path and the reason.
    pub(crate) fn put_reservations(&self, name: &str, image: &[u8]) -> io::Result<()> {
        self.replace(&self.reservations_path(name), image)
    }

    /// Returns the path of the note that a logical unit was served from a file.
    pub(crate) fn file_note(&self, name: &str) -> PathBuf {
        self.path.join("files").join(name)
    }

    /// Returns the path of the empty file that stands for a disk which another
    /// machine serves.
    pub(crate) fn standby_file(&self, name: &str) -> PathBuf {
        self.path.join(format!("standby-{name}"))
    }

    /// Writes a note that a logical unit may be served from the file at `path`, or still from one
    /// that was noted before: the change may be refused.
    ///
    /// # Errors
    /// The path and the reason.
    pub(crate) fn note_file(&self, name: &str, path: &Path) -> io::Result<()> {
        let (note, path) = (self.file_note(name), path.as_os_str().as_bytes());
        let noted = fs::read(&note).unwrap_or_default();
        if files_of(&noted).any(|one| one == path) {
            return Ok(());
        }
        let all: Vec<&[u8]> =
            std::iter::once(path).chain(files_of(&noted)).take(MAX_NOTED_FILES).collect();
        self.replace(&note, &all.join(&0_u8))
    }

    /// Writes a note that a logical unit is served from the file at `path`, and no longer from
    /// another one.
    ///
    /// # Errors
    /// The path and the reason.
    pub(crate) fn settle_file(&self, name: &str, path: &Path) -> io::Result<()> {
        let (note, content) = (self.file_note(name), path.as_os_str().as_bytes());
        if fs::read(&note).is_ok_and(|noted| noted == content) {
            return Ok(());
        }
        self.replace(&note, content)
    }

    /// Removes the note when the unit is no longer served.
    ///
    /// # Errors
    /// The path and the reason; a missing note is not an error.
    pub(crate) fn forget_file(&self, name: &str) -> io::Result<()> {
        remove(&self.file_note(name))
    }

    /// Returns whether the unit was served from the file at `path` before.
    ///
    /// # Errors
    /// The path and the reason, if there is a note that cannot be read: it may name the file.
    pub(crate) fn knows_file(&self, name: &str, path: &Path) -> io::Result<bool> {
        let note = self.file_note(name);
        match fs::read(&note) {
            Ok(noted) => Ok(files_of(&noted).any(|one| one == path.as_os_str().as_bytes())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(named(&note, "read", &error)),
        }
    }

    fn replace(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        let write = || {
            put_in_place(path, content)?;
            path.parent().map_or(Ok(()), sync_dir)
        };
        write().map_err(|error| named(path, "write", &error))
    }
}

/// Returns the paths in the note of a logical unit, the latest one first.
fn files_of(note: &[u8]) -> impl Iterator<Item = &[u8]> {
    note.split(|byte| *byte == 0).filter(|path| !path.is_empty())
}

/// Replaces a file atomically with content on stable storage; its directory is
/// not synced.
fn put_in_place(path: &Path, content: &[u8]) -> io::Result<()> {
    fs::rename(stage(path, content)?, path)
}

/// Writes the content of a file to stable storage beside it; returns the path there.
fn stage(path: &Path, content: &[u8]) -> io::Result<PathBuf> {
    let temporary = path.with_extension("new");
    let mut file =
        OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&temporary)?;
    file.write_all(content)?;
    file.sync_all()?;
    Ok(temporary)
}

/// Returns a text, `most_bytes` of it at most; `None` if there is no such file.
///
/// # Errors
/// The path and the reason.
fn read_text(path: &Path, most_bytes: u64) -> io::Result<Option<String>> {
    let read = || -> io::Result<String> {
        let mut text = String::new();
        File::open(path)?.take(most_bytes).read_to_string(&mut text)?;
        Ok(text)
    };
    match read() {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(named(path, "read", &error)),
    }
}

/// Removes a file, if it is there; its directory is not synced.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(named(path, "remove", &error)),
        _ => Ok(()),
    }
}

/// Returns a file name for any client name.
fn digest_name(name: &[u8]) -> String {
    hex(&Sha256::digest(name)[..16])
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn sync_dir(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Returns sixteen unpredictable bytes.
pub(crate) fn random_bytes() -> io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn no_wait(time: Duration) {
        panic!("waits for {time:?}");
    }

    #[test]
    fn epochs_grow_and_records_survive() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::open(dir.path()).unwrap();
        assert_eq!(state.next_epoch(7, no_wait).unwrap(), 7);
        let secret = state.handle_secret().unwrap();
        let put = |name: &[u8], content: &[u8]| RecordChange::Put {
            name: name.to_vec(),
            content: content.to_vec(),
        };
        let both = [put(b"a", b"record a"), put(b"b", b"record b")];
        assert!(state.change_clients(&both).into_iter().all(|outcome| outcome.is_ok()));
        assert!(StateDir::open(dir.path()).is_err(), "one gateway at a time");
        drop(state);
        let state = StateDir::open(dir.path()).unwrap();
        assert_eq!(state.next_epoch(7, no_wait).unwrap(), 8);
        assert_eq!(state.handle_secret().unwrap(), secret);
        let gone = || RecordChange::Remove { name: b"a".to_vec() };
        let gone = state.change_clients(&[gone(), gone()]);
        assert!(gone.into_iter().all(|outcome| outcome.is_ok()));
        let left = state.clients().unwrap().into_iter().map(|record| record.unwrap().1);
        assert_eq!(left.collect::<Vec<_>>(), [b"record b".to_vec()]);
    }

    #[test]
    fn the_name_of_the_server_belongs_to_the_directory() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let open = |dir: &tempfile::TempDir| StateDir::open(dir.path()).unwrap();
        let machine = |name: &str| name.to_owned();
        let first = open(&one).server_owner(|| machine("a")).unwrap();
        open(&one).next_epoch(7, no_wait).unwrap();
        // Also on another machine.
        assert_eq!(open(&one).server_owner(|| machine("b")).unwrap(), first);
        assert_ne!(open(&other).server_owner(|| machine("a")).unwrap(), first);
        // Two servers of one machine are not one server.
        assert!(first.starts_with("zgate-") && first.len() == 38, "{first}");
    }

    #[test]
    fn a_file_stays_known_until_another_one_has_taken_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::open(dir.path()).unwrap();
        let all = ["/a/disk", "/b/disk", "/c/disk"].map(Path::new);
        let known = || all.map(|path| state.knows_file("naa", path).unwrap());
        assert_eq!(known(), [false; 3]);
        for path in [all[0], all[1], all[0], all[1]] {
            state.note_file("naa", path).unwrap();
        }
        assert_eq!(known(), [true, true, false]);
        assert_eq!(fs::read(state.file_note("naa")).unwrap(), b"/b/disk\0/a/disk");
        assert!(!state.knows_file("naa", Path::new("")).unwrap(), "an empty path is none");
        state.settle_file("naa", all[1]).unwrap();
        assert_eq!(known(), [false, true, false]);
        assert_eq!(fs::read(state.file_note("naa")).unwrap(), b"/b/disk", "as earlier versions");
        let many = |number: usize| PathBuf::from(format!("/{number}"));
        for number in 0..=MAX_NOTED_FILES {
            state.note_file("naa", &many(number)).unwrap();
        }
        let knows = |number: usize| state.knows_file("naa", &many(number)).unwrap();
        assert!(knows(1) && !knows(0));
        state.forget_file("naa").unwrap();
        assert_eq!(known(), [false; 3]);
    }

    #[test]
    fn a_directory_without_a_name_keeps_the_one_that_clients_know() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::open(dir.path()).unwrap();
        state.next_epoch(7, no_wait).unwrap();
        assert_eq!(state.server_owner(|| "zgate-machine".to_owned()).unwrap(), "zgate-machine");
        assert_eq!(state.server_owner(|| "zgate-other".to_owned()).unwrap(), "zgate-machine");
        for bad in ["", "\n", &"x".repeat(MAX_OWNER_BYTES + 1)] {
            fs::write(dir.path().join("server_owner"), bad).unwrap();
            let error = state.server_owner(String::new).unwrap_err().to_string();
            assert!(error.contains("server_owner") && error.contains("restore it"), "{error}");
        }
    }

    #[test]
    fn a_damaged_epoch_is_an_error_not_a_fresh_start() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("epoch"), "x").unwrap();
        let error = StateDir::open(dir.path()).unwrap().next_epoch(7, no_wait).unwrap_err();
        assert!(error.to_string().contains("epoch"), "{error}");
    }

    #[test]
    fn numbers_of_several_targets_change_together_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::open(dir.path()).unwrap();
        let both = || ["a", "b"].map(|target| state.lun_numbers(target).unwrap());
        state.put_lun_numbers(&[("a", "1 7\n"), ("b", "1 8\n")]).unwrap();
        let full = state.luns_path("b").with_extension("new");
        symlink("/dev/full", &full).unwrap();
        let change = || state.put_lun_numbers(&[("a", "2 7\n"), ("b", "2 8\n")]);
        assert_eq!(change().unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(both(), ["1 7\n", "1 8\n"]);
        fs::remove_file(&full).unwrap();
        change().unwrap();
        assert_eq!(both(), ["2 7\n", "2 8\n"]);
    }

    #[test]
    fn a_clock_that_was_far_ahead_leaves_each_later_start_a_number() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::open(dir.path()).unwrap();
        let first = state.next_epoch(u32::MAX, no_wait).unwrap();
        for (now, further) in [(u32::MAX, 1), (7, 2), (u32::MAX, 3)] {
            assert_eq!(state.next_epoch(now, no_wait).unwrap(), first + further);
        }
        fs::write(dir.path().join("epoch"), u32::MAX.to_string()).unwrap();
        assert_eq!(state.next_epoch(7, no_wait).unwrap(), 7);
        assert_eq!(state.next_epoch(7, no_wait).unwrap(), 8);
    }

    #[test]
    fn a_start_on_a_full_disk_has_a_number_that_no_other_start_has() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::open(dir.path()).unwrap();
        // A directory without a number is new: what it needs must be stored.
        let temporary = dir.path().join("epoch.new");
        symlink("/dev/full", &temporary).unwrap();
        assert_eq!(state.next_epoch(7, no_wait).unwrap_err().kind(), io::ErrorKind::StorageFull);
        fs::remove_file(&temporary).unwrap();
        assert_eq!(state.next_epoch(7, no_wait).unwrap(), 7);
        symlink("/dev/full", &temporary).unwrap();
        let mut waited = Duration::ZERO;
        assert_eq!(state.next_epoch(9, |time| waited = time).unwrap(), 9);
        assert!(waited >= Duration::from_secs(1), "the next start has a later second");
        // The clock does not tell the starts apart.
        for now in [6, 7] {
            let error = state.next_epoch(now, no_wait).unwrap_err();
            assert!(error.to_string().contains("free space"), "{error}");
        }
        fs::remove_file(&temporary).unwrap();
        assert_eq!(state.next_epoch(10, no_wait).unwrap(), 10);
    }
}
