//! A thread that writes to the state directory for others: a disk below it that
//! hangs must hold up neither a core nor the threads that serve data.

use std::io;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};
use tokio::sync::oneshot;

type Job = Box<dyn FnOnce() + Send>;

/// The thread. It ends when this is dropped and what was asked for is done.
#[derive(Debug)]
pub(crate) struct StateWriter {
    jobs: Mutex<Sender<Job>>,
}

impl StateWriter {
    /// Starts it. The queue is bounded by who fills it: one change for each
    /// logical unit.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub(crate) fn start() -> io::Result<Self> {
        let (jobs, incoming) = channel::<Job>();
        std::thread::Builder::new()
            .name("zgate-state".to_owned())
            .spawn(move || incoming.iter().for_each(|job| job()))?;
        Ok(Self { jobs: jobs.into() })
    }

    /// Runs `work` there, after all that came before it.
    ///
    /// # Errors
    /// When the thread has ended.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        let (done, result) = oneshot::channel();
        let job: Job = Box::new(move || {
            // Nobody listens when the request was dropped; the work is done.
            let _ = done.send(work());
        });
        // A thread that ended drops the job, and the result with it.
        let _ = self.jobs.lock().unwrap_or_else(PoisonError::into_inner).send(job);
        result.await.map_err(|_| {
            io::Error::other("the thread that writes to the state directory has ended; restart")
        })
    }
}
