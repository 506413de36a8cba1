//! Lookup of the open file of a stateid, without a global lock, for READ and
//! WRITE.

use super::ids::StateKey;
use super::lease::Lease;
use super::pending_work::{PendingWork, WorkGuard};
use super::released::{self, Released};
use crate::namespace::{ExportId, Object};
use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use zgate_nfs_wire::v4::ClientId;
use zgate_store::NodeHandle;
use zgate_store::file_store::OpenFile;

/// A file that is open, and the user for whom; other users need access rights of
/// their own.
#[derive(Clone)]
pub struct Granted {
    /// The file.
    pub file: OpenFile,
    /// The user. An open that another user has upgraded has one for each direction.
    pub uid: u32,
}

/// The open files of an open or a delegation; lock stateids share those of
/// their open.
pub struct IoCore {
    /// The client.
    pub client: ClientId,
    /// The client's lease.
    pub lease: Arc<Lease>,
    /// The export.
    export: ExportId,
    /// The file.
    node: NodeHandle,
    read: Mutex<Option<Granted>>,
    write: Mutex<Changes>,
}

/// State for changes of the file.
#[derive(Default)]
struct Changes {
    /// The file open for writing, if granted.
    file: Option<Granted>,
    /// Held by each change in progress. `None` once the open or delegation is
    /// removed: no further change begins.
    guard: Option<WorkGuard>,
}

impl IoCore {
    /// A core without open files.
    #[must_use]
    pub fn new(
        client: ClientId,
        lease: Arc<Lease>,
        (export, node): (ExportId, NodeHandle),
    ) -> Self {
        let changes = Changes { file: None, guard: Some(WorkGuard::default()) };
        Self { client, lease, export, node, read: Mutex::default(), write: Mutex::new(changes) }
    }

    /// True if it is of this object, by its handle.
    #[must_use]
    pub fn is_of(&self, object: &Object) -> bool {
        self.export == object.export.id && self.node == object.node
    }

    fn changes(&self) -> MutexGuard<'_, Changes> {
        self.write.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reading(&self) -> MutexGuard<'_, Option<Granted>> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Grants the access for which the file was opened, and releases the files of an
    /// earlier open that had it.
    pub fn grant(&self, read: bool, write: bool, granted: &Granted, released: &mut Released) {
        let before = [
            if read { self.reading().replace(granted.clone()) } else { None },
            if write { self.changes().file.replace(granted.clone()) } else { None },
        ];
        for granted in before.into_iter().flatten() {
            released.add(granted.file);
        }
    }

    /// Revokes rights after OPEN_DOWNGRADE, and releases their files. If writing is
    /// revoked, returns the work that must end before other clients may change the file.
    #[must_use]
    pub fn restrict(
        &self,
        read: bool,
        write: bool,
        released: &mut Released,
    ) -> Option<PendingWork> {
        if !read && let Some(granted) = self.reading().take() {
            released.add(granted.file);
        }
        if write {
            return None;
        }
        let mut changes = self.changes();
        released.add(changes.file.take()?.file);
        let before = changes.guard.replace(WorkGuard::default());
        before.map(|guard| guard.pending())
    }

    /// Stops further changes: the open or delegation is removed. Returns the
    /// work that must end before the file is granted to others: changes that
    /// the backend has not completed.
    #[must_use]
    pub fn end(&self) -> Option<PendingWork> {
        self.changes().guard.take().map(|guard| guard.pending())
    }

    /// The file for reading, if granted.
    #[must_use]
    pub fn for_read(&self) -> Option<Granted> {
        self.reading().clone()
    }

    /// The user for whom writing is granted, if it is.
    #[must_use]
    pub fn writer(&self) -> Option<u32> {
        self.changes().file.as_ref().map(|granted| granted.uid)
    }

    /// Begins a change: returns the file for writing, if granted, and a guard
    /// to hold until the end of the change. `None` if the open or delegation is
    /// removed.
    #[must_use]
    pub fn begin_change(&self) -> Option<(Option<Granted>, WorkGuard)> {
        let changes = self.changes();
        let guard = changes.guard.clone()?;
        Some((changes.file.clone(), guard))
    }
}

impl Drop for IoCore {
    fn drop(&mut self) {
        released::check_unlocked();
    }
}

/// A stateid's entry.
pub struct IoHandle {
    /// Its files.
    pub core: Arc<IoCore>,
    seqid: AtomicU32,
}

impl IoHandle {
    /// The current seqid of the stateid.
    #[must_use]
    pub fn seqid(&self) -> u32 {
        self.seqid.load(Ordering::Acquire)
    }
}

/// All stateids that allow I/O.
#[derive(Default)]
pub struct IoIndex(DashMap<StateKey, Arc<IoHandle>, ahash::RandomState>);

impl IoIndex {
    /// Adds a stateid or updates its seqid.
    pub fn publish(&self, key: StateKey, seqid: u32, core: &Arc<IoCore>) {
        match self.0.entry(key) {
            Entry::Occupied(entry) => entry.get().seqid.store(seqid, Ordering::Release),
            Entry::Vacant(entry) => {
                let handle = IoHandle { core: Arc::clone(core), seqid: AtomicU32::new(seqid) };
                entry.insert(Arc::new(handle));
            }
        }
    }

    /// Removes a stateid.
    pub fn remove(&self, key: StateKey) {
        self.0.remove(&key);
    }

    /// Finds a stateid.
    #[must_use]
    pub fn get(&self, key: StateKey) -> Option<Arc<IoHandle>> {
        self.0.get(&key).map(|handle| Arc::clone(&handle))
    }
}
