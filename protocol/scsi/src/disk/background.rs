//! Background work that outlives its command: SANITIZE continues when its I_T
//! nexus is lost or the logical unit is reset (SBC-4 §4.11).

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use zgate_store::signal::Signal;

/// Limits the rate of background work. The gateway owns the clock and therefore
/// the rate.
pub trait Pacer: Send + Sync {
    /// Returns once another `bytes` may be written.
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

/// Progress of a SANITIZE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// None is running.
    Idle,
    /// Running; `done` counts 65536ths.
    Running { done: u16 },
    /// The last one failed; if it had AUSE=1, EXIT FAILURE MODE is allowed.
    Failed { unrestricted: bool },
}

/// Method of SANITIZE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Overwrite { pattern: Vec<u8>, passes: u8, invert: bool },
    BlockErase,
    CryptographicErase,
}

/// A SANITIZE to run in the background.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Job {
    pub(crate) method: Method,
    pub(crate) unrestricted: bool,
}

/// Pending work, and the tasks that wait for it.
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

    pub(crate) fn take(&self) -> Option<Job> {
        self.job.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Returns whether a background task exists.
    pub(crate) fn has_runner(&self) -> bool {
        self.runners.load(Ordering::Acquire) > 0
    }
}

/// A background task; counted while it exists.
pub(crate) struct Runner<'a>(&'a Background);

impl<'a> Runner<'a> {
    pub(crate) fn new(background: &'a Background) -> Self {
        background.runners.fetch_add(1, Ordering::AcqRel);
        Self(background)
    }
}

impl Drop for Runner<'_> {
    fn drop(&mut self) {
        self.0.runners.fetch_sub(1, Ordering::AcqRel);
        self.0.changed.raise();
    }
}
