//! Request to stop, visible to every connection.

use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Notify;

/// Request to stop: no new requests are read, running ones are finished.
#[derive(Debug, Default)]
pub(crate) struct Drain {
    wanted: AtomicBool,
    changed: Notify,
}

impl Drain {
    pub(crate) fn begin(&self) {
        self.wanted.store(true, Ordering::Release);
        self.changed.notify_waiters();
    }

    /// Returns whether draining has begun.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Acquire)
    }

    /// Returns once draining has begun.
    pub(crate) async fn wait(&self) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.wanted.load(Ordering::Acquire) {
                return;
            }
            changed.await;
        }
    }
}
