//! A file that a client has open in a followed dataset.

use super::store::DatasetTree;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use zgate_posix::PosixStore;
use zgate_store::file_store::{OpenAccess, OpenFile};
use zgate_store::{Caller, FileStore, NodeHandle, StoreError, StoreResult};

/// The store's file while it is open, and the means to open it again when it is
/// closed.
pub(super) struct DatasetFile {
    home: Arc<DatasetTree>,
    id: u64,
    who: Caller,
    node: NodeHandle,
    access: OpenAccess,
    file: Mutex<Option<OpenFile>>,
}

impl DatasetFile {
    pub(super) fn new(
        home: &Arc<DatasetTree>,
        id: u64,
        who: &Caller,
        node: NodeHandle,
        access: OpenAccess,
        file: OpenFile,
    ) -> Self {
        Self {
            home: Arc::clone(home),
            id,
            who: who.clone(),
            node,
            access,
            file: Mutex::new(Some(file)),
        }
    }

    fn slot(&self) -> std::sync::MutexGuard<'_, Option<OpenFile>> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether it has no name any more. May wait for storage, but without the lock that
    /// requests take.
    pub(super) fn is_removed(&self) -> bool {
        let file = self.slot().clone();
        file.as_ref().is_some_and(PosixStore::is_removed)
    }

    /// Takes the store's file, which is closed when the caller drops it and no
    /// request uses it.
    pub(super) fn take(&self) -> Option<OpenFile> {
        self.slot().take()
    }

    /// Returns whether it is closed at the moment.
    pub(super) fn is_closed(&self) -> bool {
        self.slot().is_none()
    }

    /// Returns its handle.
    pub(super) fn node(&self) -> NodeHandle {
        self.node
    }

    /// Returns the store's file, and opens it again if necessary. Rights were
    /// granted when the client opened it; a later change of the owner or mode
    /// does not revoke them, nor does it make its writes those of root.
    pub(super) async fn opened(&self, store: &PosixStore) -> StoreResult<OpenFile> {
        if let Some(file) = &*self.slot() {
            return Ok(Arc::clone(file));
        }
        let access = OpenAccess { stateless: true, ..self.access };
        let file = match store.open(&self.who, &self.node, access).await {
            Err(StoreError::AccessDenied) => {
                store.open_granted(&self.who, &self.node, access).await?
            }
            opened => opened?,
        };
        let kept = Arc::clone(self.slot().get_or_insert_with(|| Arc::clone(&file)));
        // Another request may have been faster. To close this file may take long, and serving
        // threads take the lock.
        drop(file);
        self.home.close_unless_current(self, store);
        Ok(kept)
    }
}

impl Drop for DatasetFile {
    fn drop(&mut self) {
        self.home.forget(self.id);
    }
}

/// Returns the store's file behind a client's; a file of another store is
/// returned unchanged.
pub(super) async fn opened(file: &OpenFile, store: &PosixStore) -> StoreResult<OpenFile> {
    match file.downcast_ref::<DatasetFile>() {
        Some(file) => file.opened(store).await,
        None => Ok(Arc::clone(file)),
    }
}

/// Tells whether files of a dataset may be closed, without a look at each of them.
#[derive(Debug, Default)]
pub(super) struct ClosedFiles {
    /// Number of times that some were closed.
    closed: AtomicU64,
    /// This number before the last look that found none closed.
    none_closed_at: AtomicU64,
}

impl ClosedFiles {
    /// Notes that some were closed. To be called behind that.
    pub(super) fn note(&self) {
        self.closed.fetch_add(1, Ordering::AcqRel);
    }

    /// Begins a look at the files, whose number is returned; `None`: none is closed.
    pub(super) fn begin_look(&self) -> Option<u64> {
        let closed = self.closed.load(Ordering::Acquire);
        (self.none_closed_at.load(Ordering::Acquire) != closed).then_some(closed)
    }

    /// Notes that the look of this number has found none. Those that were closed during it may
    /// not have been seen: they are looked for again.
    pub(super) fn found_none(&self, look: u64) {
        self.none_closed_at.store(look, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_closed_during_a_look_are_looked_for_again() {
        let files = ClosedFiles::default();
        assert_eq!(files.begin_look(), None);
        files.note();
        let look = files.begin_look().unwrap();
        files.note();
        files.found_none(look);
        let look = files.begin_look().unwrap();
        files.found_none(look);
        assert_eq!(files.begin_look(), None);
    }
}
