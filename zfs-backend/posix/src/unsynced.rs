//! Files with unstable writes, on file systems where the kernel tells a failed write-back
//! once per descriptor (errseq_t). A descriptor that is opened later may learn nothing of
//! it: another program has been told, or the kernel has dropped the inode, and the error
//! with it. So such a file is kept, with the descriptor that wrote it, until its data is
//! synced: by a COMMIT, or by a sync that begins here when room or descriptors are short.
//! If that sync fails, it counts as a loss, and clients write again.
//!
//! The number of files is bounded: where there is no room, a write must sync itself.
//! Nobody waits for a sync that begins here, except COMMITs and stable writes of the same
//! file.

use crate::descriptors::Reclaim;
use crate::losses::{Losses, is_loss};
use ahash::HashMap;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use zgate_store::{NodeHandle, StoreResult};

/// Most files of a store with unstable writes.
const MAX_UNSYNCED_FILES: usize = 4096;
/// Part of the cached objects that may be such files: each holds descriptors that only a
/// sync frees.
const UNSYNCED_PART: usize = 4;
/// Least number of such files that there is room for.
pub(crate) const LEAST_UNSYNCED_FILES: usize = 4;
/// Most files of a store that are being synced at a time because room or descriptors are
/// short: data workers that a slow disk may keep.
const MAX_FILES_BEING_SYNCED: usize = 2;

/// A file whose data may wait for a sync.
pub(crate) trait Syncable: Send + Sync + 'static {
    /// Returns the file's handle.
    fn handle(&self) -> &NodeHandle;

    /// Returns its unstable writes.
    fn writes(&self) -> &Writes;

    /// Has `work` run with the file on a thread that may wait for its disk; returns at
    /// once.
    fn detach(self: Arc<Self>, work: impl FnOnce(Arc<Self>) + Send + 'static);

    /// Syncs the file. Calls `told` with the result before those who wait for this sync
    /// go on.
    fn sync(&self, told: impl FnOnce(StoreResult<()>));
}

/// Unstable writes of a file.
#[derive(Debug, Default)]
pub(crate) struct Writes(Mutex<WritesState>);

#[derive(Debug, Default)]
struct WritesState {
    /// Number of those that run.
    running: usize,
    /// Number of those that have ended.
    ended: u64,
    /// Set while the file is kept because of them.
    is_kept: bool,
}

impl Writes {
    fn state(&self) -> MutexGuard<'_, WritesState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of writes that have ended: a sync that begins now covers them.
    pub(crate) fn ended(&self) -> u64 {
        self.state().ended
    }
}

/// An unstable write that runs; it ends when dropped. `None` where it is not recorded.
#[derive(Debug)]
pub(crate) struct UnstableWrite<'a>(Option<&'a Writes>);

impl UnstableWrite<'_> {
    /// A write in a file system that tells each sync its own error.
    pub(crate) fn unrecorded() -> Self {
        Self(None)
    }
}

impl Drop for UnstableWrite<'_> {
    fn drop(&mut self) {
        if let Some(writes) = self.0 {
            let mut state = writes.state();
            state.running -= 1;
            state.ended += 1;
        }
    }
}

struct Kept<F> {
    file: Arc<F>,
    /// Place in the order; `None` while a sync that began here has the file.
    place: Option<u64>,
}

struct Files<F> {
    kept: HashMap<NodeHandle, Kept<F>>,
    /// Files that may be synced next, by their places.
    order: BTreeMap<u64, NodeHandle>,
    next_place: u64,
    /// Number of files being synced because room or descriptors are short.
    being_synced: usize,
}

impl<F> Files<F> {
    fn add(&mut self, handle: NodeHandle, file: Arc<F>) {
        self.kept.insert(handle, Kept { file, place: None });
        self.line_up(handle);
    }

    /// Gives a file that has no place the last one.
    fn line_up(&mut self, handle: NodeHandle) {
        let Some(kept) = self.kept.get_mut(&handle).filter(|kept| kept.place.is_none()) else {
            return;
        };
        kept.place = Some(self.next_place);
        self.order.insert(self.next_place, handle);
        self.next_place += 1;
    }

    /// Takes the file with the first place, for a sync.
    fn take_first(&mut self) -> Option<Arc<F>> {
        let (_, handle) = self.order.pop_first()?;
        let kept = self.kept.get_mut(&handle)?;
        kept.place = None;
        Some(Arc::clone(&kept.file))
    }

    fn remove(&mut self, handle: &NodeHandle) -> Option<Arc<F>> {
        let Kept { file, place } = self.kept.remove(handle)?;
        if let Some(place) = place {
            self.order.remove(&place);
        }
        Some(file)
    }
}

/// Files of a store with unstable writes.
pub(crate) struct Unsynced<F> {
    /// A lock on the writes of a file comes before this one.
    files: Mutex<Files<F>>,
    most: usize,
    losses: Losses,
    /// Held while all of them are synced.
    syncing_all: Mutex<()>,
    me: Weak<Self>,
}

impl<F> Unsynced<F> {
    /// Creates the table of a store that caches up to `cached` objects.
    pub(crate) fn new(cached: usize, losses: Losses) -> Arc<Self> {
        let files = Files {
            kept: HashMap::default(),
            order: BTreeMap::new(),
            next_place: 0,
            being_synced: 0,
        };
        let most = (cached / UNSYNCED_PART).clamp(LEAST_UNSYNCED_FILES, MAX_UNSYNCED_FILES);
        Arc::new_cyclic(|me| Self {
            files: Mutex::new(files),
            most,
            losses,
            syncing_all: Mutex::default(),
            me: Weak::clone(me),
        })
    }

    fn files(&self) -> MutexGuard<'_, Files<F>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns all files.
    pub(crate) fn all(&self) -> Vec<Arc<F>> {
        self.files().kept.values().map(|kept| Arc::clone(&kept.file)).collect()
    }
}

impl<F: Syncable> Unsynced<F> {
    /// Begins an unstable write. `None` if there is no room for the file: the write must
    /// sync itself.
    pub(crate) fn begin<'a>(&self, file: &'a Arc<F>) -> Option<UnstableWrite<'a>> {
        let mut state = file.writes().state();
        let is_new = !state.is_kept;
        if is_new {
            state.is_kept = self.keep(file);
        }
        let is_kept = state.is_kept;
        if is_kept {
            state.running += 1;
        }
        drop(state);
        if is_new {
            self.make_room();
        }
        is_kept.then(|| UnstableWrite(Some(file.writes())))
    }

    fn keep(&self, file: &Arc<F>) -> bool {
        let mut files = self.files();
        let has_room = files.kept.len() < self.most;
        if has_room {
            files.add(*file.handle(), Arc::clone(file));
        }
        has_room
    }

    /// Begins syncs if more than half of the room is taken.
    fn make_room(&self) {
        let excess = self.files().kept.len().saturating_sub(self.most / 2);
        self.begin_syncs(excess);
    }

    /// Begins syncs of up to `most` files, those that came first, as far as the bound
    /// allows.
    fn begin_syncs(&self, most: usize) {
        let Some(me) = self.me.upgrade() else { return };
        for _ in 0..most {
            let file = {
                let mut files = self.files();
                if files.being_synced >= MAX_FILES_BEING_SYNCED {
                    return;
                }
                let Some(file) = files.take_first() else { return };
                files.being_synced += 1;
                file
            };
            let syncing = Syncing { of: Arc::clone(&me), handle: *file.handle() };
            file.detach(move |file| {
                syncing.of.sync(&file);
                drop(syncing);
            });
        }
    }

    /// Syncs a file. Each failure counts as a loss: nobody else is told of it.
    fn sync(&self, file: &F) {
        let before = file.writes().ended();
        file.sync(|synced| {
            if let Err(error) = synced {
                self.losses.count(error);
            }
            self.let_go_of_synced(file, before);
        });
    }

    /// Records the result of a sync of a file that a client asked for. It began when
    /// `before` unstable writes had ended.
    pub(crate) fn synced(&self, file: &F, before: u64, result: StoreResult<()>) {
        // After another error the data may still have to be written.
        if result.err().is_none_or(is_loss) {
            self.let_go_of_synced(file, before);
        }
    }

    /// Stops keeping a file, unless a write may have come after the sync began.
    fn let_go_of_synced(&self, file: &F, before: u64) {
        let mut state = file.writes().state();
        if state.is_kept && state.running == 0 && state.ended == before {
            state.is_kept = false;
            // The caller has the file as well: nothing is closed here.
            let removed = self.files().remove(file.handle());
            drop(removed);
        }
    }

    /// Stops keeping a file that has lost its last name; returns it if it was kept.
    pub(crate) fn forget(&self, handle: &NodeHandle) -> Option<Arc<F>> {
        let file = self.files().kept.get(handle).map(|kept| Arc::clone(&kept.file))?;
        let mut state = file.writes().state();
        state.is_kept = false;
        let removed = self.files().remove(handle);
        drop(state);
        drop(removed);
        Some(file)
    }

    /// Stops keeping all files, without a sync: their data may be lost without a report,
    /// so clients write it again.
    pub(crate) fn abandon(&self) {
        for file in self.all() {
            self.losses.renew();
            self.forget(file.handle());
        }
    }

    /// Syncs all files: those that are near on this thread, which may wait for their
    /// disk, the others one after the other on threads of theirs, without waiting for
    /// them.
    pub(crate) fn sync_all(&self, is_near: impl Fn(&F) -> bool) {
        let Some(me) = self.me.upgrade() else { return };
        // Further callers would only wait for the same disk.
        let _alone = match self.syncing_all.try_lock() {
            Ok(alone) => alone,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        let (near, far): (Vec<_>, Vec<_>) = self.all().into_iter().partition(|file| is_near(file));
        for file in near {
            self.sync(&file);
        }
        me.sync_in_turn(far);
    }

    fn sync_in_turn(self: Arc<Self>, mut files: Vec<Arc<F>>) {
        let Some(file) = files.pop() else { return };
        file.detach(move |file| {
            self.sync(&file);
            drop(file);
            self.sync_in_turn(files);
        });
    }
}

impl<F: Syncable> Reclaim for Unsynced<F> {
    /// Begins syncs: the descriptors of a file can be closed when its sync has ended.
    fn let_go_of_idle(&self, most: usize) -> usize {
        self.begin_syncs(most);
        0
    }
}

/// A file being synced because room or descriptors are short; ended when dropped. If
/// writes have come meanwhile, the file takes the last place.
struct Syncing<F> {
    of: Arc<Unsynced<F>>,
    handle: NodeHandle,
}

impl<F> Drop for Syncing<F> {
    fn drop(&mut self) {
        let mut files = self.of.files();
        files.being_synced -= 1;
        files.line_up(self.handle);
    }
}

#[cfg(test)]
mod tests;
