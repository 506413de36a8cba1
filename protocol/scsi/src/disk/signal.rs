//! Waiting without a runtime: tasks park their wakers until something they
//! look at has changed.

use std::sync::{Mutex, PoisonError};
use std::task::{Poll, Waker};

/// Wakes everyone who waits for a change.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    waiting: Mutex<Vec<Waker>>,
}

impl Signal {
    /// Tells the waiting tasks to look again.
    pub(crate) fn raise(&self) {
        let woken = std::mem::take(&mut *self.lock());
        woken.into_iter().for_each(Waker::wake);
    }

    /// Waits until `look` gives a value. Every change that may make it do so
    /// must be followed by [`Signal::raise`].
    pub(crate) async fn wait_for<T>(&self, mut look: impl FnMut() -> Option<T>) -> T {
        std::future::poll_fn(|context| {
            if let Some(value) = look() {
                return Poll::Ready(value);
            }
            {
                let mut waiting = self.lock();
                if !waiting.iter().any(|waker| waker.will_wake(context.waker())) {
                    waiting.push(context.waker().clone());
                }
            }
            // A change between the first look and the registration would
            // otherwise be missed.
            look().map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Waker>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
