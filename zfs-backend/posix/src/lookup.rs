//! Finding objects: LOOKUP, LOOKUPP, READLINK.

use crate::entry::Entry;
use crate::errno::{OrStoreError, store_error};
use crate::mounts::is_below;
use crate::name::Name;
use crate::syscall::{self, PATH_FLAGS};
use crate::tree::{Tree, node};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Statx, StatxAttributes};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use zgate_io::access_check::Rights;
use zgate_io::credentials;
use zgate_store::file_store::Node;
use zgate_store::{Caller, FileKind, NodeHandle, StoreError, StoreResult};

impl Tree {
    /// Looks a name up; may wait for a disk.
    pub(crate) fn lookup(&self, who: &Caller, dir: &NodeHandle, name: &[u8]) -> StoreResult<Node> {
        let name = Name::parse(name)?;
        let dir = self.directory(dir)?;
        if self.hides(&dir, name.as_bytes()) {
            return Err(StoreError::NotFound);
        }
        self.precheck(who, &dir, Rights::EXECUTE)?;
        let fd = syscall::open_path(&dir.fd, name.as_c_str())
            .map_err(|error| self.dir_error(&dir, error))?;
        let fd = self.cross_automount(&dir, &name, fd)?;
        let (entry, attr) = self.adopt(fd, Some((&dir, &name)))?;
        Ok(node(&entry, attr))
    }

    /// Looks a name up in what the kernel has in memory, without ever waiting;
    /// `None` when that is not enough.
    pub(crate) fn lookup_in_memory(
        &self,
        who: &Caller,
        dir: &NodeHandle,
        name: &[u8],
    ) -> Option<StoreResult<Node>> {
        let dir = self.cached(dir).filter(|dir| dir.kind == FileKind::Directory)?;
        let name = match Name::parse(name) {
            Ok(name) => name,
            Err(error) => return Some(Err(error)),
        };
        // The root directory of a file system may hide a name: ask on a worker.
        if !self.snapshots_visible && name.as_bytes() == b".zfs" {
            return None;
        }
        let opened = self.inline_as(who, || {
            self.precheck(who, &dir, Rights::EXECUTE)?;
            open_in_memory(&dir, &name)
        })?;
        let fd = match opened {
            Ok(fd) => fd?,
            Err(error) => return Some(Err(self.dir_error(&dir, error))),
        };
        if let Some(entry) = self.at_hand_nearby(&dir, &fd) {
            return match entry.stat_and_attr() {
                // Something is to be mounted there first.
                Ok((stat, _)) if mounts_on_demand(&stat) => None,
                Ok((_, attr)) => Some(Ok(node(&entry, attr))),
                Err(error) => Some(Err(error)),
            };
        }
        let stat = syscall::stat(&fd).ok()?;
        if mounts_on_demand(&stat) || self.mounts.known(stat.stx_mnt_id).is_none() {
            return None;
        }
        let adopted = self.adopt(fd, Some((&dir, &name)));
        Some(adopted.map(|(entry, attr)| node(&entry, attr)))
    }

    /// Runs something quick as `who` on this thread; `None` when the identity
    /// cannot be worn.
    pub(crate) fn inline_as<T>(&self, who: &Caller, work: impl FnOnce() -> T) -> Option<T> {
        if self.switches_identity { credentials::as_caller(who, work).ok() } else { Some(work()) }
    }

    /// Opening with `O_PATH` does not mount what is mounted on demand (a ZFS
    /// snapshot): list it once, and open what is there then.
    fn cross_automount(&self, dir: &Entry, name: &Name, fd: OwnedFd) -> StoreResult<OwnedFd> {
        let stat: Statx = syscall::stat(&fd)?;
        if !mounts_on_demand(&stat) {
            return Ok(fd);
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let triggered = credentials::as_process(|| {
            rustix::fs::openat(&dir.fd, name.as_c_str(), flags, Mode::empty())
        });
        drop(triggered.or_store()?);
        syscall::open_path(&dir.fd, name.as_c_str())
    }

    /// The directory above; crosses from a mounted file system's root to the
    /// directory above the one it covers.
    pub(crate) fn lookup_parent(&self, who: &Caller, dir: &NodeHandle) -> StoreResult<Node> {
        let dir = self.directory(dir)?;
        if dir.handle == self.root.handle {
            return Err(StoreError::NotFound);
        }
        self.precheck(who, &dir, Rights::EXECUTE)?;
        let fd = syscall::open_path(&dir.fd, c"..").map_err(|error| self.dir_error(&dir, error))?;
        let (entry, attr) = self.adopt(fd, None)?;
        // Somebody may have moved the directory out of the tree.
        if !entry.mount.whole && !is_below(&syscall::path_of(&entry.fd)?, &self.root_path) {
            return Err(StoreError::Stale);
        }
        Ok(node(&entry, attr))
    }

    /// The target of a symbolic link.
    pub(crate) fn readlink(&self, entry: &Entry) -> StoreResult<Vec<u8>> {
        if entry.kind != FileKind::Symlink {
            return Err(StoreError::WrongType);
        }
        rustix::fs::readlinkat(&entry.fd, c"", Vec::with_capacity(256))
            .or_store()
            .map(std::ffi::CString::into_bytes)
    }
}

/// Inode numbers of OpenZFS's `.zfs/snapshot/NAME` before the snapshot is
/// mounted there: the highest less the snapshot's object set.
const ZFS_SNAPSHOT_DIRS: std::ops::RangeInclusive<u64> = 0xffff_0000_0000..=0xffff_ffff_fffc;

/// Whether something is mounted on a directory when it is first listed. The
/// kernel says so, but not of ZFS snapshots: their inodes lack the flag. Where
/// such a number belongs to another file system's directory, that one is opened
/// once more than needed.
fn mounts_on_demand(stat: &Statx) -> bool {
    stat.stx_attributes.contains(StatxAttributes::AUTOMOUNT)
        || ZFS_SNAPSHOT_DIRS.contains(&stat.stx_ino)
            && FileType::from_raw_mode(stat.stx_mode.into()).is_dir()
}

/// Opens an entry if that needs nothing from a disk; `Ok(None)` if it might.
fn open_in_memory(dir: &Entry, name: &Name) -> StoreResult<Option<OwnedFd>> {
    let resolve = ResolveFlags::CACHED | ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    match rustix::fs::openat2(&dir.fd, name.as_c_str(), PATH_FLAGS, Mode::empty(), resolve) {
        Ok(fd) => Ok(Some(fd)),
        // Not in memory; or no openat2, or no RESOLVE_CACHED (Linux 5.12); or
        // a mount on the way that BENEATH does not like.
        Err(Errno::AGAIN | Errno::NOSYS | Errno::INVAL | Errno::XDEV | Errno::PERM) => Ok(None),
        Err(errno) => Err(store_error(errno)),
    }
}
