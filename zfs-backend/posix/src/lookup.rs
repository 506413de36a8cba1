//! LOOKUP, LOOKUPP, READLINK.

use crate::entry::Entry;
use crate::errno::{OrStoreError, store_error};
use crate::name::Name;
use crate::syscall::{self, PATH_FLAGS};
use crate::tree::{Known, Looked, Tree, node};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Statx, StatxAttributes};
use rustix::io::Errno;
use std::ffi::CStr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;
use zgate_io::IoEngine;
use zgate_io::access_check::Rights;
use zgate_io::credentials;
use zgate_store::file_store::Node;
use zgate_store::{Caller, FileKind, NodeHandle, StoreError, StoreResult};

/// The object of a name, or the parent of a directory; or, if it lies across a mount, in
/// storage with other workers than the directory, the engine for calls that may wait for
/// either.
pub(crate) type Found = Result<Node, IoEngine>;

impl Tree {
    /// Looks a name up; may wait for the disk of `dir`, but for no other one.
    pub(crate) fn lookup(&self, who: &Caller, dir: &NodeHandle, name: &[u8]) -> StoreResult<Found> {
        let name = Name::parse(name)?;
        let dir = self.may_search(who, dir, &name)?;
        let opened = self.open_nearby(&dir, name.as_c_str());
        match opened.map_err(|error| self.dir_error(&dir, error))? {
            Ok(fd) => self.node_at(&dir, &name, fd).map(Ok),
            Err(engine) => Ok(Err(engine)),
        }
    }

    /// Looks a mount point up; may wait for the disk of what is mounted there.
    pub(crate) fn lookup_across(
        &self,
        who: &Caller,
        dir: &NodeHandle,
        name: &[u8],
    ) -> StoreResult<Node> {
        let name = Name::parse(name)?;
        let dir = self.may_search(who, dir, &name)?;
        let opened = syscall::open_path(&dir.fd, name.as_c_str());
        self.node_at(&dir, &name, opened.map_err(|error| self.dir_error(&dir, error))?)
    }

    fn may_search(&self, who: &Caller, dir: &NodeHandle, name: &Name) -> StoreResult<Arc<Entry>> {
        let dir = self.directory(dir)?;
        if self.hides(&dir, name.as_bytes()) {
            return Err(StoreError::NotFound);
        }
        self.precheck(who, &dir, Rights::EXECUTE)?;
        Ok(dir)
    }

    fn node_at(&self, dir: &Entry, name: &Name, fd: OwnedFd) -> StoreResult<Node> {
        let (fd, looked) = self.cross_automount(dir, name, fd)?;
        let (entry, attr) = self.adopt_seen(fd, Some((dir, name)), looked)?;
        Ok(node(&entry, attr))
    }

    /// Opens an entry of `dir`, or its parent (".."), as `O_PATH`. If that lies across a
    /// mount, in storage with other workers, it is left alone: the engine for calls that
    /// may wait for either is returned.
    pub(crate) fn open_nearby(
        &self,
        dir: &Entry,
        name: &CStr,
    ) -> StoreResult<Result<OwnedFd, IoEngine>> {
        let opened = match syscall::open_path_here(&dir.fd, name) {
            Err(StoreError::CrossDevice) => match self.engine_across(dir, name) {
                Some(engine) => return Ok(Err(engine)),
                None => syscall::open_path(&dir.fd, name),
            },
            opened => opened,
        };
        opened.map(Ok)
    }

    /// Returns the engine for calls that may wait for `dir` and for what is mounted on
    /// `name` in it, or, for "..", for the directory that the mount of `dir` covers;
    /// `None` if both have the same workers, or nothing is mounted there any more.
    fn engine_across(&self, dir: &Entry, name: &CStr) -> Option<IoEngine> {
        let mut point = syscall::path_of(&dir.fd).ok()?;
        let there = if name == c".." {
            self.mounts.engine_above(&point)
        } else {
            if point != b"/" {
                point.push(b'/');
            }
            point.extend_from_slice(name.to_bytes());
            credentials::as_process(|| self.mounts.engine_at(&point))?
        };
        let own = &dir.mount.engine;
        (!own.shares_workers_with(&there)).then(|| own.between(&there))
    }

    /// Looks a name up in the kernel's memory, without ever waiting; `None` if
    /// that is not enough, or the file system may let it wait all the same.
    pub(crate) fn lookup_in_memory(
        &self,
        who: &Caller,
        dir: &NodeHandle,
        name: &[u8],
    ) -> Option<StoreResult<Node>> {
        let may_ask =
            |dir: &Arc<Entry>| dir.kind == FileKind::Directory && dir.mount.answers_at_once();
        let dir = self.cached(dir).filter(may_ask)?;
        // A worker tells that it has been moved away.
        self.check_place(&dir).ok()?;
        let name = match Name::parse(name) {
            Ok(name) => name,
            Err(error) => return Some(Err(error)),
        };
        // The root directory of a file system may hide a name: look up on a
        // worker.
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
        let handle = self.handle_nearby(&dir, &fd, c"");
        if let Some(entry) = handle.and_then(|handle| self.cached(&handle)) {
            return match entry.stat_and_attr() {
                // An automount must run first.
                Ok((stat, _)) if mounts_on_demand(&stat) => None,
                Ok((_, attr)) => Some(Ok(node(&entry, attr))),
                Err(error) => Some(Err(error)),
            };
        }
        let now = Instant::now();
        let stat = syscall::stat(&fd).ok()?;
        if mounts_on_demand(&stat) || self.mounts.known(stat.stx_mnt_id).is_none() {
            return None;
        }
        // Others that are closed in its favour may lie in storage that hangs.
        let claim = Some(self.descriptors.claim_free()?);
        let known = Known { looked: Some((stat, now)), handle, claim };
        let adopted = self.adopt_known(fd, Some((&dir, &name)), known);
        Some(adopted.map(|(entry, attr)| node(&entry, attr)))
    }

    /// Runs short work as `who` on this thread; `None` if the identity cannot
    /// be taken on.
    pub(crate) fn inline_as<T>(&self, who: &Caller, work: impl FnOnce() -> T) -> Option<T> {
        if self.switches_identity { credentials::as_caller(who, work).ok() } else { Some(work()) }
    }

    /// Triggers an automount: opening with `O_PATH` does not mount a ZFS
    /// snapshot. Lists the directory once, and opens the mounted directory
    /// then. Anything else is returned with its attributes.
    fn cross_automount(
        &self,
        dir: &Entry,
        name: &Name,
        fd: OwnedFd,
    ) -> StoreResult<(OwnedFd, Option<Looked>)> {
        let now = Instant::now();
        let stat = syscall::stat(&fd)?;
        if !mounts_on_demand(&stat) {
            return Ok((fd, Some((stat, now))));
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let triggered = credentials::as_process(|| {
            rustix::fs::openat(&dir.fd, name.as_c_str(), flags, Mode::empty())
        });
        drop(triggered.or_store()?);
        Ok((syscall::open_path(&dir.fd, name.as_c_str())?, None))
    }

    /// Looks up the parent directory; from a mounted file system's root it
    /// continues above the covered directory. May wait for the disk of `dir`, but for no
    /// other one.
    pub(crate) fn lookup_parent(&self, who: &Caller, dir: &NodeHandle) -> StoreResult<Found> {
        let dir = self.may_leave(who, dir)?;
        let opened = self.open_nearby(&dir, c"..");
        match opened.map_err(|error| self.dir_error(&dir, error))? {
            Ok(fd) => self.parent_at(fd).map(Ok),
            Err(engine) => Ok(Err(engine)),
        }
    }

    /// Looks up the parent directory of a mounted file system's root; may wait for its
    /// disk.
    pub(crate) fn parent_across(&self, who: &Caller, dir: &NodeHandle) -> StoreResult<Node> {
        let dir = self.may_leave(who, dir)?;
        let opened = syscall::open_path(&dir.fd, c"..");
        self.parent_at(opened.map_err(|error| self.dir_error(&dir, error))?)
    }

    fn may_leave(&self, who: &Caller, dir: &NodeHandle) -> StoreResult<Arc<Entry>> {
        let dir = self.directory(dir)?;
        if dir.handle == self.root.handle {
            return Err(StoreError::NotFound);
        }
        self.precheck(who, &dir, Rights::EXECUTE)?;
        Ok(dir)
    }

    fn parent_at(&self, fd: OwnedFd) -> StoreResult<Node> {
        let (entry, attr) = self.adopt(fd, None)?;
        // The directory may have been moved out of the tree.
        if !entry.mount.whole && !self.lies_below_root(&entry.fd) {
            return Err(StoreError::Stale);
        }
        Ok(node(&entry, attr))
    }

    /// Returns the target of a symbolic link.
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
/// mounted there: the highest number minus the snapshot's object set.
const ZFS_SNAPSHOT_DIRS: std::ops::RangeInclusive<u64> = 0xffff_0000_0000..=0xffff_ffff_fffc;

/// Returns whether a directory is an automount point. The kernel reports this,
/// but not for ZFS snapshots: their inodes lack the flag. If a directory of
/// another file system has such a number, it is opened once more than needed.
fn mounts_on_demand(stat: &Statx) -> bool {
    stat.stx_attributes.contains(StatxAttributes::AUTOMOUNT)
        || ZFS_SNAPSHOT_DIRS.contains(&stat.stx_ino)
            && FileType::from_raw_mode(stat.stx_mode.into()).is_dir()
}

/// Opens an entry if that needs nothing from a disk; `Ok(None)` if it might. What is
/// mounted on it may hang.
fn open_in_memory(dir: &Entry, name: &Name) -> StoreResult<Option<OwnedFd>> {
    let near = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
    let resolve = ResolveFlags::CACHED | near;
    match rustix::fs::openat2(&dir.fd, name.as_c_str(), PATH_FLAGS, Mode::empty(), resolve) {
        Ok(fd) => Ok(Some(fd)),
        // Not in memory; or no openat2, or no RESOLVE_CACHED (Linux 5.12); or a
        // mount on the path.
        Err(Errno::AGAIN | Errno::NOSYS | Errno::INVAL | Errno::XDEV | Errno::PERM) => Ok(None),
        Err(errno) => Err(store_error(errno)),
    }
}
