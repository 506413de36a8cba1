//! Files opened by clients.

use crate::store::Shared;
use std::sync::Arc;
use zgate_store::file_store::OpenFile;
use zgate_store::{StoreError, StoreResult};

/// The store's [`OpenFile`]: exactly the rights that `open` granted.
pub(crate) struct MemoryFile {
    shared: Arc<Shared>,
    /// Number of the object, which exists as long as this open file.
    pub(crate) number: u64,
    read: bool,
    write: bool,
    /// Set if writes keep set-id bits.
    pub(crate) privileged: bool,
}

impl MemoryFile {
    /// Creates an open file for an open that the tree has counted.
    pub(crate) fn open(
        shared: &Arc<Shared>,
        number: u64,
        (read, write): (bool, bool),
        privileged: bool,
    ) -> OpenFile {
        Arc::new(Self { shared: Arc::clone(shared), number, read, write, privileged })
    }

    /// Returns the store's own file behind an open file.
    pub(crate) fn of<'a>(shared: &Arc<Shared>, file: &'a OpenFile) -> StoreResult<&'a Self> {
        file.downcast_ref::<Self>()
            .filter(|file| Arc::ptr_eq(&file.shared, shared))
            .ok_or(StoreError::BadHandle)
    }

    /// Returns the number, if read access was granted.
    pub(crate) fn readable(&self) -> StoreResult<u64> {
        if self.read { Ok(self.number) } else { Err(StoreError::AccessDenied) }
    }

    /// Returns the number, if write access was granted.
    pub(crate) fn writable(&self) -> StoreResult<u64> {
        if self.write { Ok(self.number) } else { Err(StoreError::AccessDenied) }
    }
}

impl Drop for MemoryFile {
    fn drop(&mut self) {
        let mut tree = self.shared.tree();
        if let Ok(inode) = tree.at_mut(self.number) {
            inode.opens -= 1;
        }
        tree.forget_orphan(self.number);
    }
}
