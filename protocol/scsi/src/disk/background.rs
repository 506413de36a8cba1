//! Work that outlives the command that started it: SANITIZE goes on when its
//! I_T nexus is lost or the logical unit is reset (SBC-4 §4.11).

use super::Disk;
use super::signal::Signal;
use crate::command::sanitize::{self, Job};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Slows background work down, so that it leaves bandwidth to others. The
/// gateway owns the clock and therefore the pace.
pub trait Pacer: Send + Sync {
    /// Returns when another `bytes` may be written.
    fn pace<'a>(&'a self, bytes: u64) -> Pin<Box<dyn Future<Output = ()> + 'a>>;
}

/// Background work at full speed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unpaced;

impl Pacer for Unpaced {
    fn pace<'a>(&'a self, _bytes: u64) -> Pin<Box<dyn Future<Output = ()> + 'a>> {
        Box::pin(std::future::ready(()))
    }
}

/// The work to do and who waits for it.
#[derive(Debug, Default)]
pub(crate) struct Background {
    job: Mutex<Option<Job>>,
    runners: AtomicUsize,
    pub(crate) changed: Signal,
}

impl Background {
    pub(crate) fn submit(&self, job: Job) {
        *self.job.lock().unwrap_or_else(PoisonError::into_inner) = Some(job);
        self.changed.raise();
    }

    fn take(&self) -> Option<Job> {
        self.job.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Counts a runner for as long as it exists.
struct Runner<'a>(&'a Background);

impl Drop for Runner<'_> {
    fn drop(&mut self) {
        self.0.runners.fetch_sub(1, Ordering::AcqRel);
        self.0.changed.raise();
    }
}

impl Disk {
    /// Does this disk's background work, for ever. Run it in one task for
    /// each disk, independent of sessions. Without such a task SANITIZE works
    /// inside the command that asked for it.
    pub async fn run_background(&self, pacer: &dyn Pacer) {
        self.background.runners.fetch_add(1, Ordering::AcqRel);
        let _runner = Runner(&self.background);
        loop {
            let job = self.background.changed.wait_for(|| self.background.take()).await;
            sanitize::work(self, job, pacer).await;
        }
    }

    /// Does waiting work here when no task does background work.
    pub(crate) async fn help_background(&self) {
        if self.background.runners.load(Ordering::Acquire) == 0
            && let Some(job) = self.background.take()
        {
            sanitize::work(self, job, &Unpaced).await;
        }
    }
}
