//! Attempts at what may take long or fail now and succeed later: opening
//! storage, resolving a name. Each runs on a thread of its own, at most one at a
//! time for each item. One that hangs delays no other item and no caller beyond
//! its patience; when it ends, its result is used.

use super::absent::Fault;
use super::limits::{FIRST_RETRY, HANGS_AFTER, LONGEST_RETRY, MAX_UNDER_WAY};
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// One attempt, which blocks its thread.
pub(crate) type Work<T> = Box<dyn FnOnce() -> Result<T, Fault> + Send>;

/// An item, and the way to attempt it.
pub(crate) struct Job<T> {
    /// Item with all settings that the result depends on.
    pub key: String,
    pub work: Work<T>,
    /// Begins an attempt now; otherwise only the result of an earlier one is
    /// used.
    pub begins: bool,
}

/// Wakes the thread that retries.
#[derive(Clone, Default)]
pub(crate) struct Wake(Arc<(Mutex<bool>, Condvar)>);

impl Wake {
    /// Wakes it.
    pub(crate) fn wake(&self) {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.1.notify_all();
    }

    /// Waits to be woken, at most `limit`.
    pub(crate) fn wait(&self, limit: Option<Duration>) {
        let mut woken = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        let deadline = limit.map(|limit| Instant::now() + limit);
        while !*woken {
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            woken = match left {
                None => self.0.1.wait(woken).unwrap_or_else(PoisonError::into_inner),
                Some(left) if left.is_zero() => break,
                Some(left) => {
                    self.0.1.wait_timeout(woken, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        *woken = false;
    }
}

/// State of the attempts for one item.
enum State<T> {
    Idle,
    /// Begun then.
    UnderWay(Instant),
    /// Succeeded; nobody has used the result yet.
    Ready(T),
}

struct Slot<T> {
    state: State<T>,
    /// Reason of the last failure.
    fault: Option<Fault>,
    /// Set if nobody has seen the latest result.
    news: bool,
    /// Number of attempts begun.
    attempts: u32,
    /// Time of the next attempt.
    due: Instant,
    /// Set if the item is still asked for.
    wanted: bool,
    /// Number of calls that wait for its result.
    awaited: usize,
}

/// Attempts by item.
struct Table<T>(HashMap<String, Slot<T>>);

/// Attempts at items of one kind.
pub(crate) struct Attempts<T> {
    table: Arc<(Mutex<Table<T>>, Condvar)>,
    wake: Wake,
}

/// State of the attempts at absent items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Set if an attempt has succeeded, or failed for another reason than before.
    pub news: bool,
    /// Time of the next attempt; none if nothing is absent.
    pub due: Option<Instant>,
}

impl Progress {
    /// Combines the progress of two kinds.
    pub(crate) fn and(self, other: Self) -> Self {
        let due = [self.due, other.due].into_iter().flatten().min();
        Self { news: self.news || other.news, due }
    }
}

/// Interval after this many attempts.
fn interval(attempts: u32) -> Duration {
    FIRST_RETRY.saturating_mul(1 << attempts.saturating_sub(1).min(16)).min(LONGEST_RETRY)
}

impl<T: Send + 'static> Attempts<T> {
    /// Creates an empty table; the end of an attempt wakes `wake`.
    pub(crate) fn new(wake: Wake) -> Self {
        Self { table: Arc::new((Mutex::new(Table(HashMap::new())), Condvar::new())), wake }
    }

    fn table(&self) -> MutexGuard<'_, Table<T>> {
        self.table.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Attempts all items at the same time and waits for them, at most
    /// `patience`; not for attempts that were under way before. Returns the
    /// results in order. Items that are not among `jobs` are forgotten.
    pub(crate) fn attempt(&self, jobs: Vec<Job<T>>, patience: Duration) -> Vec<Result<T, Fault>> {
        let mut table = self.table();
        close(table.want(&jobs));
        self.finish(table, jobs, patience)
    }

    /// The same, but no other item is forgotten.
    pub(crate) fn attempt_more(
        &self,
        jobs: Vec<Job<T>>,
        patience: Duration,
    ) -> Vec<Result<T, Fault>> {
        let mut table = self.table();
        table.add(&jobs);
        self.finish(table, jobs, patience)
    }

    /// Attempts items of the table and waits for them.
    fn finish(
        &self,
        mut table: MutexGuard<'_, Table<T>>,
        jobs: Vec<Job<T>>,
        patience: Duration,
    ) -> Vec<Result<T, Fault>> {
        let deadline = Instant::now() + patience;
        let keys: Vec<_> = jobs.iter().map(|job| job.key.clone()).collect();
        // The end of one wakes the thread that retries, which knows nothing of these.
        table.slots(&keys, |slot| slot.awaited += 1);
        let begin = jobs.into_iter().filter(|job| job.begins);
        let mut queue: Vec<_> = begin.filter(|job| table.is_idle(&job.key)).collect();
        let mut begun: Vec<String> = Vec::new();
        loop {
            let room = MAX_UNDER_WAY.saturating_sub(table.under_way());
            for job in queue.drain(..room.min(queue.len())) {
                begun.push(job.key.clone());
                self.begin(&mut table, &job.key, job.work);
            }
            begun.retain(|key| !table.is_idle(key) && !table.is_ready(key));
            let left = deadline.saturating_duration_since(Instant::now());
            if queue.is_empty() && begun.is_empty() || left.is_zero() {
                break;
            }
            // An attempt that begins to hang makes room without an event.
            let waited = self.table.1.wait_timeout(table, left.min(HANGS_AFTER));
            table = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        table.slots(&keys, |slot| slot.awaited -= 1);
        keys.iter().map(|key| table.take(key)).collect()
    }

    /// Wakes the thread that retries: what is absent has changed.
    pub(crate) fn wake(&self) {
        self.wake.wake();
    }

    /// Begins the attempts that are due, without waiting. Items that are not
    /// among `jobs` are forgotten.
    pub(crate) fn retry(&self, jobs: Vec<Job<T>>) -> Progress {
        let mut table = self.table();
        close(table.want(&jobs));
        let now = Instant::now();
        let mut progress = Progress::default();
        for job in jobs {
            let is_due = table.0.get(&job.key).is_some_and(|slot| slot.due <= now);
            if is_due && table.is_idle(&job.key) && table.under_way() < MAX_UNDER_WAY {
                self.begin(&mut table, &job.key, job.work);
            }
            let Some(slot) = table.0.get(&job.key) else { continue };
            let due = match slot.state {
                State::Ready(_) => now,
                State::Idle => slot.due.max(now + FIRST_RETRY),
                // Its end is an event.
                State::UnderWay(_) => now + LONGEST_RETRY,
            };
            progress = progress.and(Progress { news: slot.news, due: Some(due) });
        }
        progress
    }

    /// Makes the next attempts due now.
    #[cfg(test)]
    pub(crate) fn make_due(&self) {
        self.table().0.values_mut().for_each(|slot| slot.due = Instant::now());
    }

    /// Begins an attempt on a thread of its own.
    fn begin(&self, table: &mut Table<T>, key: &str, work: Work<T>) {
        let Some(slot) = table.0.get_mut(key) else { return };
        let begun = Instant::now();
        slot.attempts = slot.attempts.saturating_add(1);
        slot.due = begun + interval(slot.attempts);
        slot.state = State::UnderWay(begun);
        let (shared, wake, key) = (Arc::clone(&self.table), self.wake.clone(), key.to_owned());
        let run = {
            let key = key.clone();
            move || {
                let work = std::panic::AssertUnwindSafe(work);
                let result = std::panic::catch_unwind(work).unwrap_or_else(|_| {
                    Err(Fault::absent("the attempt panicked".into(), "report this bug"))
                });
                let mut table = shared.0.lock().unwrap_or_else(PoisonError::into_inner);
                let unused = table.end(&key, result);
                drop(table);
                shared.1.notify_all();
                wake.wake();
                // Closes a file or device, which may take long.
                drop(unused);
            }
        };
        let thread = std::thread::Builder::new().name("zgate-open".to_owned()).spawn(run);
        if let Err(error) = thread {
            let fault = Fault::absent(format!("cannot start a thread: {error}"), "raise TasksMax");
            drop(table.end(&key, Err(fault)));
        }
    }
}

/// Drops results that nobody wants. That closes files or devices, which may
/// take long.
fn close<T: Send + 'static>(unused: Vec<T>) {
    if !unused.is_empty() {
        // Without a thread they are closed here.
        let closing = std::thread::Builder::new().name("zgate-open".to_owned());
        let _ = closing.spawn(move || drop(unused));
    }
}

impl<T> Table<T> {
    /// Changes the slots of these items.
    fn slots(&mut self, keys: &[String], change: impl Fn(&mut Slot<T>)) {
        for key in keys {
            self.0.get_mut(key).into_iter().for_each(&change);
        }
    }

    /// Adds the items.
    fn add(&mut self, jobs: &[Job<T>]) {
        let due = Instant::now();
        for job in jobs {
            let slot = self.0.entry(job.key.clone()).or_insert_with(|| Slot {
                state: State::Idle,
                fault: None,
                news: false,
                attempts: 0,
                due,
                wanted: true,
                awaited: 0,
            });
            slot.wanted = true;
        }
    }

    /// Adds the items, and forgets all others that nobody waits for. Returns results
    /// of theirs.
    fn want(&mut self, jobs: &[Job<T>]) -> Vec<T> {
        self.0.values_mut().for_each(|slot| slot.wanted = slot.awaited > 0);
        self.add(jobs);
        // One that is under way is remembered, so that no second one begins.
        let is_forgotten = |_: &String, slot: &mut Slot<T>| {
            !slot.wanted && !matches!(slot.state, State::UnderWay(_))
        };
        let forgotten = self.0.extract_if(is_forgotten);
        let result = |(_, slot): (String, Slot<T>)| match slot.state {
            State::Ready(result) => Some(result),
            _ => None,
        };
        forgotten.filter_map(result).collect()
    }

    fn is_idle(&self, key: &str) -> bool {
        self.0.get(key).is_some_and(|slot| matches!(slot.state, State::Idle))
    }

    fn is_ready(&self, key: &str) -> bool {
        self.0.get(key).is_some_and(|slot| matches!(slot.state, State::Ready(_)))
    }

    /// Returns the number of attempts under way that do not hang.
    fn under_way(&self) -> usize {
        let is_young = |slot: &&Slot<T>| match slot.state {
            State::UnderWay(begun) => begun.elapsed() < HANGS_AFTER,
            _ => false,
        };
        self.0.values().filter(is_young).count()
    }

    /// Records the end of an attempt; returns a result that nobody wants.
    fn end(&mut self, key: &str, result: Result<T, Fault>) -> Option<T> {
        let Some(slot) = self.0.get_mut(key) else { return result.ok() };
        slot.state = State::Idle;
        match result {
            Ok(result) if slot.wanted => {
                slot.state = State::Ready(result);
                slot.news = true;
            }
            Ok(result) => {
                self.0.remove(key);
                return Some(result);
            }
            Err(fault) => {
                slot.news |= slot.fault.as_ref() != Some(&fault);
                slot.fault = Some(fault);
            }
        }
        None
    }

    /// Returns the result of the last attempt.
    fn take(&mut self, key: &str) -> Result<T, Fault> {
        let Some(slot) = self.0.get_mut(key) else { return Err(Fault::unknown()) };
        slot.news = false;
        match std::mem::replace(&mut slot.state, State::Idle) {
            State::Ready(result) => Ok(result),
            State::UnderWay(begun) => {
                slot.state = State::UnderWay(begun);
                let seconds = begun.elapsed().as_secs();
                Err(Fault::absent(
                    format!("no answer for {seconds} s"),
                    "check its pool, device or name server; it is used as soon as it answers",
                ))
            }
            State::Idle => Err(slot.fault.clone().unwrap_or_else(Fault::unknown)),
        }
    }
}

#[cfg(test)]
#[path = "attempts_tests.rs"]
mod tests;
