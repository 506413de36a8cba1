//! The exported tree: conversion between handles and objects.

use crate::attributes::{birth_of, device_of};
use crate::descriptors::{Claim, DescriptorBudget};
use crate::entry::Entry;
use crate::entry_cache::EntryCache;
use crate::errno::OrStoreError;
use crate::handle::{HandleCodec, InTreeHandle, Parsed};
use crate::identities::Identities;
use crate::listing::Budget;
use crate::losses::Losses;
use crate::mounts::{Mount, MountTable};
use crate::name::Name;
use crate::name_table::NameTable;
use crate::syscall;
use crate::unsynced::Unsynced;
use rustix::fs::Statx;
use std::ffi::CStr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use zgate_io::credentials;
use zgate_io::file_handle::{KernelHandle, name_to_handle, open_by_handle};
use zgate_io::{IoEngine, after_reply, on_a_worker};
use zgate_store::file_store::Node;
use zgate_store::{Attr, FileKind, NodeHandle, StoreError, StoreResult};

/// Most directories climbed from an object without a kernel handle to one that
/// can be opened.
const MAX_CLIMB: usize = 4096;

/// Handle of the object of a directory entry, and its attributes, if they were needed;
/// `None`: it is a mount point.
pub(crate) type Identified = Option<(NodeHandle, Option<Statx>)>;

/// Attributes of an object, and the time before they were read.
pub(crate) type Looked = (Statx, Instant);

/// Attributes and handle of an object that was just opened, where they are known.
#[derive(Default)]
pub(crate) struct Known {
    /// Its attributes.
    pub(crate) looked: Option<Looked>,
    /// Its handle, if it lies in the file system of the directory in which it was found.
    pub(crate) handle: Option<NodeHandle>,
    /// Claim on its descriptor.
    pub(crate) claim: Option<Claim>,
}

/// State shared by all operations.
pub(crate) struct Tree {
    pub(crate) root: Arc<Entry>,
    /// Path of the root, free of symbolic links.
    pub(crate) root_path: Vec<u8>,
    pub(crate) mounts: MountTable,
    pub(crate) cache: Arc<EntryCache>,
    /// Files with unstable writes: they stay findable when they have left the cache.
    pub(crate) unsynced: Arc<Unsynced<Entry>>,
    /// Budget of descriptors of this store and others.
    pub(crate) descriptors: Arc<DescriptorBudget>,
    pub(crate) known_names: NameTable,
    pub(crate) codec: HandleCodec,
    pub(crate) identities: Identities,
    /// Bound on the cached listings.
    pub(crate) listings: Arc<Budget>,
    /// Loss counter of the store.
    pub(crate) losses: Losses,
    /// See [`PosixOptions::freeing`](crate::PosixOptions::freeing).
    pub(crate) freeing: Arc<AtomicUsize>,
    /// Number of modifications made through the store.
    pub(crate) modifications: Arc<AtomicU64>,
    pub(crate) snapshots_visible: bool,
    /// Set if the process takes on callers' identities; otherwise the store
    /// checks rights itself.
    pub(crate) switches_identity: bool,
}

impl Tree {
    /// Returns the object, if it is cached.
    pub(crate) fn cached(&self, node: &NodeHandle) -> Option<Arc<Entry>> {
        if *node == self.root.handle {
            return Some(Arc::clone(&self.root));
        }
        let entry = self.cache.get(node)?;
        entry.mount.mark_asked_for();
        Some(entry)
    }

    /// Returns the object, which lies below the root; may wait for a disk.
    pub(crate) fn entry(&self, node: &NodeHandle) -> StoreResult<Arc<Entry>> {
        let entry = self.entry_anywhere(node)?;
        self.check_place(&entry)?;
        Ok(entry)
    }

    /// Returns the object, also if it has been moved out of the tree since it was used.
    pub(crate) fn entry_anywhere(&self, node: &NodeHandle) -> StoreResult<Arc<Entry>> {
        match self.cached(node) {
            Some(entry) => Ok(entry),
            None => credentials::as_process(|| self.find(node)),
        }
    }

    /// Returns the object, which must be a directory.
    pub(crate) fn directory(&self, node: &NodeHandle) -> StoreResult<Arc<Entry>> {
        self.entry(node).and_then(only_directory)
    }

    /// Reads the attributes, unless the object has lost its last name and is
    /// not open.
    pub(crate) fn live_attr(&self, entry: &Entry) -> StoreResult<Attr> {
        let attr = match entry.attr() {
            Err(StoreError::Io) if self.drops_given_up(entry) => {
                return self.entry(&entry.handle)?.attr();
            }
            attr => attr?,
        };
        if attr.nlink == 0 && entry.opens.load(Ordering::Acquire) == 0 {
            self.orphan(entry);
            self.known_names.forget(&entry.handle);
            return Err(StoreError::Stale);
        }
        Ok(attr)
    }

    /// Returns the engine for work on an object: that of its storage, as far as
    /// this is known without access to it.
    pub(crate) fn engine_of(&self, node: &NodeHandle) -> IoEngine {
        self.mount_of(node).engine.clone()
    }

    /// Returns the mount of an object, as far as this is known without access
    /// to it.
    pub(crate) fn mount_of(&self, node: &NodeHandle) -> Arc<Mount> {
        let root = &self.root.mount;
        if self.mounts.is_single() {
            return Arc::clone(root);
        }
        if let Some(entry) = self.cached(node) {
            return Arc::clone(&entry.mount);
        }
        let mount = match self.codec.parse(node) {
            Ok(Parsed::Kernel { key, .. }) => self.mounts.known_key(key),
            _ => None,
        };
        mount.unwrap_or_else(|| Arc::clone(root))
    }

    /// Returns the key of the file system that an object lies in, as far as this
    /// is known without access to it.
    pub(crate) fn file_system_of(&self, node: &NodeHandle) -> Option<u64> {
        if let Some(entry) = self.cached(node) {
            return Some(entry.mount.key);
        }
        match self.codec.parse(node) {
            Ok(Parsed::Kernel { key, .. }) => Some(key),
            _ => None,
        }
    }

    /// Refuses a change of names between two file systems that are known to
    /// differ, without access to either: on a worker of the one it would wait for
    /// the other's disk.
    pub(crate) fn refuse_crossing(&self, one: &NodeHandle, other: &NodeHandle) -> StoreResult<()> {
        match (self.file_system_of(one), self.file_system_of(other)) {
            (Some(one), Some(other)) if one != other => Err(StoreError::CrossDevice),
            _ => Ok(()),
        }
    }

    /// Caches an entry, or returns the existing one, and whether it was added.
    fn keep(&self, entry: Entry) -> (Arc<Entry>, bool) {
        let (entry, new, evicted) = self.cache.insert(entry);
        for old in evicted {
            let near = Arc::ptr_eq(&old.mount, &entry.mount);
            close(&Arc::clone(&old.mount), near, move || drop(old));
        }
        (entry, new)
    }

    /// Releases all cached objects. Files in child mounts that have unstable writes follow
    /// when they are synced, which begins here. In the root's own mount that frees nothing:
    /// the root stays open.
    pub(crate) fn release(&self) {
        let root = &self.root.mount;
        self.unsynced.sync_all(|file| !Arc::ptr_eq(&file.mount, root));
        self.cache.clear();
        self.mounts.release();
    }

    /// Stops keeping an object that has lost its last name. Closing its
    /// descriptors may free its space.
    pub(crate) fn orphan(&self, entry: &Entry) {
        let node = &entry.handle;
        // Its data is freed with it.
        let is_kept = entry.reports_losses_once();
        let unsynced = if is_kept { self.unsynced.forget(node) } else { None };
        let Some(entry) = self.cache.orphan(node).or(unsynced) else { return };
        let (kind, mount, freeing) = (entry.kind, Arc::clone(&entry.mount), self.begin_freeing());
        let work = move || {
            entry.drop_descriptors();
            // In this order: the count ends when the descriptors are closed.
            drop(entry);
            drop(freeing);
        };
        if kind == FileKind::Regular && on_a_worker() {
            // To free the space of a large file takes long: the reply does not wait for it.
            after_reply(work);
        } else {
            close(&mount, true, work);
        }
    }

    /// Counts a file or tree that is being closed, until the returned value is dropped.
    pub(crate) fn begin_freeing(&self) -> Freeing {
        Freeing::new(&self.freeing)
    }

    /// Returns whether `name` in `dir` is a snapshot directory that is hidden.
    pub(crate) fn hides(&self, dir: &Entry, name: &[u8]) -> bool {
        !self.snapshots_visible
            && name == b".zfs"
            && (dir.handle == self.root.handle || self.is_mount_root(dir))
    }

    fn is_mount_root(&self, dir: &Entry) -> bool {
        use rustix::fs::StatxAttributes;
        syscall::stat(&dir.fd)
            .is_ok_and(|stat| stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
    }

    fn find(&self, node: &NodeHandle) -> StoreResult<Arc<Entry>> {
        match self.codec.parse(node)? {
            Parsed::Kernel { key, handle, proven } => {
                self.find_by_kernel(node, key, &handle, proven)
            }
            Parsed::InTree(object) => self.find_by_place(node, object),
        }
    }

    fn find_by_kernel(
        &self,
        node: &NodeHandle,
        key: u64,
        handle: &KernelHandle,
        proven: bool,
    ) -> StoreResult<Arc<Entry>> {
        let claim = self.descriptors.claim()?;
        let (fd, mount) = self.open_below_root(key, handle, proven)?;
        let now = Instant::now();
        let stat = syscall::stat(&fd)?;
        if stat.stx_nlink == 0 {
            return Err(StoreError::Stale);
        }
        let entry = Entry::new(*node, fd, mount, (&stat, now), &self.modifications, claim);
        entry.note_place(Some(now));
        Ok(self.keep(entry).0)
    }

    fn find_by_place(&self, node: &NodeHandle, object: InTreeHandle) -> StoreResult<Arc<Entry>> {
        for known in self.known_names.of(node) {
            match self.climb(known.parent, &known.name) {
                Ok(entry) if entry.handle == *node => return Ok(entry),
                // The name may lead to it: it is not known to be gone.
                Err(StoreError::OutOfResources) => return Err(StoreError::OutOfResources),
                Ok(_) | Err(_) => {}
            }
        }
        tracing::trace!(?object, "no name leads to the object any more");
        Err(StoreError::Stale)
    }

    /// Opens `name` in `parent`: climbs to the nearest cached ancestor and
    /// descends again.
    fn climb(&self, parent: NodeHandle, name: &[u8]) -> StoreResult<Arc<Entry>> {
        let mut names = vec![Box::<[u8]>::from(name)];
        let mut above = parent;
        let mut entry = loop {
            if let Some(entry) = self.cached(&above) {
                break entry;
            }
            if let Parsed::Kernel { .. } = self.codec.parse(&above)? {
                break self.find(&above)?;
            }
            let known = self.known_names.of(&above).into_iter().next().ok_or(StoreError::Stale)?;
            names.push(known.name);
            above = known.parent;
            if names.len() > MAX_CLIMB {
                return Err(StoreError::Stale);
            }
        };
        while let Some(name) = names.pop() {
            let name = Name::parse(&name)?;
            let fd = syscall::open_path(&entry.fd, name.as_c_str())?;
            entry = self.adopt(fd, Some((&entry, &name)))?.0;
        }
        Ok(entry)
    }

    /// Caches an object opened as `O_PATH`, found as `name` in a directory.
    pub(crate) fn adopt(
        &self,
        fd: OwnedFd,
        place: Option<(&Entry, &Name)>,
    ) -> StoreResult<(Arc<Entry>, Attr)> {
        self.adopt_seen(fd, place, None)
    }

    /// Does the same with an object that was looked at since it was opened.
    pub(crate) fn adopt_seen(
        &self,
        fd: OwnedFd,
        place: Option<(&Entry, &Name)>,
        looked: Option<Looked>,
    ) -> StoreResult<(Arc<Entry>, Attr)> {
        let handle = place.and_then(|(dir, _)| self.handle_nearby(dir, &fd, c""));
        if let Some(entry) = handle.and_then(|handle| self.cached(&handle)) {
            match entry.attr() {
                // The name leads to another inode.
                Err(StoreError::Io) if self.drops_given_up(&entry) => {}
                attr => return attr.map(|attr| (entry, attr)),
            }
        }
        self.adopt_known(fd, place, Known { looked, handle, claim: None })
    }

    /// Does the same with an object that was not cached a moment ago.
    pub(crate) fn adopt_known(
        &self,
        fd: OwnedFd,
        place: Option<(&Entry, &Name)>,
        known: Known,
    ) -> StoreResult<(Arc<Entry>, Attr)> {
        let (entry, new) = self.take_in(&Arc::new(fd), place, known)?;
        let attr = if new { entry.first_attr()? } else { entry.attr()? };
        Ok((entry, attr))
    }

    /// Caches a file that was created as `name` and completed a moment ago.
    pub(crate) fn adopt_created(
        &self,
        fd: &Arc<OwnedFd>,
        dir: &Entry,
        name: &Name,
    ) -> StoreResult<(Arc<Entry>, Attr)> {
        let (entry, new) = self.take_in(fd, Some((dir, name)), Known::default())?;
        if new {
            let attr = entry.first_attr()?;
            return Ok((entry, attr));
        }
        // Another thread found it before it was completed.
        entry.mark_modified();
        let attr = entry.attr()?;
        Ok((entry, attr))
    }

    /// Returns the entry of an open object, and whether it is new.
    fn take_in(
        &self,
        fd: &Arc<OwnedFd>,
        place: Option<(&Entry, &Name)>,
        known: Known,
    ) -> StoreResult<(Arc<Entry>, bool)> {
        let (stat, now) = match known.looked {
            Some(looked) => looked,
            None => {
                let now = Instant::now();
                (syscall::stat(fd)?, now)
            }
        };
        let near = place.map(|(dir, _)| &dir.mount).filter(|mount| mount.id == stat.stx_mnt_id);
        let known_handle = known.handle.filter(|_| near.is_some());
        let mount = match near {
            Some(mount) => Arc::clone(mount),
            None => credentials::as_process(|| self.mounts.by_id(stat.stx_mnt_id))?,
        };
        let handle = match known_handle {
            Some(handle) => handle,
            None => self.handle_of(fd, c"", &stat, &mount)?,
        };
        if !mount.kernel_handles
            && let Some((dir, name)) = place
        {
            self.known_names.remember(&handle, &dir.handle, name.as_bytes());
        }
        if let Some(entry) = self.cached(&handle) {
            return Ok((entry, false));
        }
        let seen = (&stat, now);
        let claim = known.claim.map_or_else(|| self.descriptors.claim(), Ok)?;
        let entry = Entry::new(handle, Arc::clone(fd), mount, seen, &self.modifications, claim);
        // It lies where the directory does in which it was found.
        entry.note_place(place.and_then(|(dir, _)| dir.place_seen_at()));
        Ok(self.keep(entry))
    }

    /// Returns the handle of `name` in `at`, or of `at` itself, if it lies in
    /// the file system of `dir`.
    pub(crate) fn handle_nearby(
        &self,
        dir: &Entry,
        at: &OwnedFd,
        name: &CStr,
    ) -> Option<NodeHandle> {
        if !dir.mount.kernel_handles {
            return None;
        }
        let handle = name_to_handle(at, name).ok()?;
        if is_in(dir, &handle) { self.codec.kernel(dir.mount.key, &handle) } else { None }
    }

    /// Returns the handle of `name` in `dir`, or of `dir` itself.
    pub(crate) fn handle_of(
        &self,
        dir: &OwnedFd,
        name: &CStr,
        stat: &Statx,
        mount: &Mount,
    ) -> StoreResult<NodeHandle> {
        if mount.kernel_handles {
            let handle = name_to_handle(dir, name).or_store()?;
            return self.codec.kernel(mount.key, &handle).ok_or(StoreError::NotSupported);
        }
        in_tree_handle(&self.codec, stat)
    }

    /// Identifies the object of a directory entry; `None`: something is mounted on it.
    /// A mount that may hang while the directory does not is left alone. The attributes are
    /// left out where the kernel has kernel handles, unless the caller needs them.
    pub(crate) fn identify(
        &self,
        dir: &Entry,
        name: &Name,
        needs_attributes: bool,
    ) -> StoreResult<Identified> {
        let by_handle_alone = dir.mount.kernel_handles && !needs_attributes;
        if !self.mounts.has_other_stores() {
            // Nothing that is mounted here waits for other storage than the directory does.
            if by_handle_alone {
                match name_to_handle(&dir.fd, name.as_c_str()) {
                    Ok(handle) if is_in(dir, &handle) => {
                        let handle = self.codec.kernel(dir.mount.key, &handle);
                        return Ok(Some((handle.ok_or(StoreError::NotSupported)?, None)));
                    }
                    Ok(_) => return Ok(None),
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                        return Err(StoreError::NotFound);
                    }
                    // What is mounted there may have no handles: its attributes tell.
                    Err(_) => {}
                }
            }
            let stat = syscall::stat_at(&dir.fd, name.as_c_str())?;
            if stat.stx_mnt_id != dir.mount.id {
                return Ok(None);
            }
            let handle = self.handle_of(&dir.fd, name.as_c_str(), &stat, &dir.mount)?;
            return Ok(Some((handle, Some(stat))));
        }
        let fd = match syscall::open_path_here(&dir.fd, name.as_c_str()) {
            Err(StoreError::CrossDevice) => return Ok(None),
            opened => opened?,
        };
        if by_handle_alone && let Some(handle) = self.handle_nearby(dir, &fd, c"") {
            return Ok(Some((handle, None)));
        }
        let stat = syscall::stat(&fd)?;
        let mount = self.mount_at(dir, &stat)?;
        Ok(Some((self.handle_of(&fd, c"", &stat, &mount)?, Some(stat))))
    }

    /// Returns the mount that an entry of `dir` lies in.
    pub(crate) fn mount_at(&self, dir: &Entry, stat: &Statx) -> StoreResult<Arc<Mount>> {
        if stat.stx_mnt_id == dir.mount.id {
            return Ok(Arc::clone(&dir.mount));
        }
        match self.mounts.known(stat.stx_mnt_id) {
            Some(mount) => Ok(mount),
            None => credentials::as_process(|| self.mounts.by_id(stat.stx_mnt_id)),
        }
    }

    /// Updates the caches after a name of an object was removed from `dir`.
    pub(crate) fn name_removed(&self, node: &NodeHandle, dir: &Entry, name: &Name) {
        self.known_names.forget_name(node, &dir.handle, name.as_bytes());
        let Some(entry) = self.cached(node) else {
            // It may have other names in cached listings.
            self.modifications.fetch_add(1, Ordering::AcqRel);
            return;
        };
        entry.mark_modified();
        if syscall::stat(&entry.fd).is_ok_and(|stat| stat.stx_nlink == 0) {
            self.orphan(&entry);
            self.known_names.forget(node);
        }
    }

    /// Maps an error of an operation in `dir`: "not found" may mean that the
    /// directory itself is gone.
    pub(crate) fn dir_error(&self, dir: &Entry, error: StoreError) -> StoreError {
        let gone = error == StoreError::NotFound
            && syscall::stat(&dir.fd).is_ok_and(|stat| stat.stx_nlink == 0);
        if gone { StoreError::Stale } else { error }
    }
}

/// Counts a file or tree that is being closed.
pub(crate) struct Freeing(Arc<AtomicUsize>);

impl Freeing {
    pub(crate) fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(count))
    }
}

impl Drop for Freeing {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Closes objects of a mount: directly on a worker that serves the mount
/// (`near`), else on a worker of its storage, which may take long.
pub(crate) fn close(mount: &Mount, near: bool, work: impl FnOnce() + Send + 'static) {
    if near && on_a_worker() {
        work();
    } else {
        mount.engine.detach(work);
    }
}

/// Most attempts to open a handle for which the kernel reports ENOMEM.
const OPEN_ATTEMPTS: u32 = 20;
/// Time between the attempts.
const OPEN_PAUSE: Duration = Duration::from_millis(1);

/// Opens a kernel handle. Right after the last name of a file is removed, ext4
/// of Linux 6.18 was seen to return ENOMEM now and then, presumably while the
/// inode is being freed; a moment later it returns ESTALE.
pub(crate) fn open_kernel_handle(mount: &OwnedFd, handle: &KernelHandle) -> StoreResult<OwnedFd> {
    let mut attempt = 1;
    loop {
        match open_by_handle(mount, handle).or_store() {
            Ok(fd) => return Ok(fd),
            Err(StoreError::OutOfResources) if attempt < OPEN_ATTEMPTS => {
                attempt += 1;
                std::thread::sleep(OPEN_PAUSE);
            }
            Err(error @ (StoreError::OutOfResources | StoreError::Io)) => return Err(error),
            // A forged handle is refused with various errors; all mean that it
            // names no object.
            Err(_) => return Err(StoreError::Stale),
        }
    }
}

/// Returns the in-tree handle of an object.
pub(crate) fn in_tree_handle(codec: &HandleCodec, stat: &Statx) -> StoreResult<NodeHandle> {
    codec.in_tree(InTreeHandle {
        device: device_of(stat),
        inode: stat.stx_ino,
        birth: birth_of(stat),
    })
}

/// Returns whether an object was reached through the mount of `dir`.
fn is_in(dir: &Entry, found: &KernelHandle) -> bool {
    u64::try_from(found.mount_id).is_ok_and(|id| id == dir.mount.id)
}

/// Refuses anything but a directory.
pub(crate) fn only_directory(entry: Arc<Entry>) -> StoreResult<Arc<Entry>> {
    match entry.kind {
        FileKind::Directory => Ok(entry),
        FileKind::Symlink => Err(StoreError::IsSymlink),
        _ => Err(StoreError::NotDirectory),
    }
}

/// Returns handle and attributes.
pub(crate) fn node(entry: &Entry, attr: Attr) -> Node {
    Node { handle: entry.handle, attr }
}
