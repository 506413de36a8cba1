//! A file a client has open in a followed dataset.

use super::store::FollowedStore;
use std::sync::{Arc, Mutex, PoisonError};
use zgate_posix::PosixStore;
use zgate_store::file_store::{OpenAccess, OpenFile};
use zgate_store::{Caller, FileStore, NodeHandle, StoreError, StoreResult};

/// The store's file while it is open; how to open it again when it is not.
pub(super) struct FollowedFile {
    home: Arc<FollowedStore>,
    id: u64,
    who: Caller,
    node: NodeHandle,
    access: OpenAccess,
    file: Mutex<Option<OpenFile>>,
}

impl FollowedFile {
    pub(super) fn new(
        home: &Arc<FollowedStore>,
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

    /// Whether it has no name any more.
    pub(super) fn is_removed(&self) -> bool {
        self.slot().as_ref().is_some_and(PosixStore::is_removed)
    }

    /// The store's file, which is closed when the caller drops it and nobody
    /// uses it.
    pub(super) fn take(&self) -> Option<OpenFile> {
        self.slot().take()
    }

    /// Whether it is closed at the moment.
    pub(super) fn is_closed(&self) -> bool {
        self.slot().is_none()
    }

    /// What it is.
    pub(super) fn node(&self) -> NodeHandle {
        self.node
    }

    /// The store's file, opened again if need be. The rights were granted when
    /// the client opened it; a mode changed since does not take them away.
    pub(super) async fn opened(&self, store: &PosixStore) -> StoreResult<OpenFile> {
        if let Some(file) = &*self.slot() {
            return Ok(Arc::clone(file));
        }
        let access = OpenAccess { stateless: true, ..self.access };
        let file = match store.open(&self.who, &self.node, access).await {
            Err(StoreError::AccessDenied) => {
                store.open(&Caller::root(), &self.node, access).await?
            }
            opened => opened?,
        };
        Ok(Arc::clone(self.slot().get_or_insert(file)))
    }
}

impl Drop for FollowedFile {
    fn drop(&mut self) {
        self.home.forget(self.id);
    }
}

/// The store's file behind a client's; one that is another store's is left as
/// it is.
pub(super) async fn opened(file: &OpenFile, store: &PosixStore) -> StoreResult<OpenFile> {
    match file.downcast_ref::<FollowedFile>() {
        Some(file) => file.opened(store).await,
        None => Ok(Arc::clone(file)),
    }
}
