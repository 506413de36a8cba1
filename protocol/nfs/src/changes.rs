//! Changes that run, of files nobody need have open for them: by NFSv3, under
//! the anonymous stateid, by name; and writes whose open may be closed before
//! storage has ended them.
//!
//! Whoever changes a file counts it here and then looks for delegations. A
//! delegation given between that look and the end of the change would promise
//! something that is just becoming untrue, so none is given to others as long
//! as the file counts. Storage may take as long as it likes.

use std::future::Future;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Files share places by their hash; two that meet cost a delegation.
const PLACES: usize = 1 << 14;
/// No delegation is given to others for so long after a change without an open
/// began, in seconds: who changes files so does it again, and would have to
/// recall it.
const QUIET_SECONDS: u64 = 3;
/// Stands for a change by somebody who is no client, or by several.
const NOBODY: u64 = 0;
/// The half of a word that says who.
const WHO: u64 = 0xffff_ffff;
/// One in the other half, which counts.
const ONE: u64 = 1 << 32;

/// The changes of all files.
#[derive(Debug)]
pub struct Changes {
    places: Box<[Arc<Place>]>,
    /// Changes of names that nobody looked up: they may be of any file.
    names: Arc<Place>,
}

#[derive(Debug, Default)]
struct Place {
    /// Changes that run in the upper half; in the lower a part of the client's
    /// id, as long as all are by one.
    running: AtomicU64,
    /// The second in which the latest one without an open began in the upper
    /// half, and whose it was in the lower.
    latest: AtomicU64,
    /// All so far that began without an open.
    begun: AtomicU64,
}

/// A change that runs; dropping it ends it.
#[derive(Debug)]
#[must_use = "dropping it says that the change has ended"]
pub struct Changing {
    place: Option<Arc<Place>>,
    /// Storage has been asked and has not answered.
    in_store: AtomicBool,
}

impl Default for Changes {
    fn default() -> Self {
        Self { places: (0..PLACES).map(|_| Arc::default()).collect(), names: Arc::default() }
    }
}

fn mark(client: Option<u64>) -> u64 {
    client.map_or(NOBODY, |client| (client & WHO).max(1))
}

fn recent(latest: u64, now_seconds: u64) -> bool {
    latest != 0 && (latest >> 32) + QUIET_SECONDS >= now_seconds
}

impl Changes {
    fn place(&self, file: &impl Hash) -> &Arc<Place> {
        let mut hasher = DefaultHasher::new();
        file.hash(&mut hasher);
        &self.places[hasher.finish() as usize % PLACES]
    }

    /// A change of the file begins for which nobody need have it open. To be
    /// called before delegations are looked for. `by` is the client's id.
    pub fn begin(&self, file: &impl Hash, by: Option<u64>, now_seconds: u64) -> Changing {
        let place = self.place(file);
        let (latest, mine) = (place.latest.load(Ordering::Relaxed), mark(by));
        let alone = !recent(latest, now_seconds) || latest & WHO == mine;
        let stamp = now_seconds << 32 | if alone { mine } else { NOBODY };
        place.latest.store(stamp, Ordering::Release);
        place.begun.fetch_add(1, Ordering::AcqRel);
        place.begin(mine)
    }

    /// A change of the file begins under an open or a delegation of the client:
    /// they keep others' delegations away, and this does if they go before it
    /// has ended.
    pub fn begin_under_state(&self, file: &impl Hash, by: Option<u64>) -> Changing {
        self.place(file).begin(mark(by))
    }

    /// A change begins of what a name stands for, which is not looked up: it
    /// counts for all files. For when there is nobody to be given a delegation,
    /// and somebody might come while storage takes its time.
    pub fn begin_of_name(&self, by: Option<u64>) -> Changing {
        self.names.begin(mark(by))
    }

    /// Whether somebody else than `client` may be changing the file.
    #[must_use]
    pub fn by_others(&self, file: &impl Hash, client: u64, now_seconds: u64) -> bool {
        let (place, mine) = (self.place(file), mark(Some(client)));
        let latest = place.latest.load(Ordering::Acquire);
        place.others_run(mine)
            || self.names.others_run(mine)
            || recent(latest, now_seconds) && latest & WHO != mine
    }

    /// Changes without an open so far. Where the number is another than before,
    /// attributes read in between may be outdated.
    #[must_use]
    pub fn begun(&self, file: &impl Hash) -> u64 {
        self.place(file).begun.load(Ordering::Acquire)
    }
}

impl Place {
    fn others_run(&self, mine: u64) -> bool {
        let running = self.running.load(Ordering::Acquire);
        running >= ONE && running & WHO != mine
    }

    fn begin(self: &Arc<Self>, mine: u64) -> Changing {
        let next = |running: u64| {
            let alone = running < ONE || running & WHO == mine;
            let whose = if alone { mine } else { NOBODY };
            Some(((running & !WHO) + ONE) | whose)
        };
        // The closure always has an answer.
        let _ = self.running.fetch_update(Ordering::AcqRel, Ordering::Relaxed, next);
        Changing { place: Some(Arc::clone(self)), in_store: AtomicBool::new(false) }
    }
}

impl Changing {
    /// A change of what nobody is promised anything about: a name that is not
    /// there, a directory.
    pub fn of_nothing() -> Self {
        Self { place: None, in_store: AtomicBool::new(false) }
    }

    /// Runs the part of the change that storage does. Storage goes on with what
    /// it began when nobody waits any more.
    pub async fn in_store<T>(&self, work: impl Future<Output = T>) -> T {
        self.in_store.store(true, Ordering::Relaxed);
        let done = work.await;
        self.in_store.store(false, Ordering::Relaxed);
        done
    }
}

impl Drop for Changing {
    fn drop(&mut self) {
        // A request that was given up while storage worked (a panic beside it,
        // the end of the process): nobody will ever know when storage ends, so
        // the file counts from here on. It costs delegations, no data.
        if let (Some(place), false) = (&self.place, *self.in_store.get_mut()) {
            place.running.fetch_sub(ONE, Ordering::AcqRel);
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
        let changes = Changes::default();
        assert!(!changes.by_others(&FILE, A, 100));
        let change = changes.begin(&FILE, Some(A), 100);
        assert!(!changes.by_others(&FILE, A, 100));
        assert!(changes.by_others(&FILE, B, 10_000), "it runs");
        drop(change);
        assert!(changes.by_others(&FILE, B, 100 + QUIET_SECONDS));
        assert!(!changes.by_others(&FILE, B, 101 + QUIET_SECONDS));
    }

    #[test]
    fn changes_by_several_keep_all_waiting() {
        let changes = Changes::default();
        let one = changes.begin_under_state(&FILE, Some(A));
        assert!(!changes.by_others(&FILE, A, 100) && changes.by_others(&FILE, B, 100));
        let other = changes.begin_under_state(&FILE, Some(B));
        assert!(changes.by_others(&FILE, A, 100) && changes.by_others(&FILE, B, 100));
        drop(other);
        // Whose the rest is cannot be told any more.
        assert!(changes.by_others(&FILE, A, 100));
        drop(one);
        assert!(!changes.by_others(&FILE, A, 100) && !changes.by_others(&FILE, B, 100));
        let by_nobody = changes.begin(&FILE, None, 200);
        drop(by_nobody);
        assert!(changes.by_others(&FILE, A, 200));
    }

    #[test]
    fn a_name_that_nobody_looked_up_may_be_of_any_file() {
        let changes = Changes::default();
        let change = changes.begin_of_name(Some(A));
        assert!(!changes.by_others(&FILE, A, 100) && changes.by_others(&FILE, B, 100));
        drop(change);
        assert!(!changes.by_others(&FILE, B, 100));
    }

    #[test]
    fn those_without_an_open_are_numbered() {
        let changes = Changes::default();
        let before = changes.begun(&FILE);
        drop(changes.begin_under_state(&FILE, Some(A)));
        assert_eq!(changes.begun(&FILE), before);
        drop(changes.begin(&FILE, Some(A), 100));
        assert_ne!(changes.begun(&FILE), before);
    }

    #[test]
    fn what_is_given_up_while_storage_works_never_ends() {
        let changes = Changes::default();
        let change = changes.begin_under_state(&FILE, None);
        let mut work = Box::pin(change.in_store(std::future::pending::<()>()));
        let waker = std::task::Waker::noop();
        assert!(work.as_mut().poll(&mut std::task::Context::from_waker(waker)).is_pending());
        drop(work);
        drop(change);
        assert!(changes.by_others(&FILE, A, 1 << 30));
    }
}
