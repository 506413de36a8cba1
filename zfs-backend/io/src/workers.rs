//! A pool of threads for blocking calls. It grows while stores need more
//! workers than it has, and shrinks when they are idle.

mod long_call;
mod processor;

use crate::after_reply::do_what_is_left;
use crate::continuation::{self, Place};
use crate::credentials;
use crate::hang_detector::LOOK_INTERVAL;
use crate::jobs::JobInProgress;
use crate::queue::{Demand, Hanging, JobState, Limits, Queues, StoreSlot};
use crate::stores::Stores;
use processor::Sleeper;
use std::any::Any;
use std::cell::Cell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use zgate_store::Caller;

/// Most workers for short calls that continue requests, beside those in long
/// calls. Where more are busy, a request returns to its core after each call: in
/// one directory all of them would wait for the same lock, and the core answers
/// several requests together.
const MAX_CONTINUING: usize = 4;

/// Most workers of all stores together in one pool; each store may have one
/// beyond it, and another one in a long call.
pub(crate) const MAX_WORKERS: usize = 256;
/// Most jobs of one store that wait for a worker. Requests are bounded on
/// admission; this bound is for all connections together.
pub(crate) const MAX_QUEUED: usize = 16_384;
/// Idle time after which a worker beyond the permanent ones ends.
const IDLE: Duration = Duration::from_secs(10);

/// Identity under which a job runs.
#[derive(Clone, Debug)]
pub(crate) enum RunAs {
    /// The process's own.
    Process,
    /// That of a caller.
    Caller(Caller),
    /// Whichever the worker has from the job before: to take on another one costs five system
    /// calls. The job makes no call that depends on the identity.
    Anyone,
}

impl RunAs {
    fn take_on(&self) -> io::Result<()> {
        match self {
            Self::Process => {
                credentials::restore();
                Ok(())
            }
            Self::Caller(who) => credentials::assume(who),
            Self::Anyone => Ok(()),
        }
    }
}

/// A job with the identity it runs under. The job is called with an error if the
/// identity could not be taken on or the job was refused.
struct Job {
    identity: RunAs,
    work: Box<dyn FnOnce(io::Result<()>) + Send>,
    counted: JobInProgress,
}

struct Pool {
    queues: Queues<Job>,
    /// Sleeping workers; the last one to fall asleep has the warmest caches and
    /// is woken first, if no other one is bound to the processor that is wanted.
    asleep: Vec<Arc<Sleeper>>,
    /// Number of workers, including those being started.
    threads: usize,
    /// Number of workers to be started.
    wanted: usize,
    /// Number of workers that could not be started.
    missing: usize,
    /// Set while jobs may wait for a store that hangs, or for a worker that could not be
    /// started: the attendant checks the stores.
    watched: bool,
    closed: bool,
}

struct Shared {
    name: String,
    kind: WorkerKind,
    stores: Arc<Stores>,
    pool: Mutex<Pool>,
    /// Wakes the attendant to start workers or to check stores.
    attention: Condvar,
    /// Number of permanent workers.
    base: usize,
    /// Number of starts of a worker that fail.
    #[cfg(test)]
    failing_starts: std::sync::atomic::AtomicUsize,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start_worker(self: &Arc<Self>) -> io::Result<()> {
        #[cfg(test)]
        tests::fail_if_asked(&self.failing_starts)?;
        let shared = Arc::clone(self);
        std::thread::Builder::new()
            .name(format!("zgate-{}", self.name))
            .spawn(move || serve(&shared))
            .map(|_| ())
    }

    /// Checks the stores that jobs wait for, and refuses jobs of those that
    /// hang. Workers that could not be started are tried again if jobs need them.
    fn look(&self) {
        let hanging = {
            let mut pool = self.lock();
            let hanging = pool.queues.look();
            let needed = pool.queues.busy_workers().saturating_sub(pool.threads);
            let again = std::mem::take(&mut pool.missing).min(needed);
            pool.threads += again;
            pool.wanted += again;
            pool.watched = pool.queues.has_waiting();
            hanging
        };
        for Hanging { store, in_flight, refused } in hanging {
            tracing::warn!(
                store = %self.stores.name(store), workers = self.name, calls = in_flight,
                sent_away = refused.len(),
                "the storage does not answer; its requests are refused with \"try again later\" \
                 until it does, other storage is not affected"
            );
            refused.into_iter().for_each(|job| (job.work)(Err(hangs())));
        }
    }
}

/// Error of a job whose store hangs or is overloaded: try again later.
pub(crate) fn hangs() -> io::Error {
    io::Error::from_raw_os_error(libc::ENOBUFS)
}

/// Engine of a pool of workers, and the calls that they run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorkerKind {
    /// Number of the engine.
    pub(crate) engine: usize,
    /// Set if the calls may take long.
    pub(crate) takes_long_calls: bool,
}

impl WorkerKind {
    fn at(self, store: StoreSlot) -> Place {
        let Self { engine, takes_long_calls } = self;
        Place { engine, store, takes_long_calls }
    }
}

/// A pool of worker threads, which end when it is dropped and the queues are
/// empty.
pub(crate) struct Workers {
    shared: Arc<Shared>,
}

impl Workers {
    /// Starts the permanent threads, as many as one store may use with one in a
    /// long call, and the attendant that starts more: a thread inherits identity
    /// and priority of its creator, and the attendant's are the process's own.
    pub(crate) fn start(
        name: &str,
        kind: WorkerKind,
        limits: Limits,
        stores: &Arc<Stores>,
    ) -> io::Result<Self> {
        let queues = Queues::new(limits);
        let per_store = queues.limits().per_store;
        // One more for short calls while another one is in a long call. A store with a
        // single worker has none to spare for long calls.
        let base = per_store + usize::from(!kind.takes_long_calls && per_store > 1);
        let pool = Pool {
            queues,
            asleep: Vec::new(),
            threads: base,
            wanted: 0,
            missing: 0,
            watched: false,
            closed: false,
        };
        let shared = Arc::new(Shared {
            name: name.to_owned(),
            kind,
            stores: Arc::clone(stores),
            pool: Mutex::new(pool),
            attention: Condvar::new(),
            base,
            #[cfg(test)]
            failing_starts: std::sync::atomic::AtomicUsize::new(0),
        });
        let workers = Self { shared: Arc::clone(&shared) };
        for _ in 0..base {
            shared.start_worker()?;
        }
        std::thread::Builder::new()
            .name(format!("zgate-{name}-a"))
            .spawn(move || attend(&shared))?;
        Ok(workers)
    }

    /// Returns whether a worker of the store would begin a job at once.
    pub(crate) fn has_room(&self, store: StoreSlot) -> bool {
        self.shared.lock().queues.has_room(store)
    }

    /// Returns whether a worker of the store continues the caller, and may make a call that
    /// is one for these workers. If so, the other requests that wait for that worker are sent
    /// to their cores: they do not wait for the call.
    pub(crate) fn continues_caller(&self, store: StoreSlot) -> bool {
        continuation::may_run_here(self.shared.kind.at(store))
    }

    /// Returns whether a call of the caller would begin at once: on this thread, if a worker
    /// of the store continues the caller, or on a worker that is free.
    pub(crate) fn begins_at_once(&self, store: StoreSlot) -> bool {
        self.continues_caller(store) || self.has_room(store)
    }

    /// Runs `work` on a worker: on this thread, if a worker of the store
    /// continues the caller. A panic propagates to the caller.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        (store, demand): (StoreSlot, Demand),
        identity: RunAs,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        if self.continues_caller(store) {
            return on_this_worker(&identity, work);
        }
        let (done, result) = oneshot::channel::<io::Result<Result<T, Box<dyn Any + Send>>>>();
        let work = Box::new(move |taken_on: io::Result<()>| {
            let outcome = taken_on.map(|()| catch_unwind(AssertUnwindSafe(work)));
            // If the request was dropped, nothing receives the result; that is
            // fine.
            let _ = done.send(outcome);
        });
        let job = Job { identity, work, counted: JobInProgress::begin() };
        if self.push(store, demand, job).is_err() {
            return Err(hangs());
        }
        match result.await {
            Ok(Ok(Ok(value))) => Ok(value),
            Ok(Ok(Err(panic))) => resume_unwind(panic),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(io::Error::other("the worker pool has ended")),
        }
    }

    /// Runs `work` under the process's own identity, without waiting for it.
    pub(crate) fn detach(&self, store: StoreSlot, work: impl FnOnce() + Send + 'static) {
        let work = Box::new(move |_| {
            // The panic hook has reported the panic; the worker continues.
            let _ = catch_unwind(AssertUnwindSafe(work));
        });
        let job = Job { identity: RunAs::Process, work, counted: JobInProgress::begin() };
        // Accepted however many jobs wait.
        let _ = self.push(store, Demand::Certain, job);
    }

    fn push(&self, store: StoreSlot, demand: Demand, job: Job) -> Result<(), Job> {
        let processor = job.counted.processor();
        let mut pool = self.shared.lock();
        let (mut worker, mut attendant) = (None, false);
        match pool.queues.push(store, demand, job)? {
            JobState::Ready { first } => {
                worker = processor::take(&mut pool.asleep, processor);
                let most = pool.queues.limits().total + pool.queues.in_long_calls();
                let room = first || pool.threads < most;
                // A worker that has just finished a job takes it before it
                // falls asleep.
                if worker.is_none() && room && pool.queues.busy_workers() > pool.threads {
                    pool.threads += 1;
                    pool.wanted += 1;
                    attendant = true;
                }
            }
            JobState::Waiting => attendant = !std::mem::replace(&mut pool.watched, true),
        }
        drop(pool);
        if let Some(worker) = worker {
            worker.wake_on(processor);
        }
        if attendant {
            self.shared.attention.notify_one();
        }
        Ok(())
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        let mut pool = self.shared.lock();
        pool.closed = true;
        pool.asleep.drain(..).for_each(|worker| worker.wake());
        drop(pool);
        self.shared.attention.notify_one();
    }
}

/// Starts workers when they are needed, and checks for stores that hang.
fn attend(shared: &Arc<Shared>) {
    let mut next_look: Option<Instant> = None;
    let mut pool = shared.lock();
    while !pool.closed {
        if pool.wanted > 0 {
            let wanted = std::mem::take(&mut pool.wanted);
            drop(pool);
            let failed = (0..wanted).filter_map(|_| shared.start_worker().err()).count();
            pool = shared.lock();
            if failed > 0 {
                pool.threads -= failed;
                pool.missing += failed;
                pool.watched = true;
                tracing::warn!(
                    workers = shared.name,
                    failed,
                    "workers cannot be started; they are tried again while requests wait for them"
                );
            }
            continue;
        }
        if !pool.watched {
            next_look = None;
            pool = shared.attention.wait(pool).unwrap_or_else(PoisonError::into_inner);
            continue;
        }
        let now = Instant::now();
        let due = *next_look.get_or_insert(now + LOOK_INTERVAL);
        if now < due {
            let waited = shared.attention.wait_timeout(pool, due - now);
            pool = waited.unwrap_or_else(PoisonError::into_inner).0;
            continue;
        }
        next_look = None;
        drop(pool);
        shared.look();
        pool = shared.lock();
    }
}

thread_local! {
    static THIS_WORKER: Arc<Sleeper> = Arc::new(Sleeper::of_this_thread());
    static IN_JOB: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether a job of a worker of an engine runs, which may therefore
/// wait for a disk.
#[must_use]
pub fn on_a_worker() -> bool {
    IN_JOB.get()
}

/// Marks that a job runs on this thread until it is dropped.
struct InJob;

impl InJob {
    fn begin() -> Self {
        IN_JOB.set(true);
        Self
    }
}

impl Drop for InJob {
    fn drop(&mut self) {
        IN_JOB.set(false);
    }
}

/// Runs a call of a request that a worker continues.
fn on_this_worker<T>(identity: &RunAs, work: impl FnOnce() -> T) -> io::Result<T> {
    let _job = InJob::begin();
    identity.take_on()?;
    Ok(work())
}

fn serve(shared: &Shared) {
    continuation::become_worker();
    let mut ended = None;
    while let Some(Next { store, job, running }) = next(shared, ended.take()) {
        let continues = shared.kind.takes_long_calls || running <= MAX_CONTINUING;
        let Job { identity, work, mut counted } = job;
        THIS_WORKER.with(|worker| worker.bind(counted.begun()));
        counted.continue_here();
        continuation::after(shared.kind.at(store), continues, || {
            let _job = InJob::begin();
            work(identity.take_on());
        });
        // The worker has sent the replies of the requests that it continued.
        counted.answered();
        {
            let _job = InJob::begin();
            do_what_is_left();
        }
        ended = Some((store, counted));
    }
}

/// A job that a worker has taken.
struct Next {
    store: StoreSlot,
    job: Job,
    /// Number of jobs that run, with this one and without long calls.
    running: usize,
}

/// Takes the next job, after one of the store `ended` has ended.
fn next(shared: &Shared, ended: Option<(StoreSlot, JobInProgress)>) -> Option<Next> {
    let (ended, mut counted) = ended.unzip();
    let mut pool = shared.lock();
    if let Some(store) = ended
        && long_call::end_job(&mut pool.queues, store)
    {
        tracing::info!(store = %shared.stores.name(store), "the storage answers again");
    }
    loop {
        if let Some((store, job)) = pool.queues.take() {
            return Some(Next { store, job, running: pool.queues.running() });
        }
        if pool.closed {
            return None;
        }
        // Polling for a moment before sleeping does not pay: where cores are
        // scarce, a polling thread is scheduled later than a woken one.
        pool = sleep(shared, pool, counted.take())?;
    }
}

/// Sleeps until another thread takes the worker off the list of sleeping
/// workers; `None` if the worker is surplus and should end.
fn sleep<'a>(
    shared: &'a Shared,
    mut pool: MutexGuard<'a, Pool>,
    mut ended: Option<JobInProgress>,
) -> Option<MutexGuard<'a, Pool>> {
    let me = THIS_WORKER.with(Arc::clone);
    me.set_asleep(true);
    pool.asleep.push(Arc::clone(&me));
    loop {
        let spare = pool.threads > shared.base;
        drop(pool);
        // Tells a core that has this processor: the worker could not go on beside it.
        drop(ended.take());
        let since = Instant::now();
        if spare {
            std::thread::park_timeout(IDLE);
        } else {
            std::thread::park();
        }
        pool = shared.lock();
        let Some(at) = pool.asleep.iter().position(|worker| Arc::ptr_eq(worker, &me)) else {
            me.set_asleep(false);
            return Some(pool);
        };
        if pool.threads > shared.base && since.elapsed() >= IDLE {
            pool.asleep.remove(at);
            pool.threads -= 1;
            return None;
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
