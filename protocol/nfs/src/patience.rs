//! Time limits of a request for what others tell about its reply: the name service
//! (`id_domain`), holders of delegations.

use crate::runtime::{Runtime, within};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::OnceLock;
use std::task::Poll;

const NANOS_PER_MILLISECOND: u64 = 1_000_000;

/// Time that a request waits for all answers of one kind together: a listing asks
/// for thousands of them.
#[derive(Debug)]
pub struct Patience {
    milliseconds: u64,
    /// End of it on the monotonic clock, in nanoseconds; set at the first wait.
    until_nanos: OnceLock<u64>,
}

impl Patience {
    /// This much time, from the first wait on.
    #[must_use]
    pub fn of(milliseconds: u64) -> Self {
        Self { milliseconds, until_nanos: OnceLock::new() }
    }

    /// Returns whether nothing is left.
    pub(crate) fn is_over(&self, runtime: &dyn Runtime) -> bool {
        self.until_nanos.get().is_some_and(|until| runtime.now().monotonic_nanos >= *until)
    }

    /// Returns the result of `look_up`; `None`: it takes longer than what is left.
    /// A result that is known already is returned even if nothing is left.
    pub(crate) async fn wait_for<T>(
        &self,
        runtime: &dyn Runtime,
        look_up: impl Future<Output = T>,
    ) -> Option<T> {
        let mut look_up = pin!(look_up);
        let known = poll_fn(|context| Poll::Ready(look_up.as_mut().poll(context))).await;
        if let Poll::Ready(found) = known {
            return Some(found);
        }
        let now_nanos = runtime.now().monotonic_nanos;
        let patience_nanos = self.milliseconds * NANOS_PER_MILLISECOND;
        let until_nanos = *self.until_nanos.get_or_init(|| now_nanos + patience_nanos);
        let left = until_nanos.saturating_sub(now_nanos).div_ceil(NANOS_PER_MILLISECOND);
        if left == 0 {
            return None;
        }
        within(runtime, left, look_up).await
    }
}
