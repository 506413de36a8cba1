//! Place of objects: nothing outside the exported root is served. Where the export is a
//! subdirectory of a file system, handles of the kernel lead to all of that file system. The
//! kernel knows the path of every directory, but not of every file.

use crate::attributes::kind_of;
use crate::entry::Entry;
use crate::mounts::{Mount, is_below};
use crate::syscall;
use crate::tree::{Tree, open_kernel_handle};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use zgate_io::credentials;
use zgate_io::file_handle::KernelHandle;
use zgate_store::{FileKind, StoreError, StoreResult};

/// Time after which the place of a cached directory is looked at again.
const PLACE_LIFE: Duration = Duration::from_secs(1);
/// Most directories climbed to one that has a path.
const MAX_CLIMB: usize = 4096;

impl Tree {
    /// Opens an object through a mount in which it lies below the root.
    pub(crate) fn open_below_root(
        &self,
        key: u64,
        handle: &KernelHandle,
        proven: bool,
    ) -> StoreResult<(OwnedFd, Arc<Mount>)> {
        let mount = self.mounts.by_key(key)?;
        let fd = open_kernel_handle(&mount.root, handle)?;
        // A signature may be older than the place of the export: through a
        // directory outside, everything below it would be reached.
        let is_directory =
            || -> StoreResult<bool> { Ok(kind_of(&syscall::stat(&fd)?) == FileKind::Directory) };
        if mount.whole || (proven && !is_directory()?) || self.lies_below_root(&fd) {
            return Ok((fd, mount));
        }
        // A directory of the same file system may be mounted below the root.
        let through = |other: &Arc<Mount>| {
            let fd = open_kernel_handle(&other.root, handle).ok()?;
            self.lies_below_root(&fd).then(|| (fd, Arc::clone(other)))
        };
        let known = self.mounts.others_of(&mount);
        if let Some(found) = known.iter().find_map(through) {
            return Ok(found);
        }
        // Only now: to take up the others may wait for one that hangs.
        let more = self.mounts.more_of(&mount, &known)?;
        more.iter().find_map(through).ok_or(StoreError::Stale)
    }

    /// Returns whether the kernel's path of the object leads through the root,
    /// which may have been moved since it was opened.
    pub(crate) fn lies_below_root(&self, fd: &OwnedFd) -> bool {
        let Ok(path) = path_at_or_above(fd) else { return false };
        let root_now = || syscall::path_of(&self.root.fd);
        is_below(&path, &self.root_path) || root_now().is_ok_and(|root| is_below(&path, &root))
    }

    /// Refuses a cached directory that a program on the server has moved out of the tree: all
    /// that is in it, and all that is put into it later, would be reached as long as clients
    /// use it. Waits for no storage.
    pub(crate) fn check_place(&self, entry: &Entry) -> StoreResult<()> {
        let is_certain = entry.kind != FileKind::Directory || entry.mount.whole;
        if is_certain || entry.handle == self.root.handle {
            return Ok(());
        }
        let now = Instant::now();
        let is_young = |seen_at: Instant| now.saturating_duration_since(seen_at) < PLACE_LIFE;
        if entry.place_seen_at().is_some_and(is_young) {
            return Ok(());
        }
        if !self.lies_below_root(&entry.fd) {
            return Err(StoreError::Stale);
        }
        entry.note_place(Some(now));
        Ok(())
    }
}

/// Returns the kernel's path of an object. The kernel has none that is longer than a page: there,
/// that of the nearest directory above which has one.
fn path_at_or_above(fd: &OwnedFd) -> StoreResult<Vec<u8>> {
    let mut above: Option<OwnedFd> = None;
    for _ in 0..MAX_CLIMB {
        let at = above.as_ref().unwrap_or(fd);
        match syscall::path_of(at) {
            Err(StoreError::NameTooLong) => {
                let parent = credentials::as_process(|| syscall::open_path(at, c".."))?;
                above = Some(parent);
            }
            found => return found,
        }
    }
    Err(StoreError::NameTooLong)
}
