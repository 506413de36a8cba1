//! What is remembered of a directory's listing.
//!
//! A listing is a run of names read one after the other, with the handles and
//! attributes of those that were asked for. It is believed
//!
//! * for one second at most,
//! * while nothing was created, removed, renamed or linked in the directory
//!   through this store (its generation), and
//! * while the directory's own ctime and mtime stand still.
//!
//! The attributes in it are believed for one second at most and while nothing
//! at all was modified through this store since they were taken (the store's
//! modification count); after that, an object at hand is asked itself, any
//! other is looked at again. So what clients do shows at once. What other
//! programs on the server do shows in READDIR after a second at the latest,
//! and in GETATTR, LOOKUP and OPEN always at once.

use crate::dir_stream::{DirStream, Listed, Piece};
use crate::entry::Entry;
use rustix::fs::Statx;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, TryLockError, Weak};
use std::time::{Duration, Instant};
use zgate_store::StoreResult;
use zgate_store::file_store::Node;

/// How long names and attributes read ahead are believed.
pub(crate) const LISTING_LIFE: Duration = Duration::from_secs(1);
/// Names in one directory's listing; beyond them it starts anew.
pub(crate) const MAX_WINDOW_NAMES: usize = 32 << 10;
/// Names in all listings of a store.
const MAX_NAMES: usize = 64 << 10;
/// Directories with a listing.
const MAX_LISTINGS: usize = 1024;

const _: () = assert!(MAX_WINDOW_NAMES < MAX_NAMES);

/// A directory's listing.
#[derive(Default)]
pub(crate) struct Listing {
    /// Held by whoever changes the window: reading names may take long.
    pub(crate) stream: Mutex<Option<DirStream>>,
    /// Held for memory accesses only, so that a core's thread may wait for it.
    pub(crate) window: RwLock<Option<Window>>,
    /// Whether the budget knows of it.
    counted: AtomicBool,
}

/// A run of names.
pub(crate) struct Window {
    /// The cookie the names follow.
    after: u64,
    /// The directory's generation and times, and the time, before reading.
    state: DirState,
    read_at: Instant,
    pub(crate) names: Vec<Slot>,
    /// The cookies ascend, as those of most file systems do.
    ascending: bool,
    /// The names reach the end of the directory.
    pub(crate) end: bool,
    budget: Arc<Budget>,
}

/// A name, and what is known of what it names.
pub(crate) struct Slot {
    pub(crate) listed: Listed,
    pub(crate) known: Option<Known>,
}

/// Handle and attributes as they were once.
#[derive(Clone, Copy)]
pub(crate) struct Known {
    pub(crate) node: StoreResult<Node>,
    /// Not later than the look at it.
    pub(crate) at: Instant,
    /// The store's count of modifications before that look.
    pub(crate) modifications: u64,
}

/// What tells that the entries of a directory have changed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct DirState {
    generation: u64,
    ctime: (i64, u32),
    mtime: (i64, u32),
}

impl DirState {
    /// `generation` must have been taken before `stat`.
    pub(crate) fn new(generation: u64, stat: &Statx) -> Self {
        Self {
            generation,
            ctime: (stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec),
            mtime: (stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec),
        }
    }
}

impl Window {
    /// No names yet.
    pub(crate) fn new(after: u64, state: DirState, now: Instant, budget: &Arc<Budget>) -> Self {
        Self {
            after,
            state,
            read_at: now,
            names: Vec::new(),
            ascending: true,
            end: false,
            budget: Arc::clone(budget),
        }
    }

    /// Whether the names are to be believed.
    pub(crate) fn holds(&self, state: &DirState, now: Instant) -> bool {
        self.state == *state && now.saturating_duration_since(self.read_at) < LISTING_LIFE
    }

    /// Index of the first name after `cookie`.
    pub(crate) fn start_of(&self, cookie: u64) -> Option<usize> {
        if cookie == self.after {
            return Some(0);
        }
        let found = if self.ascending {
            self.names.binary_search_by_key(&cookie, |slot| slot.listed.cookie).ok()
        } else {
            self.names.iter().position(|slot| slot.listed.cookie == cookie)
        };
        found.map(|index| index + 1)
    }

    /// Adds the names that follow.
    pub(crate) fn append(&mut self, piece: Piece) {
        let mut last = self.names.last().map_or(self.after, |slot| slot.listed.cookie);
        for listed in &piece.names {
            self.ascending &= listed.cookie > last;
            last = listed.cookie;
        }
        self.budget.names.fetch_add(piece.names.len(), Ordering::Relaxed);
        self.names.extend(piece.names.into_iter().map(|listed| Slot { listed, known: None }));
        self.end = piece.end;
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        self.budget.names.fetch_sub(self.names.len(), Ordering::Relaxed);
    }
}

impl Known {
    /// Whether nothing can have changed through this store since.
    pub(crate) fn holds(&self, modifications: u64, now: Instant) -> bool {
        self.node.is_ok()
            && self.modifications == modifications
            && now.saturating_duration_since(self.at) < LISTING_LIFE
    }
}

impl Listing {
    /// Lets go of names and descriptor; false while somebody reads names.
    pub(crate) fn forget(&self) -> bool {
        let mut stream = match self.stream.try_lock() {
            Ok(stream) => stream,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        stream.take();
        self.window.write().unwrap_or_else(PoisonError::into_inner).take();
        true
    }
}

/// Bounds the names remembered in all listings of a store.
#[derive(Default)]
pub(crate) struct Budget {
    names: AtomicUsize,
    /// Directories with a listing, the oldest first.
    order: Mutex<VecDeque<Weak<Entry>>>,
}

impl Budget {
    /// Counts a directory's listing in, and lets go of others that are too
    /// many. The caller reads names of `dir`.
    pub(crate) fn keep(&self, dir: &Arc<Entry>) {
        let mut order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        if !dir.listing.counted.swap(true, Ordering::AcqRel) {
            order.push_back(Arc::downgrade(dir));
        }
        for _ in 0..order.len() {
            let fits = self.names.load(Ordering::Relaxed) <= MAX_NAMES;
            let gone = order.front().is_some_and(|front| front.strong_count() == 0);
            if fits && order.len() <= MAX_LISTINGS && !gone {
                return;
            }
            let Some(front) = order.pop_front() else { return };
            let Some(oldest) = front.upgrade() else { continue };
            // One that is being read, as `dir` is, stays.
            if oldest.listing.forget() {
                oldest.listing.counted.store(false, Ordering::Release);
            } else {
                order.push_back(front);
            }
        }
    }
}
