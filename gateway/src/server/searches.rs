//! Searches for datasets and those who ask for them: requests, events and the thread that
//! follows datasets. One search at a time runs, and answers all who asked before it began.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use zgate_control::PoolName;

/// Place of a request or an event among all who ask for a search.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Asked(u64);

/// Result of a search whose changes are in effect.
#[derive(Debug, Default)]
pub(super) struct Scanned {
    /// Set if a zvol has no device yet.
    pub(super) pending: bool,
    /// Pools that did not answer in time: what they have is served as it was.
    pub(super) late: BTreeSet<PoolName>,
    /// Reason for which zvols of patterns are not all served as they are now. All else is in
    /// effect.
    pub(super) zvols: Option<io::Error>,
}

impl Scanned {
    /// Returns whether what all pools have now is in effect, but for devices that come later.
    fn is_complete(&self) -> bool {
        self.late.is_empty() && self.zvols.is_none()
    }

    /// Requires that what a pool has now is in effect.
    ///
    /// # Errors
    /// The pool has not answered in time.
    pub(super) fn require(&self, pool: &PoolName) -> io::Result<()> {
        if !self.late.contains(pool) {
            return Ok(());
        }
        let reason = format!("pool {pool} has not listed its datasets in time; see `zpool status`");
        Err(io::Error::new(io::ErrorKind::TimedOut, reason))
    }

    /// Requires that zvols of patterns are all served as they are now.
    ///
    /// # Errors
    /// The reason for which they are not.
    pub(super) fn require_zvols(&self) -> io::Result<()> {
        self.zvols.as_ref().map_or(Ok(()), |error| Err(again(error)))
    }
}

/// Result of a search for all whom it answers.
type Outcome = Result<Arc<Scanned>, Arc<io::Error>>;

/// Order of those who ask for a search, and the last result.
#[derive(Default)]
pub(super) struct Searches {
    state: Mutex<State>,
    /// Told when a search ends.
    ended: Condvar,
}

#[derive(Default)]
struct State {
    /// Place of the last one who asked.
    asked: Asked,
    /// Set while one of them searches, or waits until it may.
    is_running: bool,
    /// Number of searches that have ended.
    ended: u64,
    /// Time that the last of them has taken.
    took: Duration,
    /// The last of them; none before the first.
    last: Option<Ended>,
}

impl State {
    fn ask(&mut self) -> Asked {
        self.asked.0 += 1;
        self.asked
    }
}

/// A search that has ended.
struct Ended {
    /// Place of the last one who had asked when it began.
    covers: Asked,
    outcome: Outcome,
}

impl Ended {
    /// Returns whether it needs no repetition for those who come later.
    fn is_complete(&self) -> bool {
        self.outcome.as_ref().is_ok_and(|scanned| scanned.is_complete())
    }
}

impl Searches {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the next place: a search that begins later shows what was changed before this.
    /// Waits for no search.
    pub(super) fn ask(&self) -> Asked {
        self.lock().ask()
    }

    /// Returns the result of a search that began after `asked`, or, without it, after this call:
    /// of the last one, unless it ended before this call and failed or left something out, else
    /// of the next one, which one of those who wait runs by `search` while it holds `changing`.
    /// Waits for one search that runs and one more.
    ///
    /// # Errors
    /// The error of that search, for all who waited for it.
    pub(super) fn since(
        &self,
        asked: Option<Asked>,
        changing: &Mutex<()>,
        search: impl FnOnce() -> io::Result<Scanned>,
    ) -> io::Result<Arc<Scanned>> {
        let outcome = match self.outcome_or_turn(asked) {
            Ok(outcome) => outcome,
            Err(turn) => turn.search(changing, search),
        };
        outcome.map_err(|error| again(&error))
    }

    /// Waits for the result of a search that began after `asked`, or after this call, or for
    /// the turn to run it.
    fn outcome_or_turn(&self, asked: Option<Asked>) -> Result<Outcome, Turn<'_>> {
        let mut state = self.lock();
        let asked = asked.unwrap_or_else(|| state.ask());
        let ended_before = state.ended;
        loop {
            let last = state.last.as_ref().filter(|last| last.covers >= asked);
            let is_new = state.ended != ended_before;
            if let Some(last) = last.filter(|last| is_new || last.is_complete()) {
                return Ok(last.outcome.clone());
            }
            if !state.is_running {
                state.is_running = true;
                return Err(Turn(self));
            }
            state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Returns the time that the last search has taken; none before the first.
    pub(super) fn took(&self) -> Duration {
        self.lock().took
    }

    /// Returns the place of the last one who asked.
    #[cfg(test)]
    pub(super) fn last_asked(&self) -> u64 {
        self.lock().asked.0
    }
}

/// The right to search; it ends with this value, also by a panic.
struct Turn<'a>(&'a Searches);

impl Turn<'_> {
    fn search(
        &self,
        changing: &Mutex<()>,
        search: impl FnOnce() -> io::Result<Scanned>,
    ) -> Outcome {
        let _one = changing.lock().unwrap_or_else(PoisonError::into_inner);
        // Now: who asked while a reload kept `changing` does not wait for another search.
        let covers = self.0.lock().asked;
        let begun = Instant::now();
        let outcome = search().map(Arc::new).map_err(Arc::new);
        let mut state = self.0.lock();
        state.ended += 1;
        state.took = begun.elapsed();
        state.last = Some(Ended { covers, outcome: outcome.clone() });
        outcome
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.lock().is_running = false;
        self.0.ended.notify_all();
    }
}

/// Returns an error once more, for another one who waits.
fn again(error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(reason: &str) -> io::Result<Scanned> {
        Err(io::Error::other(reason.to_owned()))
    }

    #[test]
    fn a_search_answers_who_asked_before_it_and_nobody_who_asked_later() {
        let (searches, changing) = (Searches::default(), Mutex::default());
        let before = searches.ask();
        let mut meanwhile = None;
        let search = || {
            meanwhile = Some(searches.ask());
            Ok(Scanned { pending: true, ..Scanned::default() })
        };
        assert!(searches.since(Some(before), &changing, search).unwrap().pending);
        let known = searches.since(Some(before), &changing, || failed("a second search"));
        assert!(known.unwrap().pending);
        let next = searches.since(meanwhile, &changing, || Ok(Scanned::default()));
        assert!(!next.unwrap().pending);
    }

    #[test]
    fn a_search_that_has_failed_is_repeated_for_who_comes_later() {
        let (searches, changing) = (Searches::default(), Mutex::default());
        let asked = searches.ask();
        let said = searches.since(Some(asked), &changing, || failed("no such pool")).unwrap_err();
        assert_eq!(said.to_string(), "no such pool");
        searches.since(Some(asked), &changing, || Ok(Scanned::default())).unwrap();
    }

    #[test]
    fn a_search_that_left_something_out_is_repeated_for_who_comes_later() {
        let (searches, changing) = (Searches::default(), Mutex::default());
        let asked = searches.ask();
        let search = |result| searches.since(Some(asked), &changing, || Ok(result)).unwrap();
        let pool: PoolName = "tank".parse().unwrap();
        let late = search(Scanned { late: [pool.clone()].into(), ..Scanned::default() });
        assert!(late.require(&pool).is_err());
        let zvols = Some(io::Error::other("no numbers"));
        let without_zvols = search(Scanned { zvols, ..Scanned::default() });
        assert!(without_zvols.require(&pool).is_ok() && without_zvols.require_zvols().is_err());
        assert!(search(Scanned::default()).require_zvols().is_ok());
        let another = Scanned { pending: true, ..Scanned::default() };
        assert!(!search(another).pending, "the one before was enough");
    }

    #[test]
    fn a_search_that_panics_keeps_nobody_waiting() {
        let (searches, changing) = (Searches::default(), Mutex::default());
        let asked = searches.ask();
        let panics = || searches.since(Some(asked), &changing, || panic!("as a test wants"));
        let ended = std::thread::scope(|scope| scope.spawn(panics).join().map(|_| ()));
        assert!(ended.is_err());
        searches.since(Some(asked), &changing, || Ok(Scanned::default())).unwrap();
    }
}
