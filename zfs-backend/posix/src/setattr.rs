//! SETATTR.

use crate::entry::Entry;
use crate::errno::OrStoreError;
use crate::open_file::PosixFile;
use crate::syscall;
use crate::tree::Tree;
use rustix::fs::{AtFlags, Gid, OFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use zgate_io::{SetIdBits, credentials};
use zgate_store::{Attr, Caller, FileKind, NodeHandle, SetAttr, SetTime, StoreError, StoreResult};

/// Set-user-id and set-group-id, which a change of owner clears.
const SET_ID_BITS: u32 = 0o6000;

impl Tree {
    /// Changes attributes. `open` is a file opened for writing by the caller,
    /// whose rights a change of size may use.
    pub(crate) fn setattr(
        &self,
        who: &Caller,
        node: &NodeHandle,
        changes: &SetAttr,
        open: Option<&PosixFile>,
    ) -> StoreResult<Attr> {
        let entry = self.entry(node)?;
        if changes.is_empty() {
            return self.live_attr(&entry);
        }
        let changes = &without_implied(changes);
        let before = match self.needs_attributes_before(who, changes) {
            true => Some(self.live_attr(&entry)?),
            false => None,
        };
        let opened = open.filter(|file| file.entry.handle == entry.handle);
        let writer = opened.and_then(|file| file.writer());
        if let Some(before) = &before {
            // A size set through an open file needs no other right.
            let checked = match (&writer, changes.size) {
                (Some(_), Some(_)) => SetAttr { size: None, ..changes.clone() },
                _ => changes.clone(),
            };
            self.precheck_setattr(who, &entry, Some(before), &checked)?;
        }
        let result = self.apply(who, &entry, before.as_ref(), changes, writer);
        entry.mark_modified();
        let after = if before.is_some() { entry.attr() } else { self.live_attr(&entry) };
        match after {
            // That the object is gone comes before other errors.
            Err(StoreError::Stale) => Err(StoreError::Stale),
            after => result.and(after),
        }
    }

    /// Returns whether the attributes before a change are needed to decide about it. All other
    /// changes are decided by the kernel: it refuses the first step of those that only the
    /// owner may make, and nothing is made then.
    fn needs_attributes_before(&self, who: &Caller, changes: &SetAttr) -> bool {
        !self.switches_identity
            || changes.size.is_some()
            || (who.uid != 0 && sets_one_to_now(changes))
    }

    /// Applies size, owner, mode and times, in this order.
    fn apply(
        &self,
        who: &Caller,
        entry: &Entry,
        before: Option<&Attr>,
        changes: &SetAttr,
        writer: Option<Arc<OwnedFd>>,
    ) -> StoreResult<()> {
        if let (Some(size), Some(before)) = (changes.size, before) {
            let set_id = self.set_id_after_cut(who);
            set_size((who, set_id), entry, before, size, writer)?;
        }
        set_owner(&entry.fd, changes)?;
        if let Some(mode) = changes.mode {
            set_mode(entry, mode)?;
        }
        let is_owner = who.uid == 0 || before.is_none_or(|before| who.uid == before.uid);
        if !is_owner && sets_one_to_now(changes) {
            // The kernel has no rule for this one; `precheck_setattr` has checked the
            // right to it.
            return credentials::as_process(|| set_times(&entry.fd, changes));
        }
        set_times(&entry.fd, changes)
    }
}

/// Leaves out what a change of size does by itself: ftruncate(2) sets the time of
/// modification, also where the size stays the same.
fn without_implied(changes: &SetAttr) -> SetAttr {
    let mut changes = changes.clone();
    if changes.size.is_some() && changes.mtime == Some(SetTime::Now) {
        changes.mtime = None;
    }
    changes
}

/// Returns whether one time alone is set to the present one. Whoever may write may do
/// this over NFS, but utimensat(2) allows a writer only both at once.
pub(crate) fn sets_one_to_now(changes: &SetAttr) -> bool {
    matches!(
        (changes.atime, changes.mtime),
        (Some(SetTime::Now), None) | (None, Some(SetTime::Now))
    )
}

impl Tree {
    /// Returns the treatment of set-id bits after a change of size: none if it
    /// runs as the caller, because the kernel clears them then.
    fn set_id_after_cut(&self, who: &Caller) -> SetIdBits {
        if self.switches_identity { SetIdBits::Kept } else { SetIdBits::after_change_by(who) }
    }
}

fn set_size(
    (who, set_id): (&Caller, SetIdBits),
    entry: &Entry,
    before: &Attr,
    size: u64,
    writer: Option<Arc<OwnedFd>>,
) -> StoreResult<()> {
    match entry.kind {
        FileKind::Regular => {}
        FileKind::Directory => return Err(StoreError::IsDirectory),
        FileKind::Symlink => return Err(StoreError::IsSymlink),
        _ => return Err(StoreError::WrongType),
    }
    if size > i64::MAX as u64 {
        return Err(StoreError::TooLarge);
    }
    let fd = match writer {
        Some(fd) => fd,
        // As with reads and writes, the owner may regardless of the mode.
        None if who.uid == before.uid => entry.writer()?.fd,
        None => Arc::new(syscall::reopen(&entry.fd, OFlags::WRONLY).or_store()?),
    };
    set_id.clear(&fd).or_store()?;
    rustix::fs::ftruncate(&*fd, size).map_err(size_error)
}

fn size_error(errno: rustix::io::Errno) -> StoreError {
    match errno {
        // ftruncate(2): larger than the file system allows.
        rustix::io::Errno::INVAL => StoreError::TooLarge,
        other => crate::errno::store_error(other),
    }
}

/// Sets owner and group of any kind of object.
pub(crate) fn set_owner(fd: &OwnedFd, changes: &SetAttr) -> StoreResult<()> {
    if changes.uid.is_none() && changes.gid.is_none() {
        return Ok(());
    }
    // The value -1 would mean "no change".
    if changes.uid == Some(u32::MAX) || changes.gid == Some(u32::MAX) {
        return Err(StoreError::Invalid);
    }
    let (uid, gid) = (changes.uid.map(Uid::from_raw), changes.gid.map(Gid::from_raw));
    rustix::fs::chownat(fd, c"", uid, gid, AtFlags::EMPTY_PATH).or_store()
}

/// Sets the mode. A symbolic link has none: the call succeeds without effect,
/// so that tools which restore the modes of a whole tree continue.
fn set_mode(entry: &Entry, mode: u32) -> StoreResult<()> {
    if entry.kind == FileKind::Symlink {
        return Ok(());
    }
    match entry.cached_reader() {
        // It is none that is opened as `O_PATH`: no path through /proc is looked up.
        Some(fd) => rustix::fs::fchmod(&*fd, syscall::mode_bits(mode)).or_store(),
        None => chmod(&entry.fd, mode),
    }
}

/// Sets the permission bits of anything but a symbolic link.
pub(crate) fn chmod(fd: &OwnedFd, mode: u32) -> StoreResult<()> {
    rustix::fs::chmod(syscall::proc_path(fd).as_c_str(), syscall::mode_bits(mode)).or_store()
}

/// Sets the times of any kind of object.
pub(crate) fn set_times(fd: &OwnedFd, changes: &SetAttr) -> StoreResult<()> {
    if changes.atime.is_none() && changes.mtime.is_none() {
        return Ok(());
    }
    let times = Timestamps {
        last_access: timespec(changes.atime)?,
        last_modification: timespec(changes.mtime)?,
    };
    rustix::fs::utimensat(fd, c"", &times, AtFlags::EMPTY_PATH).or_store()
}

fn timespec(time: Option<SetTime>) -> StoreResult<Timespec> {
    Ok(match time {
        None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        Some(SetTime::Now) => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        Some(SetTime::At(at)) if at.nanoseconds < 1_000_000_000 => {
            Timespec { tv_sec: at.seconds, tv_nsec: at.nanoseconds.into() }
        }
        Some(SetTime::At(_)) => return Err(StoreError::Invalid),
    })
}

/// Completes a new object with the attributes that the creating call could not
/// set. Set-id bits, which creation or the change of owner clears, are set again.
pub(crate) fn complete_new(fd: &OwnedFd, kind: FileKind, attrs: &SetAttr) -> StoreResult<()> {
    set_owner(fd, attrs)?;
    if let Some(mode) = attrs.mode.filter(|mode| mode & SET_ID_BITS != 0)
        && kind != FileKind::Symlink
    {
        // The others are as creation has left them, by the mode and the default ACL of the
        // directory. A set-group-id directory passes its bit on to new directories.
        let kept = if kind == FileKind::Directory { 0o3777 } else { 0o1777 };
        let made = u32::from(syscall::stat(fd)?.stx_mode) & kept;
        chmod(fd, made | (mode & SET_ID_BITS))?;
    }
    set_times(fd, attrs)
}
