//! Cached listing of a directory.
//!
//! A listing is a run of consecutive names, with the handles and attributes of
//! those that were requested. It is valid
//!
//! * for at most one second,
//! * while nothing was created, removed, renamed or linked in the directory
//!   through this store (its generation), and
//! * while the directory's own ctime and mtime are unchanged.
//!
//! Its attributes are valid for at most one second and while nothing at all was
//! modified through this store since they were read (the store's modification
//! count); after that, a cached object is queried, and any other is read again.
//! So changes by clients show at once. Changes by other programs on the server
//! show in READDIR within a second, and in GETATTR, LOOKUP and OPEN at once.

use crate::dir_stream::{DirStream, Listed, Piece};
use rustix::fs::Statx;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, TryLockError, Weak};
use std::time::{Duration, Instant};
use zgate_store::StoreResult;
use zgate_store::file_store::Node;

/// Time for which cached names and attributes are valid.
pub(crate) const LISTING_LIFE: Duration = Duration::from_secs(1);
/// Most names in one directory's listing; beyond it the listing starts over.
pub(crate) const MAX_WINDOW_NAMES: usize = 32 << 10;
/// Most names in all listings of a store.
const MAX_NAMES: usize = 64 << 10;
/// Most directories with a listing.
const MAX_LISTINGS: usize = 1024;

const _: () = assert!(MAX_WINDOW_NAMES < MAX_NAMES);

/// Cached listing of a directory.
#[derive(Default)]
pub(crate) struct Listing {
    /// Lock held by the thread that changes the names of the window: reading them may
    /// take long.
    pub(crate) stream: Mutex<Option<DirStream>>,
    /// Lock held for memory accesses only, so that a core's thread may wait for
    /// it.
    pub(crate) window: RwLock<Option<Window>>,
    /// Set if the budget counts this listing.
    counted: AtomicBool,
}

/// A run of consecutive names.
pub(crate) struct Window {
    /// Cookie that precedes the names.
    after: u64,
    /// The directory's generation and times, and the time, before the names
    /// were read.
    state: DirState,
    read_at: Instant,
    pub(crate) names: Vec<Slot>,
    /// Set if the cookies ascend, as those of most file systems do.
    ascending: bool,
    /// Set if the names reach the end of the directory.
    pub(crate) end: bool,
    budget: Arc<Budget>,
}

/// A name, and the known attributes of its object.
pub(crate) struct Slot {
    pub(crate) listed: Listed,
    pub(crate) known: Option<Known>,
}

/// Handle and attributes at one time.
#[derive(Clone, Copy)]
pub(crate) struct Known {
    pub(crate) node: StoreResult<Node>,
    /// Time before they were read.
    pub(crate) at: Instant,
    /// Modification count of the store before they were read.
    pub(crate) modifications: u64,
}

/// State that changes whenever the entries of a directory change.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct DirState {
    generation: u64,
    ctime: (i64, u32),
    mtime: (i64, u32),
}

impl DirState {
    /// Creates the state; `generation` must have been read before `stat`.
    pub(crate) fn new(generation: u64, stat: &Statx) -> Self {
        Self {
            generation,
            ctime: (stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec),
            mtime: (stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec),
        }
    }
}

impl Window {
    /// Creates an empty window.
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

    /// Returns whether the names are valid.
    pub(crate) fn holds(&self, state: &DirState, now: Instant) -> bool {
        self.state == *state && now.saturating_duration_since(self.read_at) < LISTING_LIFE
    }

    /// Returns the index of the first name after `cookie`.
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

    /// Returns the name with this cookie.
    pub(crate) fn slot_of(&mut self, cookie: u64) -> Option<&mut Slot> {
        let next = self.start_of(cookie)?;
        self.names.get_mut(next.checked_sub(1)?)
    }

    /// Adds the following names.
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
    /// Returns whether nothing can have changed through this store since.
    pub(crate) fn holds(&self, modifications: u64, now: Instant) -> bool {
        self.node.is_ok()
            && self.modifications == modifications
            && now.saturating_duration_since(self.at) < LISTING_LIFE
    }
}

impl Listing {
    /// Drops names and descriptor; false if a thread is reading names.
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

/// A directory that keeps its listing.
pub(crate) trait Listable: Send + Sync {
    /// Returns the listing.
    fn listing(&self) -> &Listing;
}

/// Bound on the names cached in all listings of a store.
#[derive(Default)]
pub(crate) struct Budget {
    names: AtomicUsize,
    /// Directories with a listing, oldest first.
    order: Mutex<VecDeque<Weak<dyn Listable>>>,
}

impl Budget {
    /// Counts a directory's listing, and drops others above the limit. The
    /// caller reads names of `dir`.
    pub(crate) fn keep<D: Listable + 'static>(&self, dir: &Arc<D>) {
        let mut order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        if !dir.listing().counted.swap(true, Ordering::AcqRel) {
            let dir: Weak<D> = Arc::downgrade(dir);
            order.push_back(dir);
        }
        for _ in 0..order.len() {
            let fits = self.names.load(Ordering::Relaxed) <= MAX_NAMES;
            let gone = order.front().is_some_and(|front| front.strong_count() == 0);
            if fits && order.len() <= MAX_LISTINGS && !gone {
                return;
            }
            let Some(front) = order.pop_front() else { return };
            let Some(oldest) = front.upgrade() else { continue };
            // A listing that is being read, as that of `dir` is, stays.
            if oldest.listing().forget() {
                oldest.listing().counted.store(false, Ordering::Release);
            } else {
                order.push_back(front);
            }
        }
    }
}
