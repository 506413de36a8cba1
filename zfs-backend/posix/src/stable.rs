//! Stable storage for names and attributes: one sync of a mount for all changes
//! that wait for it.

use crate::entry::Entry;
use crate::errno::OrStoreError;
use crate::mounts::Mount;
use crate::name_sync::{NameSync, Names};
use crate::syscall;
use crate::tree::Tree;
use futures_util::future::join_all;
use rustix::fs::OFlags;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use zgate_io::credentials;
use zgate_store::{FileKind, NodeHandle, StoreError, StoreResult};

/// Objects of a group that are synced at the same time: workers that one mount
/// takes for its names.
const MAX_SYNCS_BESIDE_EACH_OTHER: usize = 4;

impl Tree {
    /// Syncs these objects: their attributes and, for directories, their
    /// entries.
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
        if *how == NameSync::Nothing {
            return Ok(());
        }
        // The change cannot be undone, so its sync is never refused.
        let engine = mount.engine.patient();
        let sync = async |mut nodes: Vec<NodeHandle>| {
            nodes.sort_unstable();
            nodes.dedup();
            // Beside each other: a file system combines syncs that come together.
            let part = nodes.len().div_ceil(MAX_SYNCS_BESIDE_EACH_OTHER).max(2);
            let syncs = nodes.chunks(part).map(|part| {
                let (tree, part) = (Arc::clone(self), part.to_vec());
                engine.run_long(move || tree.sync_now(&part))
            });
            join_all(syncs).await.into_iter().try_for_each(|synced| synced.or_store()?)
        };
        group.join(nodes, sync).await
    }

    fn sync_now(&self, nodes: &[NodeHandle]) -> StoreResult<()> {
        for node in nodes {
            // Recorded at once: for a file, the error may be the only report of
            // a lost write.
            match self.entry(node).and_then(|entry| self.losses.note(sync(&entry))) {
                // The object is gone: there is nothing left to sync.
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
        // A link or a device has no descriptor that can be synced, and a file
        // may deny its owner access: sync the whole file system then.
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
        assert_eq!(NameSync::of_kind(b"zfs"), NameSync::OfEach);
        assert_eq!(NameSync::of_kind(b"tmpfs"), NameSync::Nothing);
        assert_eq!(NameSync::of_kind(b"ext4"), NameSync::OfEach);
    }
}
