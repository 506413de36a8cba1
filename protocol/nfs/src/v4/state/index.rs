//! From a stateid to its open file, sharded, for READ and WRITE.

use super::ids::StateKey;
use super::lease::Lease;
use super::ongoing::{Awaited, Ongoing};
use crate::v4::cx::FileKey;
use crate::v4::wire::ClientId;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use zgate_store::file_store::OpenFile;

const SHARDS: usize = 64;

/// The files behind an open or a delegation; lock stateids share their open's.
pub struct IoCore {
    /// Whose.
    pub client: ClientId,
    /// The client's lease.
    pub lease: Arc<Lease>,
    /// Which file.
    pub file: FileKey,
    /// Whom the server saw open it; others must show rights of their own.
    pub uid: u32,
    read: Mutex<Option<OpenFile>>,
    write: Mutex<Changes>,
}

/// What changes of the file go through.
#[derive(Default)]
struct Changes {
    /// Open for writing, when granted.
    file: Option<OpenFile>,
    /// Held by each change that runs. `None` once the open or delegation is
    /// gone: no further change begins.
    ongoing: Option<Ongoing>,
}

impl IoCore {
    /// A core without files yet.
    #[must_use]
    pub fn new(client: ClientId, lease: Arc<Lease>, file: FileKey, uid: u32) -> Self {
        let changes = Changes { file: None, ongoing: Some(Ongoing::default()) };
        Self { client, lease, file, uid, read: Mutex::default(), write: Mutex::new(changes) }
    }

    fn changes(&self) -> MutexGuard<'_, Changes> {
        self.write.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Grants what `file` was opened for.
    pub fn grant(&self, read: bool, write: bool, file: &OpenFile) {
        if read {
            *self.read.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(file));
        }
        if write {
            self.changes().file = Some(Arc::clone(file));
        }
    }

    /// Takes rights back after OPEN_DOWNGRADE. What must have ended before the
    /// file may be changed by others comes back when writing was one of them.
    #[must_use]
    pub fn restrict(&self, read: bool, write: bool) -> Option<Awaited> {
        if !read {
            *self.read.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
        if write {
            return None;
        }
        let mut changes = self.changes();
        changes.file.take()?;
        let before = changes.ongoing.replace(Ongoing::default());
        before.map(|ongoing| ongoing.awaited())
    }

    /// Lets no further change begin: the open or delegation is gone. Returns
    /// what must have ended before the file is given to others: changes that
    /// storage still carries out.
    #[must_use]
    pub fn end(&self) -> Option<Awaited> {
        self.changes().ongoing.take().map(|ongoing| ongoing.awaited())
    }

    /// The file for reading, when granted.
    #[must_use]
    pub fn for_read(&self) -> Option<OpenFile> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether writing is granted.
    #[must_use]
    pub fn allows_write(&self) -> bool {
        self.changes().file.is_some()
    }

    /// Begins a change: the file for writing, when granted, and what to hold
    /// until the change has ended. `None` when the open or delegation is gone.
    #[must_use]
    pub fn begin_change(&self) -> Option<(Option<OpenFile>, Ongoing)> {
        let changes = self.changes();
        let ongoing = changes.ongoing.clone()?;
        Some((changes.file.clone(), ongoing))
    }
}

/// A stateid's entry.
pub struct IoHandle {
    /// Its files.
    pub core: Arc<IoCore>,
    seqid: AtomicU32,
}

impl IoHandle {
    /// The version clients should hold.
    #[must_use]
    pub fn seqid(&self) -> u32 {
        self.seqid.load(Ordering::Acquire)
    }
}

type Shard = RwLock<HashMap<StateKey, Arc<IoHandle>>>;

/// All stateids that allow I/O.
pub struct IoIndex {
    shards: Box<[Shard]>,
}

impl Default for IoIndex {
    fn default() -> Self {
        Self { shards: (0..SHARDS).map(|_| Shard::default()).collect() }
    }
}

impl IoIndex {
    fn shard(&self, key: StateKey) -> &Shard {
        &self.shards[usize::from(key.0[11]) % SHARDS]
    }

    /// Enters a stateid or moves it to a new version.
    pub fn publish(&self, key: StateKey, seqid: u32, core: &Arc<IoCore>) {
        let mut shard = self.shard(key).write().unwrap_or_else(PoisonError::into_inner);
        match shard.get(&key) {
            Some(handle) => handle.seqid.store(seqid, Ordering::Release),
            None => {
                let handle = IoHandle { core: Arc::clone(core), seqid: AtomicU32::new(seqid) };
                shard.insert(key, Arc::new(handle));
            }
        }
    }

    /// Forgets a stateid.
    pub fn remove(&self, key: StateKey) {
        self.shard(key).write().unwrap_or_else(PoisonError::into_inner).remove(&key);
    }

    /// Finds a stateid.
    #[must_use]
    pub fn get(&self, key: StateKey) -> Option<Arc<IoHandle>> {
        self.shard(key).read().unwrap_or_else(PoisonError::into_inner).get(&key).cloned()
    }
}
