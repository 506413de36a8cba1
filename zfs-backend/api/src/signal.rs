//! Waiting without a runtime: tasks store their wakers until the state they
//! wait for has changed.

use std::sync::{Mutex, PoisonError};
use std::task::{Poll, Waker};

/// Wakes all tasks that wait for a change.
#[derive(Debug, Default)]
pub struct Signal {
    waiting: Mutex<Vec<Waker>>,
}

impl Signal {
    /// Makes the waiting tasks check again.
    pub fn raise(&self) {
        let woken = std::mem::take(&mut *self.lock());
        woken.into_iter().for_each(Waker::wake);
    }

    /// Waits until `look` returns a value. Every change that may cause it must
    /// be followed by [`Signal::raise`].
    pub async fn wait_for<T>(&self, mut look: impl FnMut() -> Option<T>) -> T {
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
            // Check again: a change between the first check and the
            // registration would be missed otherwise.
            look().map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Waker>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
