//! Bringing names and attributes to stable storage.

use crate::entry::Entry;
use crate::errno::OrStoreError;
use crate::syscall;
use crate::tree::Tree;
use rustix::fs::OFlags;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use zgate_io::credentials;
use zgate_store::{FileKind, NodeHandle, StoreError, StoreResult};

impl Tree {
    /// Brings what is known of these objects to stable storage: attributes,
    /// and of directories their entries.
    pub(crate) fn sync_objects(&self, nodes: &[NodeHandle]) -> StoreResult<()> {
        for node in nodes {
            match self.entry(node).and_then(|entry| sync(&entry)) {
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
