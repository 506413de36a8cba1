//! Store of an export that is a dataset. A dataset with open files cannot be
//! unmounted, renamed or destroyed, so this store closes everything after a few
//! idle seconds, or at once on request. Files that clients have open are opened
//! again by their handles when they are used. While the dataset is away,
//! clients are told to retry later.

use super::file::{ClosedFiles, DatasetFile};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockWriteGuard, Weak};
use std::time::{Duration, Instant};
use zgate_control::DatasetName;
use zgate_io::IoEngine;
use zgate_posix::{
    Asleep, Identities, Losses, MountedDevices, OpenError, PosixOptions, PosixStore,
};
use zgate_store::attr::FsId;
use zgate_store::file_store::{OpenAccess, OpenFile, StoreTraits};
use zgate_store::{Attr, Caller, FileStore, NodeHandle, StoreError, StoreResult};

/// Error for clients while the dataset is away: NFS4ERR_DELAY, NFS3ERR_JUKEBOX.
/// Clients retry.
const AWAY: StoreError = StoreError::OutOfResources;
/// Number of idle checks after which everything is closed.
const IDLE_LOOKS: usize = 3;
/// Pause between checks for running requests.
const PAUSE: Duration = Duration::from_millis(10);

/// State of the tree.
enum Mount {
    /// Open.
    Open(Arc<PosixStore>, PathBuf),
    /// Closed; opened there on the next request.
    Closed(PathBuf),
    /// Not mounted at the moment, or held.
    Away,
}

/// A dataset that is exported, wherever it is mounted.
pub(crate) struct DatasetTree {
    root: NodeHandle,
    traits: StoreTraits,
    fsid: FsId,
    identities: Identities,
    options: PosixOptions,
    /// Name that its mount must have; it changes with a rename.
    name: Mutex<Option<String>>,
    /// Set while something else is mounted at its path.
    displaced: AtomicBool,
    place: RwLock<Mount>,
    in_flight: AtomicUsize,
    /// Number of trees and files that are being closed, or looked at before.
    closing: Arc<AtomicUsize>,
    /// Engine for the dataset's storage.
    engine: IoEngine,
    used: AtomicBool,
    idle_looks: AtomicUsize,
    files: Mutex<HashMap<u64, Weak<DatasetFile>>>,
    /// Tells whether some of them may be closed.
    closed: ClosedFiles,
    next_file: AtomicU64,
}

/// A running request.
pub(super) struct Visit<'a> {
    home: &'a DatasetTree,
    /// Dropped before the count ends: the last request closes a tree that was put away.
    pub(super) store: Arc<PosixStore>,
    _counted: Counted<'a>,
}

/// Counts a request, also before it is known whether there is a tree for it.
struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Self(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Counts a tree or file that is being closed, or looked at before.
struct Closing(Arc<AtomicUsize>);

impl Closing {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(count))
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Visit<'_> {
    /// Opens a client's closed file before its last name is removed: afterwards
    /// that would be impossible. While this request runs, nothing is closed for
    /// idleness.
    pub(super) async fn open_before_removal(&self, dir: &NodeHandle, name: &[u8]) {
        let closed = self.home.closed_files();
        if closed.is_empty() {
            return;
        }
        let Ok(node) = self.store.lookup(&Caller::root(), dir, name).await else { return };
        for file in closed.iter().filter(|file| file.node() == node.handle) {
            // A file that cannot be opened is stale in any case.
            let _ = file.opened(&self.store).await;
        }
    }
}

impl DatasetTree {
    /// Opens the dataset that is mounted at `path`.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub(crate) fn open(path: &Path, options: PosixOptions) -> Result<Arc<Self>, OpenError> {
        let (losses, devices) = (Losses::default(), MountedDevices::default());
        let (asleep, freeing) = (Asleep::default(), Arc::default());
        let options = PosixOptions { losses, devices, asleep, freeing, ..options };
        let store = PosixStore::open(path, options.clone())?;
        Ok(Arc::new(Self {
            root: store.root(),
            traits: store.traits(),
            fsid: store.fsid(),
            identities: store.identities(),
            name: Mutex::new(options.dataset.clone()),
            displaced: AtomicBool::new(false),
            options,
            engine: store.engine().clone(),
            closing: Arc::default(),
            place: RwLock::new(Mount::Open(store, path.to_owned())),
            in_flight: AtomicUsize::new(0),
            used: AtomicBool::new(true),
            idle_looks: AtomicUsize::new(0),
            files: Mutex::default(),
            closed: ClosedFiles::default(),
            next_file: AtomicU64::new(0),
        }))
    }

    /// Returns whether its objects can be found again after it was closed:
    /// handles that are not the kernel's are valid only while their objects are
    /// open.
    pub(crate) fn can_return(&self) -> bool {
        self.traits.persistent_handles || self.is_open()
    }

    fn is_open(&self) -> bool {
        matches!(*self.place.read().unwrap_or_else(PoisonError::into_inner), Mount::Open(..))
    }

    /// Returns one word for `zgate exports`.
    pub(crate) fn condition(&self) -> &'static str {
        match *self.place.read().unwrap_or_else(PoisonError::into_inner) {
            Mount::Open(..) => "in-use",
            Mount::Closed(_) => "idle",
            Mount::Away => "away",
        }
    }

    fn place(&self) -> RwLockWriteGuard<'_, Mount> {
        self.place.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn files(&self) -> MutexGuard<'_, HashMap<u64, Weak<DatasetFile>>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the name that it has now.
    pub(crate) fn set_name(&self, name: &DatasetName) {
        let mut own = self.name.lock().unwrap_or_else(PoisonError::into_inner);
        *own = Some(name.to_string());
    }

    /// Records that it is mounted at `path` now. Returns whether it was away: what was done to
    /// it meanwhile is not known, and clients send again what they have not committed.
    pub(crate) fn found_at(&self, path: &Path) -> bool {
        let mut place = self.place();
        match &*place {
            Mount::Open(_, at) | Mount::Closed(at) if at == path => false,
            _ => {
                let was_away = matches!(*place, Mount::Away);
                if was_away {
                    // Before any request finds it.
                    self.content_replaced();
                }
                // Open files stay valid: a mount may be moved.
                let old = std::mem::replace(&mut *place, Mount::Closed(path.to_owned()));
                drop(place);
                self.close(old, Vec::new());
                was_away
            }
        }
    }

    /// Notes that its content may have been replaced: see [`Losses::content_replaced`].
    pub(crate) fn content_replaced(&self) {
        self.options.losses.content_replaced();
    }

    /// Returns the name that its mount has.
    pub(crate) fn name(&self) -> Option<String> {
        self.name.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns where it is mounted; none while it is away.
    pub(crate) fn mounted_at(&self) -> Option<PathBuf> {
        match &*self.place.read().unwrap_or_else(PoisonError::into_inner) {
            Mount::Open(_, at) | Mount::Closed(at) => Some(at.clone()),
            Mount::Away => None,
        }
    }

    /// Closes everything after some time without requests, once files with unstable
    /// writes are synced. Call it about once a second, on one thread; it waits for no storage.
    pub(crate) fn look(self: &Arc<Self>) {
        // Until a check has ended, `used` tells whether a request came after it began.
        if self.closing.load(Ordering::Acquire) != 0 {
            return;
        }
        if self.used.swap(false, Ordering::AcqRel) {
            self.idle_looks.store(0, Ordering::Relaxed);
            return;
        }
        if self.idle_looks.fetch_add(1, Ordering::Relaxed) + 1 < IDLE_LOOKS
            || !self.traits.persistent_handles
            || self.in_flight.load(Ordering::Acquire) != 0
            || !self.is_open()
        {
            return;
        }
        let files: Vec<_> = self.files().values().filter_map(Weak::upgrade).collect();
        let (me, closing) = (Arc::clone(self), Closing::new(&self.closing));
        // A file without a name could not be opened again. The check may wait for storage, so
        // it runs on a worker of it, and without the lock that requests take.
        self.engine.detach(move || {
            let has_removed = files.iter().any(|file| file.is_removed());
            drop(files);
            if !has_removed {
                me.close_unused();
            }
            drop((me, closing));
        });
    }

    /// Closes everything unless a request came since the look that found none.
    fn close_unused(&self) {
        let mut place = self.place();
        let Mount::Open(store, path) = &*place else { return };
        // No request enters under the lock; one that ran meanwhile may have
        // removed a file.
        if self.in_flight.load(Ordering::Acquire) != 0 || self.used.load(Ordering::Acquire) {
            return;
        }
        // Closed before its files are synced, it would have clients write their data again.
        // A later check finds them synced.
        if store.begin_syncs() {
            return;
        }
        let closed = Mount::Closed(path.clone());
        let old = std::mem::replace(&mut *place, closed);
        let files = self.take_files();
        drop(place);
        self.close(old, files);
    }

    /// Closes a tree and files on a worker of their storage, so that no other
    /// task waits if the storage hangs.
    fn close(&self, place: Mount, files: Vec<OpenFile>) {
        let closing = Closing::new(&self.closing);
        self.engine.detach(move || {
            drop((place, files));
            drop(closing);
        });
    }

    /// Closes everything now and tells clients to retry, until
    /// [`Self::found_at`]. Waits for running requests, at most `patience`;
    /// false if some have not ended.
    pub(crate) fn hold(&self, patience: Duration) -> bool {
        let mut place = self.place();
        let old = std::mem::replace(&mut *place, Mount::Away);
        let files = self.take_files();
        drop(place);
        self.close(old, files);
        self.settled(patience)
    }

    /// Returns whether nothing uses it any more after [`Self::hold`]. Waits for running
    /// requests, at most `patience`; false if it is served again.
    pub(crate) fn is_free(&self, patience: Duration) -> bool {
        let is_away =
            || matches!(*self.place.read().unwrap_or_else(PoisonError::into_inner), Mount::Away);
        is_away() && self.settled(patience) && is_away()
    }

    /// Closes everything now; the next request opens it again. False if running
    /// requests have not ended within `patience`.
    pub(crate) fn let_go(&self, patience: Duration) -> bool {
        let mut place = self.place();
        let Mount::Open(store, path) = &*place else { return true };
        if !self.traits.persistent_handles {
            let (store, closing) = (Arc::clone(store), Closing::new(&self.closing));
            drop(place);
            self.engine.detach(move || {
                store.release();
                drop(closing);
            });
            return self.settled(patience);
        }
        let closed = Mount::Closed(path.clone());
        let old = std::mem::replace(&mut *place, closed);
        let files = self.take_files();
        drop(place);
        self.close(old, files);
        self.settled(patience)
    }

    /// Returns the engine for the dataset's storage.
    #[cfg(test)]
    pub(super) fn engine(&self) -> &IoEngine {
        &self.engine
    }

    /// Returns whether running requests and closing ended within `patience`.
    pub(super) fn settled(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        // In this order: a request, or a file that is closed, may leave a file or the tree to a
        // worker before it ends.
        let left = || {
            self.in_flight.load(Ordering::Acquire)
                + self.closing.load(Ordering::Acquire)
                + self.options.freeing.load(Ordering::Acquire)
        };
        while left() != 0 {
            if Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(PAUSE);
        }
        true
    }

    fn take_files(&self) -> Vec<OpenFile> {
        let files: Vec<_> = self.files().values().filter_map(Weak::upgrade).collect();
        let taken: Vec<_> = files.iter().filter_map(|file| file.take()).collect();
        if !taken.is_empty() {
            self.closed.note();
        }
        taken
    }

    /// Closes a file that a request has opened in a store that was put away meanwhile, and that
    /// would keep the dataset busy. It is opened again when it is used.
    pub(super) fn close_unless_current(&self, file: &DatasetFile, store: &PosixStore) {
        let is_current = match &*self.place.read().unwrap_or_else(PoisonError::into_inner) {
            Mount::Open(open, _) => std::ptr::eq(Arc::as_ptr(open), store),
            Mount::Closed(_) | Mount::Away => false,
        };
        if !is_current && let Some(file) = file.take() {
            self.closed.note();
            self.close(Mount::Away, vec![file]);
        }
    }

    fn closed_files(&self) -> Vec<Arc<DatasetFile>> {
        let Some(looked) = self.closed.begin_look() else { return Vec::new() };
        let mut files: Vec<_> = self.files().values().filter_map(Weak::upgrade).collect();
        files.retain(|file| file.is_closed());
        if files.is_empty() {
            self.closed.found_none(looked);
        }
        files
    }

    /// Returns the tree for one request.
    pub(super) async fn enter(&self) -> StoreResult<Visit<'_>> {
        let counted = Counted::new(&self.in_flight);
        self.used.store(true, Ordering::Release);
        let path = match &*self.place.read().unwrap_or_else(PoisonError::into_inner) {
            Mount::Open(store, _) => {
                return Ok(Visit { home: self, store: Arc::clone(store), _counted: counted });
            }
            Mount::Closed(path) => path.clone(),
            Mount::Away => return Err(AWAY),
        };
        let store = self.open_again(path).await?;
        Ok(Visit { home: self, store, _counted: counted })
    }

    /// Returns the tree for the sync of a change that another request has just made. If it
    /// was put away in between, nobody can say whether the change lasts; but a client that
    /// is told to try again would repeat it, and find that the name exists or is gone.
    pub(super) async fn enter_after_change(&self) -> StoreResult<Visit<'_>> {
        self.enter().await.map_err(|_| StoreError::Io)
    }

    /// Opens the tree at `path`, if it is (still) mounted there.
    async fn open_again(&self, path: PathBuf) -> StoreResult<Arc<PosixStore>> {
        let options = PosixOptions { dataset: self.name(), ..self.options.clone() };
        let at = path.clone();
        let opened = self.engine.run(move || PosixStore::open(&at, options)).await;
        let store = match opened {
            Ok(Ok(store)) if store.root() == self.root => store,
            Ok(Err(error)) => {
                self.report(&path, &error);
                return Err(AWAY);
            }
            // Another file system is mounted there, or none.
            _ => return Err(AWAY),
        };
        self.displaced.store(false, Ordering::Relaxed);
        let mut place = self.place();
        match &*place {
            Mount::Open(other, _) => return Ok(Arc::clone(other)),
            Mount::Closed(wanted) if *wanted == path => {}
            _ => return Err(AWAY),
        }
        *place = Mount::Open(Arc::clone(&store), path);
        Ok(store)
    }

    /// Reports why clients wait: once as a warning if something else is mounted at
    /// the path, which does not end by itself.
    fn report(&self, path: &Path, error: &OpenError) {
        let is_displaced = matches!(error, OpenError::OtherMount { .. });
        if is_displaced && !self.displaced.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                %error,
                "clients of a dataset wait until it is mounted at a mount point that nothing else \
                 has"
            );
        } else {
            tracing::debug!(path = %path.display(), %error, "a dataset is not available");
        }
    }

    /// Returns the loss counter, see [`zgate_store::FileStore::losses`]; it
    /// continues when the store is opened again.
    pub(super) fn losses(&self) -> u64 {
        self.options.losses.generation()
    }

    /// Returns the properties known without the file system.
    pub(super) fn known(&self) -> (NodeHandle, StoreTraits, FsId) {
        (self.root, self.traits, self.fsid)
    }

    /// Returns attributes that were read a moment ago, see [`FileStore::recent_attr`]; none
    /// while the tree is not open.
    pub(super) fn recent_attr(&self, node: &NodeHandle) -> Option<Attr> {
        let place = self.place.read().unwrap_or_else(PoisonError::into_inner);
        let Mount::Open(store, _) = &*place else { return None };
        self.used.store(true, Ordering::Release);
        store.recent_attr(node)
    }

    /// Returns the identity of the object of a handle, see
    /// [`FileStore::identity`].
    pub(super) fn identity(&self, node: &NodeHandle) -> Option<NodeHandle> {
        self.identities.of(node)
    }

    /// Registers a file that a request has opened for a client in `store`.
    pub(super) fn adopt(
        self: &Arc<Self>,
        who: &Caller,
        node: NodeHandle,
        access: OpenAccess,
        (store, file): (&PosixStore, OpenFile),
    ) -> OpenFile {
        let id = self.next_file.fetch_add(1, Ordering::Relaxed);
        let file = Arc::new(DatasetFile::new(self, id, who, node, access, file));
        self.files().insert(id, Arc::downgrade(&file));
        self.close_unless_current(&file, store);
        file
    }

    pub(super) fn forget(&self, id: u64) {
        self.files().remove(&id);
    }
}

impl std::fmt::Debug for DatasetTree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DatasetTree({})", self.condition())
    }
}
