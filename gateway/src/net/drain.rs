//! Request to stop, visible to every connection.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, Waker};
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

    /// Returns once draining has begun. Connections poll this at each event: only
    /// the first poll of a task takes a lock, which all cores share.
    pub(crate) async fn wait(&self) {
        let mut changed = pin!(self.changed.notified());
        changed.as_mut().enable();
        let mut registered: Option<Waker> = None;
        poll_fn(|task| {
            if self.is_wanted() {
                return Poll::Ready(());
            }
            if registered.as_ref().is_some_and(|waker| waker.will_wake(task.waker())) {
                return Poll::Pending;
            }
            registered = Some(task.waker().clone());
            changed.as_mut().poll(task)
        })
        .await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use futures_util::stream::{FuturesUnordered, StreamExt};

    #[tokio::test]
    async fn all_that_wait_are_woken_in_whatever_task_they_were_polled_last() {
        let drain = Drain::default();
        let mut waiting: Vec<_> = (0..3).map(|_| Box::pin(drain.wait())).collect();
        for one in &mut waiting {
            assert_eq!(one.as_mut().now_or_never(), None);
            assert_eq!(one.as_mut().now_or_never(), None);
        }
        // Each has a task of its own in here.
        let all = waiting.into_iter().collect::<FuturesUnordered<_>>().collect::<Vec<()>>();
        let (all, ()) = tokio::join!(all, async {
            tokio::task::yield_now().await;
            drain.begin();
        });
        assert_eq!(all.len(), 3);
        assert!(drain.wait().now_or_never().is_some(), "draining has begun");
    }
}
