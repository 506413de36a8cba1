//! Changes of client records being written to stable storage: one at a time for
//! each client, in order, without a lock. Callers wait asynchronously for a
//! change, or for its end before granting state.

use super::recovery::{ClientRecord, Completion, KeptRecords, RecoveryStore};
use crate::limits::{
    MAX_RECORD_WRITES, RECORD_LOG_PAUSE_SECONDS, RECORD_RETRY_SECONDS, RECORD_WAIT_MILLISECONDS,
};
use crate::runtime::{Runtime, within};
use crate::v4::tables::pending_work::{PendingWork, WorkGuard};
use ahash::HashMap;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use zgate_nfs_wire::v4::Status;
use zgate_store::StoreResult;

/// A record that is being written.
pub struct RecordWrite(Arc<Outcome>);

/// All changes that are not on stable storage yet.
pub struct ClientRecords {
    inner: Arc<Inner>,
}

struct Inner {
    store: Arc<dyn RecoveryStore>,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    clients: HashMap<Vec<u8>, Changes>,
    /// Number of records being written.
    writes: usize,
    next_line_seconds: u64,
}

/// Pending changes of one client's record.
#[derive(Default)]
struct Changes {
    /// The change in progress.
    running: Option<Step>,
    /// The record to be written, now or next, and its waiters.
    write: Option<Write>,
    /// The record must be removed, replaced by `mark`, or written again; held until
    /// one of them is durable.
    removal: Option<WorkGuard>,
    /// The record that takes the place of the removed one: with it, too, the client may
    /// reclaim nothing, or it knows now what it has lost ([`ClientRecords::restore`]).
    mark: Option<ClientRecord>,
    /// The write was asked for before the removal: it is not that of a client that
    /// is back since, and the removal follows it.
    is_outdated: bool,
    /// The removal in progress began with another `mark`: it is done once more.
    is_superseded: bool,
    /// Time at which this was first seen unfinished, in seconds.
    since_seconds: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Write,
    /// The record goes, or its mark takes its place.
    Remove,
}

struct Write {
    record: ClientRecord,
    outcome: Arc<Outcome>,
}

/// Result for the waiters of a record.
#[derive(Default)]
struct Outcome {
    state: Mutex<OutcomeState>,
}

#[derive(Default)]
struct OutcomeState {
    known: Option<StoreResult<()>>,
    /// In the order in which they came, which is that in which they are woken.
    waiting: BTreeMap<u64, Waker>,
    next_waiter: u64,
}

/// Pending changes, for display.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordBacklog {
    /// Records to be written or removed.
    pub changes: usize,
    /// Age of the oldest one in seconds.
    pub oldest_seconds: u64,
}

impl ClientRecords {
    /// No changes yet, on this storage.
    pub fn new(store: Arc<dyn RecoveryStore>) -> Self {
        Self { inner: Arc::new(Inner { store, queue: Mutex::default() }) }
    }

    /// Records of the previous server start.
    pub fn load(&self) -> KeptRecords {
        self.inner.store.load()
    }

    /// Begins to write a record to stable storage. Requests for the same record during
    /// the write wait for the same write. The caller has held the tables since it made the
    /// record of them: one made before a mark or a removal, and begun after it, would
    /// take its place.
    ///
    /// # Errors
    /// [`Status::Delay`] if the storage has [`MAX_RECORD_WRITES`] to write, or another
    /// record of this name.
    pub fn begin(&self, record: ClientRecord) -> Result<RecordWrite, Status> {
        self.inner.begin_write(record).map(RecordWrite)
    }

    /// Waits until a record is on stable storage.
    ///
    /// # Errors
    /// [`Status::Delay`] if the storage fails, or does not answer within
    /// [`RECORD_WAIT_MILLISECONDS`]. The write continues.
    pub async fn kept(&self, runtime: &dyn Runtime, write: RecordWrite) -> Result<(), Status> {
        match within(runtime, RECORD_WAIT_MILLISECONDS, write.0.wait()).await {
            Some(Ok(())) => Ok(()),
            Some(Err(error)) => {
                if self.inner.queue().may_log(runtime.now().seconds()) {
                    tracing::error!(
                        ?error,
                        "a client record cannot be written to the state directory; new clients \
                         must wait: free space there, or repair its disk"
                    );
                }
                Err(Status::Delay)
            }
            None => Err(Status::Delay),
        }
    }

    /// Removes a client's record. Its state may be granted to others when the
    /// returned work has ended: until then the client could reclaim it. A
    /// failed removal is retried; a new record of the client replaces it.
    pub fn forget(&self, name: &[u8]) -> PendingWork {
        self.inner.begin_removal(name, None)
    }

    /// Writes a record under which its client may reclaim nothing, in place of the one under
    /// which it could: the same as [`Self::forget`] for all who wait for it, and retried as
    /// a removal is.
    pub fn mark(&self, record: ClientRecord) -> PendingWork {
        let name = record.name.clone();
        self.inner.begin_removal(&name, Some(record))
    }

    /// Writes the record of a client that has acknowledged what its mark stood for, if
    /// [`Self::begin`] has failed, or that needs to acknowledge nothing any more: it is retried
    /// as a removal is. The returned work ends when the record is on stable storage, unless
    /// another mark or a removal takes its place.
    pub fn restore(&self, record: ClientRecord) -> PendingWork {
        self.mark(record)
    }

    /// True if no change of this name's record is under way.
    #[must_use]
    pub fn is_settled(&self, name: &[u8]) -> bool {
        !self.inner.queue().clients.contains_key(name)
    }

    /// To be called about once a second: retries failed removals and marks, and logs
    /// storage that makes no progress.
    pub fn tick(&self, now_seconds: u64) {
        let (retry, stuck) = self.inner.due(now_seconds);
        for name in retry {
            self.inner.start_next(&name);
        }
        if let Some(RecordBacklog { changes, oldest_seconds }) = stuck {
            tracing::error!(
                changes,
                oldest_seconds,
                "client records cannot be written to the state directory; new clients wait, and \
                 so do requests for state of expired clients and for files of revoked \
                 delegations: free space there, or repair its disk"
            );
        }
    }

    /// Changes that are not on stable storage yet.
    #[must_use]
    pub fn backlog(&self, now_seconds: u64) -> RecordBacklog {
        self.inner.queue().backlog(now_seconds)
    }
}

impl Inner {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin_write(self: &Arc<Self>, record: ClientRecord) -> Result<Arc<Outcome>, Status> {
        let name = record.name.clone();
        let outcome = {
            let mut queue = self.queue();
            let changes = queue.clients.get(&name);
            let is_outdated = changes.is_some_and(|changes| changes.is_outdated);
            match changes.and_then(|changes| changes.write.as_ref()) {
                Some(write) if write.record == record && !is_outdated => {
                    return Ok(Arc::clone(&write.outcome));
                }
                // Two clients with one name, of which the later one must retry, or a
                // record that is removed as soon as it is written.
                Some(_) => return Err(Status::Delay),
                None if queue.writes >= MAX_RECORD_WRITES => return Err(Status::Delay),
                None => {}
            }
            queue.writes += 1;
            let outcome = Arc::<Outcome>::default();
            let changes = queue.clients.entry(name.clone()).or_default();
            changes.write = Some(Write { record, outcome: Arc::clone(&outcome) });
            outcome
        };
        self.start_next(&name);
        Ok(outcome)
    }

    fn begin_removal(self: &Arc<Self>, name: &[u8], mark: Option<ClientRecord>) -> PendingWork {
        let pending = {
            let mut queue = self.queue();
            let changes = queue.clients.entry(name.to_vec()).or_default();
            changes.is_outdated = changes.write.is_some();
            let is_removing = changes.running == Some(Step::Remove);
            changes.is_superseded |= is_removing && changes.mark != mark;
            changes.mark = mark;
            changes.removal.get_or_insert_default().pending()
        };
        self.start_next(name);
        pending
    }

    /// Starts the next change of a client, if none is in progress. Writing a
    /// record has priority: its client is active.
    fn start_next(self: &Arc<Self>, name: &[u8]) {
        let record = {
            let mut queue = self.queue();
            let Some(changes) = queue.clients.get_mut(name) else { return };
            if changes.running.is_some() {
                return;
            }
            let record = changes.write.as_ref().map(|write| &write.record);
            let step = if record.is_some() { Step::Write } else { Step::Remove };
            let record = record.or(changes.mark.as_ref()).cloned();
            changes.running = Some(step);
            record
        };
        let (me, of) = (Arc::clone(self), name.to_vec());
        let done = Completion::new(move |outcome| me.finished(&of, outcome));
        match record {
            Some(record) => self.store.put(record, done),
            None => self.store.remove(name.to_vec(), done),
        }
    }

    fn finished(self: &Arc<Self>, name: &[u8], outcome: StoreResult<()>) {
        let (told, again) = {
            let mut queue = self.queue();
            let Some(changes) = queue.clients.get_mut(name) else { return };
            let step = changes.running.take();
            let told = changes.write.take_if(|_| step == Some(Step::Write));
            let is_superseded = std::mem::take(&mut changes.is_superseded);
            if outcome.is_ok() && !changes.is_outdated && !is_superseded {
                (changes.removal, changes.mark) = (None, None);
            }
            changes.is_outdated &= changes.write.is_some();
            // A failed removal waits for the next attempt (`due`).
            let removes_next = told.is_some() || is_superseded;
            let again = changes.write.is_some() || removes_next && changes.removal.is_some();
            if changes.write.is_none() && changes.removal.is_none() {
                queue.clients.remove(name);
            }
            queue.writes -= usize::from(told.is_some());
            (told, again)
        };
        if let Some(write) = told {
            write.outcome.settle(outcome);
        }
        if again {
            self.start_next(name);
        }
    }

    /// Removals to be retried, and the backlog to be logged.
    fn due(&self, now_seconds: u64) -> (Vec<Vec<u8>>, Option<RecordBacklog>) {
        let mut queue = self.queue();
        for changes in queue.clients.values_mut() {
            changes.since_seconds.get_or_insert(now_seconds);
        }
        let mut retry = Vec::new();
        if now_seconds.is_multiple_of(RECORD_RETRY_SECONDS) {
            let failed = queue.clients.iter().filter(|(_, changes)| changes.running.is_none());
            retry = failed.map(|(name, _)| name.clone()).collect();
        }
        let backlog = queue.backlog(now_seconds);
        let stuck = backlog.oldest_seconds >= RECORD_RETRY_SECONDS && queue.may_log(now_seconds);
        (retry, stuck.then_some(backlog))
    }
}

impl Queue {
    /// Returns whether another line may be logged, and delays the next one.
    fn may_log(&mut self, now_seconds: u64) -> bool {
        let may = now_seconds >= self.next_line_seconds;
        if may {
            self.next_line_seconds = now_seconds + RECORD_LOG_PAUSE_SECONDS;
        }
        may
    }

    fn backlog(&self, now_seconds: u64) -> RecordBacklog {
        let ages = self.clients.values().filter_map(|changes| changes.since_seconds);
        let oldest = ages.min().unwrap_or(now_seconds);
        RecordBacklog {
            changes: self.clients.len(),
            oldest_seconds: now_seconds.saturating_sub(oldest),
        }
    }
}

impl Outcome {
    fn state(&self) -> MutexGuard<'_, OutcomeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn settle(&self, outcome: StoreResult<()>) {
        let waiting = {
            let mut state = self.state();
            state.known = Some(outcome);
            std::mem::take(&mut state.waiting)
        };
        waiting.into_values().for_each(Waker::wake);
    }

    async fn wait(&self) -> StoreResult<()> {
        let waiter = Waiter::of(self);
        poll_fn(|context| {
            let mut state = self.state();
            match state.known {
                Some(outcome) => Poll::Ready(outcome),
                None => {
                    state.waiting.insert(waiter.number, context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }
}

/// Removes the waker of a request that no longer waits.
struct Waiter<'a> {
    outcome: &'a Outcome,
    number: u64,
}

impl<'a> Waiter<'a> {
    fn of(outcome: &'a Outcome) -> Self {
        let mut state = outcome.state();
        state.next_waiter += 1;
        Self { outcome, number: state.next_waiter }
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.outcome.state().waiting.remove(&self.number);
    }
}
