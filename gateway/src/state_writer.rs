//! A thread that writes to the state directory for others: a disk that hangs
//! must delay neither a core nor the threads that serve data.

use std::io;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};
use tokio::sync::oneshot;

type Job = Box<dyn FnOnce() + Send>;

/// The thread. It ends when this is dropped and all work is done.
#[derive(Debug)]
pub(crate) struct StateWriter {
    jobs: Mutex<Sender<Job>>,
}

impl StateWriter {
    /// Starts the thread, with this name. Its users bound the queue: one change for each
    /// logical unit.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub(crate) fn start(thread: &str) -> io::Result<Self> {
        let (jobs, incoming) = channel::<Job>();
        std::thread::Builder::new()
            .name(thread.to_owned())
            .spawn(move || incoming.iter().for_each(|job| job()))?;
        Ok(Self { jobs: jobs.into() })
    }

    /// Has the thread do `work`, after all earlier work, and does not wait for it. If the
    /// thread has ended, it is not done.
    pub(crate) fn begin(&self, work: impl FnOnce() + Send + 'static) {
        let job: Job = Box::new(work);
        let _ = self.jobs.lock().unwrap_or_else(PoisonError::into_inner).send(job);
    }

    /// Runs `work` on the thread, after all earlier work.
    ///
    /// # Errors
    /// If the thread has ended.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        let (done, result) = oneshot::channel();
        let job: Job = Box::new(move || {
            // If the request was dropped, nothing receives the result; the work
            // is done.
            let _ = done.send(work());
        });
        // If the thread has ended, the job is dropped together with its result
        // channel.
        let _ = self.jobs.lock().unwrap_or_else(PoisonError::into_inner).send(job);
        result.await.map_err(|_| {
            io::Error::other("the thread that writes to the state directory has ended; restart")
        })
    }
}
