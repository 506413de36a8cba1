//! Bringing names and attributes to stable storage: one sync of a mount for all
//! changes that wait for it.

use crate::entry::Entry;
use crate::errno::OrStoreError;
use crate::group_sync::GroupSync;
use crate::mounts::Mount;
use crate::syscall;
use crate::tree::Tree;
use rustix::fs::OFlags;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use zgate_io::credentials;
use zgate_store::{FileKind, NodeHandle, StoreError, StoreResult};

/// What it takes to have changes of names and attributes on stable storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameSync {
    /// Nothing: memory is all the storage there is.
    Nothing,
    /// A sync of any object. ZFS writes changes of names and attributes to the
    /// intent log of their dataset in order, and zil_commit() of one object
    /// writes out all of them, whatever they changed; of file data, only that
    /// object's. A directory has none.
    OfRoot,
    /// A sync of each object that was changed. A journal carries all that came
    /// before, so that the first one does the work.
    OfEach,
}

impl NameSync {
    /// By the kind of file system (proc(5), mountinfo).
    pub(crate) fn of_kind(kind: &[u8]) -> Self {
        match kind {
            b"tmpfs" | b"ramfs" => Self::Nothing,
            b"zfs" => Self::OfRoot,
            _ => Self::OfEach,
        }
    }
}

/// The syncs of a mount's names.
#[derive(Debug)]
pub(crate) struct Names {
    how: NameSync,
    group: GroupSync<NodeHandle>,
}

impl Names {
    pub(crate) fn new(kind: &[u8]) -> Self {
        Self { how: NameSync::of_kind(kind), group: GroupSync::default() }
    }

    /// Refuses a change that would wait behind a sync that does not end.
    pub(crate) fn check(&self) -> StoreResult<()> {
        self.group.check()
    }
}

impl Tree {
    /// Brings what is known of these objects to stable storage: attributes,
    /// and of directories their entries.
    pub(crate) async fn sync_objects(self: &Arc<Self>, nodes: &[NodeHandle]) -> StoreResult<()> {
        let mut left: Vec<(Arc<Mount>, NodeHandle)> =
            nodes.iter().map(|node| (self.mount_of(node), *node)).collect();
        while let Some((mount, _)) = left.first() {
            let mount = Arc::clone(mount);
            let (near, far): (Vec<_>, _) =
                left.into_iter().partition(|(other, _)| Arc::ptr_eq(other, &mount));
            left = far;
            self.sync_in(&mount, near.into_iter().map(|(_, node)| node)).await?;
        }
        Ok(())
    }

    async fn sync_in(
        self: &Arc<Self>,
        mount: &Arc<Mount>,
        nodes: impl Iterator<Item = NodeHandle>,
    ) -> StoreResult<()> {
        let Names { how, group } = &mount.names;
        let how = *how;
        if how == NameSync::Nothing {
            return Ok(());
        }
        // What has been changed cannot be taken back: it is not sent away.
        let engine = mount.engine.patient();
        let sync = async |mut nodes: Vec<NodeHandle>| {
            nodes.sort_unstable();
            nodes.dedup();
            let (tree, at) = (Arc::clone(self), Arc::clone(mount));
            let work = move || tree.sync_now(how, &at, &nodes);
            engine.run_long(work).await.or_store()?
        };
        group.join(nodes, sync).await
    }

    fn sync_now(&self, how: NameSync, mount: &Mount, nodes: &[NodeHandle]) -> StoreResult<()> {
        if how == NameSync::OfRoot {
            return self.losses.note(rustix::fs::fsync(&mount.root).or_store());
        }
        for node in nodes {
            // Noted at once: of a file, it may be the one report of a lost write.
            match self.entry(node).and_then(|entry| self.losses.note(sync(&entry))) {
                // Gone in the meantime: nothing is left to keep.
                Ok(()) | Err(StoreError::Stale | StoreError::NotFound) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn sync(entry: &Entry) -> StoreResult<()> {
    match descriptor(entry) {
        Some(fd) => rustix::fs::fsync(&fd).or_store(),
        // A link or a device has no descriptor of its own to sync, and a file
        // may forbid its owner to open it: the whole file system then.
        None => rustix::fs::syncfs(&entry.mount.root).or_store(),
    }
}

fn descriptor(entry: &Entry) -> Option<Arc<OwnedFd>> {
    match entry.kind {
        FileKind::Regular => {
            entry.cached_writer().map(|writer| writer.fd).or_else(|| entry.reader().ok())
        }
        FileKind::Directory => {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            credentials::as_process(|| syscall::reopen(&entry.fd, flags)).ok().map(Arc::new)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_sync_takes_is_told_by_the_file_system() {
        assert_eq!(NameSync::of_kind(b"zfs"), NameSync::OfRoot);
        assert_eq!(NameSync::of_kind(b"tmpfs"), NameSync::Nothing);
        assert_eq!(NameSync::of_kind(b"ext4"), NameSync::OfEach);
    }
}
