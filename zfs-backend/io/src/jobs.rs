//! Jobs of workers in progress, in the process and for each core: a core that
//! polls takes a processor that workers need.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Notify;

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
}

impl JobInProgress {
    /// Counts a job that this thread asks for.
    #[must_use]
    pub fn begin() -> Self {
        // A thread that is ending has no core any more.
        let core = CORE.try_with(|core| core.borrow().clone()).ok().flatten();
        IN_PROGRESS.fetch_add(1, Ordering::Relaxed);
        if let Some(core) = &core {
            core.in_progress.fetch_add(1, Ordering::Relaxed);
        }
        Self { core }
    }

    /// Counts the jobs that this thread asks for from now on as those of the same
    /// core: they belong to the request that the job's worker continues.
    pub(crate) fn continue_here(&self) {
        CORE.set(self.core.clone());
    }

    /// Tells the core that the job's replies are sent. The process counts the job until it is
    /// dropped: its worker still needs a processor.
    pub(crate) fn answered(&mut self) {
        if let Some(core) = self.core.take()
            && core.in_progress.fetch_sub(1, Ordering::AcqRel) == 1
        {
            core.ended.notify_one();
        }
    }
}

impl Drop for JobInProgress {
    fn drop(&mut self) {
        IN_PROGRESS.fetch_sub(1, Ordering::Relaxed);
        self.answered();
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
}
