//! Changes in progress of files that need not be open: by NFSv3, under the
//! anonymous stateid, by name; and writes whose open may be closed before the
//! backend has completed them.
//!
//! Every operation that changes a file counts it here first, and then looks for
//! delegations. A delegation granted between that look and the end of the
//! change would be wrong at once, so none is granted to others while the file
//! counts. There is no time limit for the backend.

use ahash::RandomState;
use std::future::Future;
use std::hash::Hash;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Number of counters. Files share counters by their hash; a collision costs a
/// delegation.
const COUNTERS: usize = 1 << 14;
/// No delegation is granted to others for this time after the start of a change
/// without an open, in seconds: a client that changes files this way usually
/// repeats it, and the delegation would be recalled.
const QUIET_SECONDS: u64 = 3;
/// Marks a change by an unknown client, or by several.
const NOBODY: u64 = 0;
/// The half of a word with the client.
const WHO: u64 = 0xffff_ffff;
/// The number one in the other half, which counts.
const ONE: u64 = 1 << 32;

/// The changes in progress of all files.
#[derive(Debug)]
pub struct Changes {
    /// Made with the first change that they count.
    counters: Box<[OnceLock<Arc<Counter>>]>,
    /// Changes of names that were not looked up: they may affect any file.
    names: Arc<Counter>,
    hasher: RandomState,
}

#[derive(Debug, Default)]
struct Counter {
    /// Number of changes in progress in the upper half; in the lower half a
    /// part of the client's id, as long as all are by one client.
    running: AtomicU64,
    /// Second of the latest start of a change without an open in the upper
    /// half, and its client in the lower half.
    latest: AtomicU64,
    /// Number of changes that began without an open.
    begun: AtomicU64,
}

/// A change in progress; ends when dropped.
#[derive(Debug)]
#[must_use = "dropping it ends the change"]
pub struct ChangeGuard {
    counter: Option<Arc<Counter>>,
    /// A call to the backend is in progress.
    in_store: AtomicBool,
}

fn mark(client: Option<u64>) -> u64 {
    client.map_or(NOBODY, |client| (client & WHO).max(1))
}

fn recent(latest: u64, now_seconds: u64) -> bool {
    latest != 0 && (latest >> 32) + QUIET_SECONDS >= now_seconds
}

impl Changes {
    /// No changes. `secret` decides which files share a counter: clients must not know.
    #[must_use]
    pub fn new(secret: u64) -> Self {
        Self {
            counters: (0..COUNTERS).map(|_| OnceLock::new()).collect(),
            names: Arc::default(),
            // The secret alone: `with_seed` adds chance of the process, and a run of the
            // simulator would be another one in each process.
            hasher: RandomState::with_seeds(secret, 0, 0, 0),
        }
    }

    fn place(&self, file: &impl Hash) -> &OnceLock<Arc<Counter>> {
        &self.counters[self.hasher.hash_one(file) as usize % COUNTERS]
    }

    fn counter(&self, file: &impl Hash) -> &Arc<Counter> {
        self.place(file).get_or_init(Arc::default)
    }

    /// The counter of a file; absent if it has never changed.
    fn known(&self, file: &impl Hash) -> Option<&Counter> {
        self.place(file).get().map(|counter| &**counter)
    }

    /// Begins a change of a file that need not be open. To be called before the
    /// look for delegations. `by` is the client's id.
    pub fn begin(&self, file: &impl Hash, by: Option<u64>, now_seconds: u64) -> ChangeGuard {
        let counter = self.counter(file);
        let (latest, mine) = (counter.latest.load(Ordering::Relaxed), mark(by));
        let alone = !recent(latest, now_seconds) || latest & WHO == mine;
        let stamp = now_seconds << 32 | if alone { mine } else { NOBODY };
        counter.latest.store(stamp, Ordering::Release);
        counter.begun.fetch_add(1, Ordering::AcqRel);
        counter.begin(mine)
    }

    /// Begins a change of the file under an open or a delegation of the client.
    /// While these exist, they prevent delegations to others; if they end
    /// before the change, this counter does.
    pub fn begin_under_state(&self, file: &impl Hash, by: Option<u64>) -> ChangeGuard {
        self.counter(file).begin(mark(by))
    }

    /// Begins a change of the object with a name, which is not looked up: it
    /// counts for all files. For use while no client could get a delegation, as
    /// one might appear before the backend completes the change.
    pub fn begin_of_name(&self, by: Option<u64>) -> ChangeGuard {
        self.names.begin(mark(by))
    }

    /// True if a client other than `client` may be changing the file.
    #[must_use]
    pub fn by_others(&self, file: &impl Hash, client: u64, now_seconds: u64) -> bool {
        let mine = mark(Some(client));
        let changes = |counter: &Counter| {
            let latest = counter.latest.load(Ordering::Acquire);
            counter.others_run(mine) || recent(latest, now_seconds) && latest & WHO != mine
        };
        self.known(file).is_some_and(changes) || self.names.others_run(mine)
    }

    /// Number of changes without an open so far. If the number differs from an
    /// earlier one, attributes read in between may be outdated.
    #[must_use]
    pub fn begun(&self, file: &impl Hash) -> u64 {
        self.known(file).map_or(0, |counter| counter.begun.load(Ordering::Acquire))
    }
}

impl Counter {
    fn others_run(&self, mine: u64) -> bool {
        let running = self.running.load(Ordering::Acquire);
        running >= ONE && running & WHO != mine
    }

    fn begin(self: &Arc<Self>, mine: u64) -> ChangeGuard {
        let next = |running: u64| {
            let alone = running < ONE || running & WHO == mine;
            let whose = if alone { mine } else { NOBODY };
            Some(((running & !WHO) + ONE) | whose)
        };
        // The closure always returns a value.
        let _ = self.running.fetch_update(Ordering::AcqRel, Ordering::Relaxed, next);
        ChangeGuard { counter: Some(Arc::clone(self)), in_store: AtomicBool::new(false) }
    }
}

impl ChangeGuard {
    /// A change that needs no counter: of a name that does not exist, or a
    /// directory.
    pub fn uncounted() -> Self {
        Self { counter: None, in_store: AtomicBool::new(false) }
    }

    /// Runs the backend's part of the change. The backend completes it even if
    /// the request is given up.
    pub async fn in_store<T>(&self, work: impl Future<Output = T>) -> T {
        self.in_store.store(true, Ordering::Relaxed);
        let done = work.await;
        self.in_store.store(false, Ordering::Relaxed);
        done
    }
}

impl Drop for ChangeGuard {
    fn drop(&mut self) {
        // The request was given up during a backend call (a panic beside it, or
        // the end of the process): the end of that call will not be seen, so
        // the file counts permanently. This costs delegations, no data.
        if let (Some(counter), false) = (&self.counter, *self.in_store.get_mut()) {
            counter.running.fetch_sub(ONE, Ordering::AcqRel);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "file";
    const A: u64 = 7;
    const B: u64 = 8;

    #[test]
    fn a_change_without_an_open_keeps_others_waiting_until_it_ends_and_a_while_longer() {
        let changes = Changes::new(1);
        assert!(!changes.by_others(&FILE, A, 100));
        let change = changes.begin(&FILE, Some(A), 100);
        assert!(!changes.by_others(&FILE, A, 100));
        assert!(changes.by_others(&FILE, B, 10_000), "it runs");
        drop(change);
        assert!(changes.by_others(&FILE, B, 100 + QUIET_SECONDS));
        assert!(!changes.by_others(&FILE, B, 101 + QUIET_SECONDS));
    }

    #[test]
    fn the_secret_alone_decides_which_files_share_a_counter() {
        let places = |secret| -> Vec<u64> {
            let changes = Changes::new(secret);
            (0..3_u64).map(|file| changes.hasher.hash_one(file) % COUNTERS as u64).collect()
        };
        // As another process had them, built without AES instructions: with them, ahash has
        // other values.
        if cfg!(not(target_feature = "aes")) {
            assert_eq!(places(1), [5514, 11019, 13776]);
        }
        assert_ne!(places(2), places(1));
    }

    #[test]
    fn changes_by_several_keep_all_waiting() {
        let changes = Changes::new(1);
        let one = changes.begin_under_state(&FILE, Some(A));
        assert!(!changes.by_others(&FILE, A, 100) && changes.by_others(&FILE, B, 100));
        let other = changes.begin_under_state(&FILE, Some(B));
        assert!(changes.by_others(&FILE, A, 100) && changes.by_others(&FILE, B, 100));
        drop(other);
        // The client of the remaining change is no longer known.
        assert!(changes.by_others(&FILE, A, 100));
        drop(one);
        assert!(!changes.by_others(&FILE, A, 100) && !changes.by_others(&FILE, B, 100));
        let by_nobody = changes.begin(&FILE, None, 200);
        drop(by_nobody);
        assert!(changes.by_others(&FILE, A, 200));
    }

    #[test]
    fn a_name_that_nobody_looked_up_may_be_of_any_file() {
        let changes = Changes::new(1);
        let change = changes.begin_of_name(Some(A));
        assert!(!changes.by_others(&FILE, A, 100) && changes.by_others(&FILE, B, 100));
        drop(change);
        assert!(!changes.by_others(&FILE, B, 100));
    }

    #[test]
    fn those_without_an_open_are_numbered() {
        let changes = Changes::new(1);
        let before = changes.begun(&FILE);
        drop(changes.begin_under_state(&FILE, Some(A)));
        assert_eq!(changes.begun(&FILE), before);
        drop(changes.begin(&FILE, Some(A), 100));
        assert_ne!(changes.begun(&FILE), before);
    }

    #[test]
    fn what_is_given_up_while_storage_works_never_ends() {
        let changes = Changes::new(1);
        let change = changes.begin_under_state(&FILE, None);
        let mut work = Box::pin(change.in_store(std::future::pending::<()>()));
        let waker = std::task::Waker::noop();
        assert!(work.as_mut().poll(&mut std::task::Context::from_waker(waker)).is_pending());
        drop(work);
        drop(change);
        assert!(changes.by_others(&FILE, A, 1 << 30));
    }
}
