//! Jobs of workers in progress, in the process and for each core: a core that
//! polls takes a processor that workers need, and one that waits for a single job
//! leaves its own to that job's worker.

use crate::continuation::is_worker;
use rustix::thread::sched_getcpu;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Jobs of a core in a row, each asked for while the core had no other, after which the
/// next such job runs on the core's processor. Where several requests arrive together, the
/// worker of the first would wait until the core has read all of them.
const ALONE_BEFORE: i32 = 8;
/// Most receptions of data on a core from one job to the next, with that of the request that
/// asks for it: a core that has more to do answers from memory, and needs its processor itself.
const MAX_ARRIVALS: u32 = 8;
/// Longest time from the moment such a job is asked for until its worker begins. When
/// it is longer, others need the processor, too.
const LATEST_START: Duration = Duration::from_micros(500);
/// Longest time from the moment such a job is asked for until its replies are sent, after
/// which the next [`ALONE_BEFORE`] run on any processor. A longer one has waited for a disk:
/// two wake-ups matter little to it, and after each wait its worker could come back to a
/// processor on which the core, at a higher priority, serves other connections.
const LONGEST_JOB: Duration = Duration::from_millis(2);
/// Jobs without another one, after a late start, that run on any processor.
const AWAY_JOBS: i32 = 1024;

/// Jobs of the process that wait for a worker or run.
static IN_PROGRESS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static CORE: RefCell<Option<Arc<CoreJobs>>> = const { RefCell::new(None) };
}

/// Returns the number of jobs of the process that wait for a worker or run.
#[must_use]
pub fn in_progress() -> usize {
    IN_PROGRESS.load(Ordering::Relaxed)
}

/// Jobs in progress for the requests of one core.
#[derive(Debug, Default)]
pub struct CoreJobs {
    in_progress: AtomicUsize,
    /// Jobs in a row that were asked for while there was no other one; after a late start
    /// negative, so that more have to follow.
    alone: AtomicI32,
    /// Receptions of data, counted by the core alone.
    arrivals: AtomicU32,
    /// Their number when the last job was asked for.
    arrivals_before: AtomicU32,
    /// Tells the core of the end of the last one.
    ended: Notify,
}

impl CoreJobs {
    /// Counts the jobs that this thread asks for from now on.
    pub fn count_here(self: &Arc<Self>) {
        CORE.set(Some(Arc::clone(self)));
    }

    /// Returns the number of jobs that wait for a worker or run.
    #[must_use]
    pub fn in_progress(&self) -> usize {
        self.in_progress.load(Ordering::Acquire)
    }

    /// Records that a connection of this core received data.
    pub fn arrived(&self) {
        self.arrivals.store(self.arrivals().wrapping_add(1), Ordering::Relaxed);
    }

    /// Returns the number of times that this has been recorded; it wraps.
    #[must_use]
    pub fn arrivals(&self) -> u32 {
        self.arrivals.load(Ordering::Relaxed)
    }

    /// Counts a job that this thread asks for; returns whether it is to run on the processor
    /// of its core, which this thread then is.
    fn begin(&self) -> bool {
        let before = self.in_progress.fetch_add(1, Ordering::Relaxed);
        // What a worker asks for belongs to the job that the worker still has.
        if is_worker() {
            return false;
        }
        let arrivals = self.arrivals();
        let before_it = self.arrivals_before.swap(arrivals, Ordering::Relaxed);
        let is_idle = arrivals.wrapping_sub(before_it) <= MAX_ARRIVALS;
        let alone = self.alone.load(Ordering::Relaxed);
        let next = if before == 0 && is_idle { alone.saturating_add(1) } else { alone.min(0) };
        // A late start that a worker records meanwhile stays.
        let _ = self.alone.compare_exchange(alone, next, Ordering::Relaxed, Ordering::Relaxed);
        next > ALONE_BEFORE
    }

    /// Waits until there are none. One task at a time may wait. Cancel safe.
    pub async fn ended(&self) {
        while self.in_progress() > 0 {
            self.ended.notified().await;
        }
    }
}

/// A job, counted until it is dropped; its core counts it until it is answered.
#[derive(Debug)]
pub struct JobInProgress {
    core: Option<Arc<CoreJobs>>,
    /// The processor of the core, if the job is to run there, and when it was asked for.
    place: Option<(usize, Instant)>,
    /// Its core, if it is to be told of the end when the job is dropped.
    told_late: Option<Arc<CoreJobs>>,
}

impl JobInProgress {
    /// Counts a job that this thread asks for.
    #[must_use]
    pub fn begin() -> Self {
        // A thread that is ending has no core any more.
        let core = CORE.try_with(|core| core.borrow().clone()).ok().flatten();
        IN_PROGRESS.fetch_add(1, Ordering::Relaxed);
        let stays = core.as_ref().is_some_and(|core| core.begin());
        let place = stays.then(|| (sched_getcpu(), Instant::now()));
        Self { core, place, told_late: None }
    }

    /// Returns the processor on which the job is to run, if not on any.
    pub(crate) fn processor(&self) -> Option<usize> {
        self.place.map(|(processor, _)| processor)
    }

    /// Records that a worker begins the job. Returns the processor on which it is to run, if
    /// not on any: one that begins late runs on any, since others need that processor.
    pub(crate) fn begun(&mut self) -> Option<usize> {
        let (processor, asked) = self.place?;
        if asked.elapsed() <= LATEST_START {
            return Some(processor);
        }
        self.place = None;
        if let Some(core) = &self.core {
            core.alone.store(-AWAY_JOBS, Ordering::Relaxed);
        }
        None
    }

    /// Counts the jobs that this thread asks for from now on as those of the same
    /// core: they belong to the request that the job's worker continues.
    pub(crate) fn continue_here(&self) {
        CORE.set(self.core.clone());
    }

    /// Records that the job's replies are sent. The core is told of the end of its last job:
    /// at once, or when the job is dropped, if the core would keep the worker from the
    /// processor that they share. The process counts the job until it is dropped: its worker
    /// still needs a processor.
    pub(crate) fn answered(&mut self) {
        let Some(core) = self.core.take() else { return };
        if self.place.is_some_and(|(_, asked)| asked.elapsed() > LONGEST_JOB) {
            core.alone.fetch_min(0, Ordering::Relaxed);
        }
        if core.in_progress.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        if self.place.is_some() {
            self.told_late = Some(core);
        } else {
            core.ended.notify_one();
        }
    }
}

impl Drop for JobInProgress {
    fn drop(&mut self) {
        IN_PROGRESS.fetch_sub(1, Ordering::Relaxed);
        self.answered();
        if let Some(core) = self.told_late.take() {
            core.ended.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::{Context, Waker};

    #[test]
    fn a_core_is_told_of_the_end_of_its_last_job() {
        let core = Arc::new(CoreJobs::default());
        core.count_here();
        let (first, second) = (JobInProgress::begin(), JobInProgress::begin());
        Arc::new(CoreJobs::default()).count_here();
        let _of_another = JobInProgress::begin();
        assert_eq!(core.in_progress(), 2);
        assert!(in_progress() >= 3);
        let mut task = Context::from_waker(Waker::noop());
        let mut ended = Box::pin(core.ended());
        assert!(ended.as_mut().poll(&mut task).is_pending());
        drop(first);
        assert!(ended.as_mut().poll(&mut task).is_pending());
        drop(second);
        assert!(ended.as_mut().poll(&mut task).is_ready());
    }

    #[test]
    fn a_job_that_is_answered_counts_for_the_process_until_it_ends() {
        // More than all tests beside this one have.
        const MANY: usize = 10_000;
        let core = Arc::new(CoreJobs::default());
        core.count_here();
        let mut jobs: Vec<_> = (0..MANY).map(|_| JobInProgress::begin()).collect();
        assert_eq!(core.in_progress(), MANY);
        jobs.iter_mut().for_each(JobInProgress::answered);
        assert_eq!(core.in_progress(), 0);
        assert!(in_progress() >= MANY);
        drop(jobs);
        assert!(in_progress() < MANY);
        assert_eq!(core.in_progress(), 0, "each ends once");
    }

    /// Longer than a machine with other work keeps a test waiting.
    const A_MINUTE: Duration = Duration::from_secs(60);

    /// Creates a core of this thread after as many jobs as it takes for one on its processor.
    fn one_at_a_time() -> Arc<CoreJobs> {
        let core = Arc::new(CoreJobs::default());
        core.count_here();
        for _ in 0..ALONE_BEFORE {
            assert_eq!(JobInProgress::begin().processor(), None);
        }
        core
    }

    #[test]
    fn the_only_job_of_a_core_runs_on_its_processor() {
        let core = one_at_a_time();
        let alone = JobInProgress::begin();
        assert!(alone.processor().is_some());
        let beside = JobInProgress::begin();
        assert_eq!(beside.processor(), None);
        drop((alone, beside));
        assert_eq!(JobInProgress::begin().processor(), None, "several requests arrive together");
        (1..ALONE_BEFORE).for_each(|_| drop(JobInProgress::begin()));
        assert!(JobInProgress::begin().processor().is_some());
        assert_eq!(core.in_progress(), 0);
    }

    #[test]
    fn a_core_that_answers_others_from_memory_keeps_its_processor() {
        let core = one_at_a_time();
        (0..MAX_ARRIVALS).for_each(|_| core.arrived());
        assert!(JobInProgress::begin().processor().is_some());
        (0..=MAX_ARRIVALS).for_each(|_| core.arrived());
        for _ in 0..ALONE_BEFORE {
            assert_eq!(JobInProgress::begin().processor(), None);
        }
        core.arrived();
        assert_eq!(JobInProgress::begin().processor(), None);
        assert!(JobInProgress::begin().processor().is_some());
    }

    #[test]
    fn after_a_late_start_jobs_run_anywhere() {
        let _core = one_at_a_time();
        let mut late = JobInProgress::begin();
        late.place = late.place.map(|(at, asked)| (at, asked - 2 * LATEST_START));
        assert_eq!(late.begun(), None, "others need that processor");
        assert_eq!(late.processor(), None, "its core is told when it is answered");
        drop(late);
        for _ in 0..AWAY_JOBS {
            drop((JobInProgress::begin(), JobInProgress::begin()));
            assert_eq!(JobInProgress::begin().processor(), None);
        }
        (0..ALONE_BEFORE).for_each(|_| drop(JobInProgress::begin()));
        let mut in_time = JobInProgress::begin();
        in_time.place = in_time.place.map(|(at, asked)| (at, asked + A_MINUTE));
        assert!(in_time.begun().is_some());
    }

    #[test]
    fn after_a_long_job_some_run_anywhere() {
        let _core = one_at_a_time();
        let mut long = JobInProgress::begin();
        long.place = long.place.map(|(at, asked)| (at, asked - 2 * LONGEST_JOB));
        drop(long);
        for _ in 0..ALONE_BEFORE {
            assert_eq!(JobInProgress::begin().processor(), None);
        }
        let mut short = JobInProgress::begin();
        short.place = short.place.map(|(at, asked)| (at, asked + A_MINUTE));
        assert!(short.processor().is_some());
        drop(short);
        assert!(JobInProgress::begin().processor().is_some());
    }

    #[test]
    fn a_core_is_not_told_before_a_worker_on_its_processor_has_ended() {
        let core = one_at_a_time();
        let mut job = JobInProgress::begin();
        let mut task = Context::from_waker(Waker::noop());
        let mut ended = Box::pin(core.ended());
        assert!(ended.as_mut().poll(&mut task).is_pending());
        job.answered();
        assert_eq!(core.in_progress(), 0, "the next request is its only one");
        // The notification would be stored.
        assert!(Box::pin(core.ended.notified()).as_mut().poll(&mut task).is_pending());
        drop(job);
        assert!(ended.as_mut().poll(&mut task).is_ready());
    }
}
