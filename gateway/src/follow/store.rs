//! The store of an export that is a dataset. Nobody can unmount, rename or
//! destroy a dataset somebody has files of open, so this one lets go: of
//! everything after a few idle seconds, at once when it is told to. What
//! clients have open is opened again by its handle when they come back to it.
//! While the dataset is away, they are told to try again later.

use super::file::FollowedFile;
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockWriteGuard, Weak};
use std::time::{Duration, Instant};
use zgate_io::IoEngine;
use zgate_posix::{Losses, PosixOptions, PosixStore};
use zgate_store::attr::FsId;
use zgate_store::file_store::{OpenAccess, OpenFile, StoreTraits};
use zgate_store::{Caller, FileStore, NodeHandle, StoreError, StoreResult};

/// What clients hear while the dataset is away: NFS4ERR_DELAY,
/// NFS3ERR_JUKEBOX. They ask again.
const AWAY: StoreError = StoreError::OutOfResources;
/// Idle for so many looks, everything is let go.
const IDLE_LOOKS: usize = 3;
/// The pause while requests under way are waited for.
const PAUSE: Duration = Duration::from_millis(10);

/// Where the tree is.
enum Place {
    /// At hand.
    Open(Arc<PosixStore>, PathBuf),
    /// Opened there when somebody asks.
    Closed(PathBuf),
    /// Nowhere at the moment, or held back.
    Away,
}

/// A dataset that is exported, wherever it is mounted.
pub(crate) struct FollowedStore {
    root: NodeHandle,
    traits: StoreTraits,
    fsid: FsId,
    options: PosixOptions,
    place: RwLock<Place>,
    in_flight: AtomicUsize,
    /// Trees and files that are being closed.
    closing: Arc<AtomicUsize>,
    /// Works for the storage the dataset lies on.
    engine: IoEngine,
    used: AtomicBool,
    idle_looks: AtomicUsize,
    files: Mutex<HashMap<u64, Weak<FollowedFile>>>,
    /// Some of them may be closed.
    some_closed: AtomicBool,
    next_file: AtomicU64,
}

/// A request under way.
pub(super) struct Visit<'a> {
    home: &'a FollowedStore,
    pub(super) store: Arc<PosixStore>,
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        self.home.in_flight.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Counts a request before it is known whether there is a tree for it.
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

/// Counts something that is being closed.
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
    /// A client's open file lives on when its last name goes: it has to be
    /// open by then. While this request runs nothing is let go of for idleness.
    pub(super) async fn open_before_removal(&self, dir: &NodeHandle, name: &[u8]) {
        let closed = self.home.closed_files();
        if closed.is_empty() {
            return;
        }
        let Ok(node) = self.store.lookup(&Caller::root(), dir, name).await else { return };
        for file in closed.iter().filter(|file| file.node() == node.handle) {
            // One that cannot be opened is stale, as it is anyway.
            let _ = file.opened(&self.store).await;
        }
    }
}

impl FollowedStore {
    /// Opens the dataset that is mounted at `path`.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub(crate) fn open(path: &Path, options: PosixOptions) -> io::Result<Arc<Self>> {
        let options = PosixOptions { losses: Losses::default(), ..options };
        let store = PosixStore::open(path, options.clone())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error.to_string()))?;
        Ok(Arc::new(Self {
            root: store.root(),
            traits: store.traits(),
            fsid: store.fsid(),
            options,
            engine: store.engine().clone(),
            closing: Arc::default(),
            place: RwLock::new(Place::Open(store, path.to_owned())),
            in_flight: AtomicUsize::new(0),
            used: AtomicBool::new(true),
            idle_looks: AtomicUsize::new(0),
            files: Mutex::default(),
            some_closed: AtomicBool::new(false),
            next_file: AtomicU64::new(0),
        }))
    }

    /// Whether it can be found again once it has been let go of: handles
    /// without the kernel's help last only as long as what they name is open.
    pub(crate) fn can_return(&self) -> bool {
        self.traits.persistent_handles
            || matches!(*self.place.read().unwrap_or_else(PoisonError::into_inner), Place::Open(..))
    }

    /// One word for `zgate exports`.
    pub(crate) fn condition(&self) -> &'static str {
        match *self.place.read().unwrap_or_else(PoisonError::into_inner) {
            Place::Open(..) => "in-use",
            Place::Closed(_) => "idle",
            Place::Away => "away",
        }
    }

    fn place(&self) -> RwLockWriteGuard<'_, Place> {
        self.place.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn files(&self) -> MutexGuard<'_, HashMap<u64, Weak<FollowedFile>>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It is mounted there now.
    pub(crate) fn found_at(&self, path: &Path) {
        let mut place = self.place();
        match &*place {
            Place::Open(_, at) | Place::Closed(at) if at == path => {}
            _ => {
                // Files that are open stay good: a mount may be moved.
                let old = std::mem::replace(&mut *place, Place::Closed(path.to_owned()));
                drop(place);
                self.close(old, Vec::new());
            }
        }
    }

    /// Lets go of everything after a while without requests. To be called
    /// about once a second.
    pub(crate) fn look(&self) {
        if self.used.swap(false, Ordering::AcqRel) {
            self.idle_looks.store(0, Ordering::Relaxed);
            return;
        }
        if self.idle_looks.fetch_add(1, Ordering::Relaxed) + 1 < IDLE_LOOKS
            || !self.traits.persistent_handles
        {
            return;
        }
        // A file that lost its name could not be opened again. The storage is
        // asked, which may take its time: without the lock that requests take.
        if self.has_removed_files() {
            return;
        }
        let mut place = self.place();
        let Place::Open(_, path) = &*place else { return };
        // Under the lock nobody enters; whoever did meanwhile may have removed
        // one.
        if self.in_flight.load(Ordering::Acquire) != 0 || self.used.load(Ordering::Acquire) {
            return;
        }
        let closed = Place::Closed(path.clone());
        let old = std::mem::replace(&mut *place, closed);
        let files = self.take_files();
        drop(place);
        self.close(old, files);
    }

    /// Closes a tree and files on a worker of their storage: nobody else waits
    /// for it, should it not answer.
    fn close(&self, place: Place, files: Vec<OpenFile>) {
        let closing = Closing::new(&self.closing);
        self.engine.detach(move || {
            drop((place, files));
            drop(closing);
        });
    }

    /// Lets go of everything now and answers clients that they may try again,
    /// until [`Self::found_at`]. Waits for requests under way, at most
    /// `patience`; false when some have not ended.
    pub(crate) fn hold(&self, patience: Duration) -> bool {
        let mut place = self.place();
        let old = std::mem::replace(&mut *place, Place::Away);
        let files = self.take_files();
        drop(place);
        self.close(old, files);
        self.settled(patience)
    }

    /// Lets go of everything now; whoever comes opens it again. False when
    /// requests under way have not ended within `patience`.
    pub(crate) fn let_go(&self, patience: Duration) -> bool {
        let mut place = self.place();
        let Place::Open(store, path) = &*place else { return true };
        if !self.traits.persistent_handles {
            let (store, closing) = (Arc::clone(store), Closing::new(&self.closing));
            drop(place);
            self.engine.detach(move || {
                store.release();
                drop(closing);
            });
            return self.settled(patience);
        }
        let closed = Place::Closed(path.clone());
        let old = std::mem::replace(&mut *place, closed);
        let files = self.take_files();
        drop(place);
        self.close(old, files);
        self.settled(patience)
    }

    /// Whether requests under way and closing have ended within `patience`.
    pub(super) fn settled(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        while self.in_flight.load(Ordering::Acquire) + self.closing.load(Ordering::Acquire) != 0 {
            if Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(PAUSE);
        }
        true
    }

    fn has_removed_files(&self) -> bool {
        let files: Vec<_> = self.files().values().filter_map(Weak::upgrade).collect();
        files.iter().any(|file| file.is_removed())
    }

    fn take_files(&self) -> Vec<OpenFile> {
        let files: Vec<_> = self.files().values().filter_map(Weak::upgrade).collect();
        let taken: Vec<_> = files.iter().filter_map(|file| file.take()).collect();
        if !taken.is_empty() {
            self.some_closed.store(true, Ordering::Release);
        }
        taken
    }

    fn closed_files(&self) -> Vec<Arc<FollowedFile>> {
        if !self.some_closed.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut files: Vec<_> = self.files().values().filter_map(Weak::upgrade).collect();
        files.retain(|file| file.is_closed());
        if files.is_empty() {
            self.some_closed.store(false, Ordering::Release);
        }
        files
    }

    /// The tree, for one request.
    pub(super) async fn enter(&self) -> StoreResult<Visit<'_>> {
        let counted = Counted::new(&self.in_flight);
        self.used.store(true, Ordering::Release);
        let path = match &*self.place.read().unwrap_or_else(PoisonError::into_inner) {
            Place::Open(store, _) => {
                let store = Arc::clone(store);
                std::mem::forget(counted);
                return Ok(Visit { home: self, store });
            }
            Place::Closed(path) => path.clone(),
            Place::Away => return Err(AWAY),
        };
        let store = self.open_again(path).await?;
        std::mem::forget(counted);
        Ok(Visit { home: self, store })
    }

    /// Opens the tree at `path`, if it is (still) what is mounted there.
    async fn open_again(&self, path: PathBuf) -> StoreResult<Arc<PosixStore>> {
        let (options, at) = (self.options.clone(), path.clone());
        let opened = self.engine.run(move || PosixStore::open(&at, options)).await;
        let store = match opened {
            Ok(Ok(store)) if store.root() == self.root => store,
            Ok(Err(error)) => {
                tracing::debug!(path = %path.display(), %error, "a dataset is not there");
                return Err(AWAY);
            }
            // Something else is mounted there, or nothing at all.
            _ => return Err(AWAY),
        };
        let mut place = self.place();
        match &*place {
            Place::Open(other, _) => return Ok(Arc::clone(other)),
            Place::Closed(wanted) if *wanted == path => {}
            _ => return Err(AWAY),
        }
        *place = Place::Open(Arc::clone(&store), path);
        Ok(store)
    }

    /// See [`zgate_store::FileStore::losses`]; counted on when it is opened again.
    pub(super) fn losses(&self) -> u64 {
        self.options.losses.generation()
    }

    /// What is known without the tree.
    pub(super) fn known(&self) -> (NodeHandle, StoreTraits, FsId) {
        (self.root, self.traits, self.fsid)
    }

    /// Takes note of a file opened for a client.
    pub(super) fn adopt(
        self: &Arc<Self>,
        who: &Caller,
        node: NodeHandle,
        access: OpenAccess,
        file: OpenFile,
    ) -> OpenFile {
        let id = self.next_file.fetch_add(1, Ordering::Relaxed);
        let file = Arc::new(FollowedFile::new(self, id, who, node, access, file));
        self.files().insert(id, Arc::downgrade(&file));
        file
    }

    pub(super) fn forget(&self, id: u64) {
        self.files().remove(&id);
    }
}

impl std::fmt::Debug for FollowedStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FollowedStore({})", self.condition())
    }
}
