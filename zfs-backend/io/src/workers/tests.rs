//! Tests of the pool of workers.

use super::*;
use crate::jobs::CoreJobs;
use std::sync::atomic::{AtomicUsize, Ordering};

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

const KIND: WorkerKind = WorkerKind { engine: 0, takes_long_calls: true };
const A: (StoreSlot, Demand) = (StoreSlot(0), Demand::Refusable);
const B: (StoreSlot, Demand) = (StoreSlot(1), Demand::Refusable);

fn pool_of(per_store: usize) -> Workers {
    pool_of_kind(KIND, per_store)
}

fn pool_of_kind(kind: WorkerKind, per_store: usize) -> Workers {
    let stores = Arc::new(Stores::default());
    let limits = Limits { per_store, total: MAX_WORKERS, queued: MAX_QUEUED };
    Workers::start("test", kind, limits, &stores).unwrap()
}

/// Calls that block until the gate is opened.
struct Gate(std::sync::mpsc::Sender<()>, Arc<Mutex<std::sync::mpsc::Receiver<()>>>);

impl Gate {
    fn closed() -> Self {
        let (open, wait) = std::sync::mpsc::channel();
        Self(open, Arc::new(Mutex::new(wait)))
    }

    fn call(&self) -> impl FnOnce() + Send + 'static {
        let wait = Arc::clone(&self.1);
        move || {
            let _ = wait.lock().unwrap().recv();
        }
    }
}

/// Polls once, so that the job is queued.
fn begin<T>(job: &mut std::pin::Pin<Box<impl Future<Output = T>>>) -> bool {
    let mut task = std::task::Context::from_waker(std::task::Waker::noop());
    job.as_mut().poll(&mut task).is_ready()
}

#[test]
fn a_store_that_hangs_takes_only_itself() {
    let pool = pool_of(2);
    let gate = Gate::closed();
    let stick = |_| Box::pin(pool.run(A, RunAs::Process, gate.call()));
    let mut stuck: Vec<_> = (0..2).map(stick).collect();
    let mut waits = Box::pin(pool.run(A, RunAs::Process, || ()));
    assert!(stuck.iter_mut().all(|job| !begin(job)) && !begin(&mut waits));
    for number in 0..100 {
        assert_eq!(block_on(pool.run(B, RunAs::Process, move || number)).unwrap(), number);
    }
    // Waiting jobs are refused once the store is known to hang, and later
    // ones at once; a job that closes a file is kept.
    let closed = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let closing = Arc::clone(&closed);
    pool.detach(A.0, move || closing.store(true, std::sync::atomic::Ordering::SeqCst));
    while pool.shared.lock().queues.running() < 2 {
        std::thread::yield_now();
    }
    (0..crate::hang_detector::HANGING_LOOKS).for_each(|_| pool.shared.look());
    assert_eq!(block_on(waits).unwrap_err().raw_os_error(), Some(libc::ENOBUFS));
    assert!(block_on(pool.run(A, RunAs::Process, || ())).is_err());
    assert_eq!(block_on(pool.run(B, RunAs::Process, || 7)).unwrap(), 7);
    drop(gate.0);
    stuck.into_iter().for_each(|job| block_on(job).unwrap());
    assert_eq!(block_on(pool.run(A, RunAs::Process, || 8)).unwrap(), 8, "it answers again");
    assert!(closed.load(std::sync::atomic::Ordering::SeqCst));
}

/// Fails as many calls as the number says.
pub(super) fn fail_if_asked(failing: &AtomicUsize) -> io::Result<()> {
    let count_down = |left: usize| left.checked_sub(1);
    match failing.fetch_update(Ordering::SeqCst, Ordering::SeqCst, count_down) {
        Ok(_) => Err(io::ErrorKind::WouldBlock.into()),
        Err(_) => Ok(()),
    }
}

#[test]
fn a_worker_that_cannot_be_started_is_tried_again() {
    let pool = pool_of(1);
    let gate = Gate::closed();
    let mut stuck = Box::pin(pool.run(A, RunAs::Process, gate.call()));
    assert!(!begin(&mut stuck));
    while pool.shared.lock().queues.running() < 1 {
        std::thread::yield_now();
    }
    pool.shared.failing_starts.store(2, Ordering::SeqCst);
    let mut waits = Box::pin(pool.run(B, RunAs::Process, || 7));
    assert!(!begin(&mut waits));
    let fails = || pool.shared.failing_starts.load(Ordering::SeqCst) > 0;
    while fails() || pool.shared.lock().missing > 0 {
        // As the attendant does by itself a moment later.
        pool.shared.look();
        pool.shared.attention.notify_one();
        std::thread::yield_now();
    }
    assert_eq!(block_on(waits).unwrap(), 7);
    drop(gate.0);
    block_on(stuck).unwrap();
}

#[test]
fn a_pool_for_short_calls_has_a_thread_to_spare_for_a_long_one() {
    for (takes_long_calls, per_store, threads) in [(false, 3, 4), (false, 1, 1), (true, 3, 3)] {
        let kind = WorkerKind { takes_long_calls, ..KIND };
        let pool = pool_of_kind(kind, per_store);
        let started = pool.shared.lock().threads;
        assert_eq!((started, pool.shared.base), (threads, threads), "{per_store} workers");
    }
}

#[test]
fn idle_stores_cost_nothing() {
    let pool = pool_of(2);
    for store in 0..1000 {
        assert_eq!(block_on(pool.run((StoreSlot(store), A.1), RunAs::Process, || 1)).unwrap(), 1);
    }
    // A worker that has answered may not be back yet when the next store asks: another
    // one is started then. Their number does not grow with that of the stores.
    let threads = pool.shared.lock().threads;
    assert!((2..10).contains(&threads), "{threads} workers");
}

#[test]
fn jobs_count_for_the_core_whose_request_asks() {
    let pool = Arc::new(pool_of(1));
    let core = Arc::new(CoreJobs::default());
    core.count_here();
    let gate = Gate::closed();
    let (of_worker, call) = (Arc::clone(&pool), gate.call());
    block_on(pool.run(A, RunAs::Process, move || of_worker.detach(B.0, call))).unwrap();
    assert!(core.in_progress() > 0, "its worker has asked another one");
    drop(gate.0);
    block_on(core.ended());
    assert_eq!(core.in_progress(), 0);
}

#[test]
fn one_job_at_a_time_runs_on_the_processor_of_its_core() {
    let processors = || rustix::thread::sched_getaffinity(None).unwrap();
    let all = processors();
    let pool = pool_of(2);
    let core = Arc::new(CoreJobs::default());
    core.count_here();
    let run = || {
        let bound_to = block_on(pool.run(A, RunAs::Process, processors)).unwrap();
        block_on(core.ended());
        bound_to
    };
    (0..8).for_each(|_| assert_eq!(run(), all));
    // One that begins late on a busy machine runs anywhere, and so do the next 1032.
    assert!((0..20_000).any(|_| run().count() == 1));
    // Two at once, on one worker: it may not have slept in between.
    let gate = Gate::closed();
    let mut stuck = Box::pin(pool.run(A, RunAs::Process, gate.call()));
    assert!(!begin(&mut stuck));
    assert_eq!(block_on(pool.run(A, RunAs::Process, processors)).unwrap(), all);
    drop(gate.0);
    block_on(stuck).unwrap();
}

#[test]
fn many_jobs_all_answer() {
    let pool = pool_of(3);
    let total = block_on(async {
        let mut total = 0;
        for number in 0..1000u64 {
            total += pool.run(A, RunAs::Process, move || number).await.unwrap();
        }
        total
    });
    assert_eq!(total, 499_500);
}

#[test]
fn a_panic_reaches_the_caller_and_the_worker_lives_on() {
    let pool = pool_of(1);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _ = block_on(pool.run(A, RunAs::Process, || panic!("expected by the test")));
    }));
    assert!(panicked.is_err());
    assert_eq!(block_on(pool.run(A, RunAs::Process, || 5)).unwrap(), 5);
}

/// Returns the identity of this thread for file systems.
pub(super) fn fsuid() -> u32 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("Uid:")).unwrap().to_owned();
    line.split_whitespace().last().unwrap().parse().unwrap()
}

#[test]
fn jobs_run_as_the_identity_named() {
    if !credentials::can_switch() {
        return;
    }
    let pool = pool_of(1);
    let who = Caller { uid: 4321, gid: 5, groups: Arc::from([]) };
    assert_eq!(block_on(pool.run(A, RunAs::Caller(who), fsuid)).unwrap(), 4321);
    assert_eq!(block_on(pool.run(A, RunAs::Anyone, fsuid)).unwrap(), 4321, "its last one");
    assert_eq!(block_on(pool.run(A, RunAs::Process, fsuid)).unwrap(), 0);
    assert_eq!(block_on(pool.run(A, RunAs::Anyone, fsuid)).unwrap(), 0);
}
