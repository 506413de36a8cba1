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
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use zgate_store::{NodeHandle, StoreResult};

/// Most files of a store with unstable writes.
const MAX_UNSYNCED_FILES: usize = 4096;
/// Part of the cached objects that may be such files: each holds descriptors that only a
/// sync frees.
const UNSYNCED_PART: usize = 4;
/// Least number of such files that there is room for.
pub(crate) const LEAST_UNSYNCED_FILES: usize = 4;
/// Most files of a store and a disk that are being synced at a time because room or
/// descriptors are short.
const MAX_FILES_BEING_SYNCED: usize = 2;

/// A file whose data may wait for a sync.
pub(crate) trait Syncable: Send + Sync + 'static {
    /// Returns the file's handle.
    fn handle(&self) -> &NodeHandle;

    /// Returns its unstable writes.
    fn writes(&self) -> &Writes;

    /// Returns a number that files have in common whose syncs wait for the same disk.
    fn disk(&self) -> usize;

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

/// Files on one disk.
#[derive(Default)]
struct Line {
    /// Those that may be synced next, by their places.
    order: BTreeMap<u64, NodeHandle>,
    /// Number of those being synced because room or descriptors are short.
    being_synced: usize,
}

struct Files<F> {
    kept: HashMap<NodeHandle, Kept<F>>,
    /// By disk: one that hangs holds up no other.
    lines: HashMap<usize, Line>,
    next_place: u64,
}

impl<F: Syncable> Files<F> {
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
        let line = self.lines.entry(kept.file.disk()).or_default();
        line.order.insert(self.next_place, handle);
        self.next_place += 1;
    }

    /// Takes the place of a file, for a sync. False: a sync has it already.
    fn take(&mut self, handle: &NodeHandle) -> bool {
        let Some(kept) = self.kept.get_mut(handle) else { return false };
        let Some(place) = kept.place.take() else { return false };
        if let Some(line) = self.lines.get_mut(&kept.file.disk()) {
            line.order.remove(&place);
        }
        true
    }

    /// Takes the file that came first of those on disks that sync few, for a sync.
    fn take_first(&mut self) -> Option<Arc<F>> {
        let lines = self.lines.values_mut();
        let free = lines.filter(|line| line.being_synced < MAX_FILES_BEING_SYNCED);
        let first =
            free.filter_map(|line| line.order.first_key_value().map(|one| *one.0).zip(Some(line)));
        let (place, line) = first.min_by_key(|(place, _)| *place)?;
        let handle = line.order.remove(&place)?;
        let kept = self.kept.get_mut(&handle)?;
        kept.place = None;
        line.being_synced += 1;
        Some(Arc::clone(&kept.file))
    }

    fn remove(&mut self, handle: &NodeHandle) -> Option<Arc<F>> {
        self.take(handle);
        self.kept.remove(handle).map(|kept| kept.file)
    }
}

/// Files of a store with unstable writes.
pub(crate) struct Unsynced<F> {
    /// A lock on the writes of a file comes before this one.
    files: Mutex<Files<F>>,
    most: usize,
    losses: Losses,
    me: Weak<Self>,
}

impl<F> Unsynced<F> {
    /// Creates the table of a store that caches up to `cached` objects.
    pub(crate) fn new(cached: usize, losses: Losses) -> Arc<Self> {
        let files = Files { kept: HashMap::default(), lines: HashMap::default(), next_place: 0 };
        let most = (cached / UNSYNCED_PART).clamp(LEAST_UNSYNCED_FILES, MAX_UNSYNCED_FILES);
        Arc::new_cyclic(|me| Self { files: Mutex::new(files), most, losses, me: Weak::clone(me) })
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
            let Some(file) = self.files().take_first() else { return };
            let syncing = Syncing { of: Arc::clone(&me), file: Arc::clone(&file), counts: true };
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
        } else if state.is_kept {
            // It has been synced a moment ago: others come first.
            let mut files = self.files();
            if files.take(file.handle()) {
                files.line_up(*file.handle());
            }
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

    /// Begins to sync files: those on one disk one after the other, without waiting for
    /// them. Returns whether there are any.
    pub(crate) fn sync_all(&self, is_one: impl Fn(&F) -> bool) -> bool {
        let Some(me) = self.me.upgrade() else { return false };
        let mut all = self.all();
        all.retain(|file| is_one(file));
        let are_any = !all.is_empty();
        {
            // What a sync has already is left to it, however long its disk takes.
            let mut files = self.files();
            all.retain(|file| files.take(file.handle()));
        }
        let mut by_disk: HashMap<usize, Vec<Syncing<F>>> = HashMap::default();
        for file in all {
            let of = Arc::clone(&me);
            by_disk.entry(file.disk()).or_default().push(Syncing { of, file, counts: false });
        }
        by_disk.into_values().for_each(sync_in_turn);
        are_any
    }
}

fn sync_in_turn<F: Syncable>(mut files: Vec<Syncing<F>>) {
    let Some(syncing) = files.pop() else { return };
    Arc::clone(&syncing.file).detach(move |file| {
        syncing.of.sync(&file);
        drop(syncing);
        sync_in_turn(files);
    });
}

impl<F: Syncable> Reclaim for Unsynced<F> {
    fn let_go_of_idle(&self, _most: usize) -> usize {
        0
    }

    /// Begins syncs: the descriptors of a file can be closed when its sync has ended.
    fn make_idle(&self, most: usize) {
        self.begin_syncs(most);
    }
}

/// A file being synced; ended when dropped. If writes have come meanwhile, the file takes
/// the last place.
struct Syncing<F: Syncable> {
    of: Arc<Unsynced<F>>,
    file: Arc<F>,
    /// Set if it is counted in its line.
    counts: bool,
}

impl<F: Syncable> Drop for Syncing<F> {
    fn drop(&mut self) {
        let mut files = self.of.files();
        if self.counts
            && let Some(line) = files.lines.get_mut(&self.file.disk())
        {
            line.being_synced -= 1;
        }
        files.line_up(*self.file.handle());
    }
}

#[cfg(test)]
mod tests;
