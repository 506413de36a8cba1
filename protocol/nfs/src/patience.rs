//! Time limits of a request for what others tell about its reply: the name service
//! (`id_domain`), holders of delegations.

use crate::runtime::{Runtime, within};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

const NANOS_PER_MILLISECOND: u64 = 1_000_000;

/// Time that a request waits for all answers of one kind together: a listing asks
/// for thousands of them. Time in which it does something else, as in storage, does
/// not count.
#[derive(Debug)]
pub struct Patience {
    left_nanos: AtomicU64,
}

impl Patience {
    /// This much time.
    #[must_use]
    pub fn of(milliseconds: u64) -> Self {
        Self { left_nanos: AtomicU64::new(milliseconds * NANOS_PER_MILLISECOND) }
    }

    /// Returns whether nothing is left.
    pub(crate) fn is_over(&self) -> bool {
        self.left_nanos.load(Ordering::Relaxed) == 0
    }

    /// Returns the result of `look_up`; `None`: it takes longer than what is left.
    /// A result that is known already is returned even if nothing is left. A request
    /// waits for one answer after the other: waits at the same time would each take
    /// their time from what is left, but none of them would last longer.
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
        let left_nanos = self.left_nanos.load(Ordering::Relaxed);
        if left_nanos == 0 {
            return None;
        }
        let begun_nanos = runtime.now().monotonic_nanos;
        let found = within(runtime, left_nanos.div_ceil(NANOS_PER_MILLISECOND), look_up).await;
        let waited_nanos = match found {
            Some(_) => runtime.now().monotonic_nanos.saturating_sub(begun_nanos),
            None => left_nanos,
        };
        let (left, order) = (&self.left_nanos, Ordering::Relaxed);
        // It cannot fail: there is always a new value.
        let _ = left.fetch_update(order, order, |left| Some(left.saturating_sub(waited_nanos)));
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::{BoxedFuture, CallbackFailure, CallbackPath, ConnectionId, Now};
    use std::future::{pending, ready};
    use std::task::{Context, Waker};
    use zgate_xdr::Message;

    /// A clock that goes on where the test says so, and by sleeps, which end at once.
    #[derive(Default)]
    struct Clock(AtomicU64);

    impl Clock {
        fn pass(&self, milliseconds: u64) {
            self.0.fetch_add(milliseconds * NANOS_PER_MILLISECOND, Ordering::Relaxed);
        }

        fn milliseconds(&self) -> u64 {
            self.0.load(Ordering::Relaxed) / NANOS_PER_MILLISECOND
        }

        /// An answer that comes after this time.
        fn answer(&self, milliseconds: u64) -> impl Future<Output = u32> {
            let mut was_asked = false;
            poll_fn(move |_| {
                if !std::mem::replace(&mut was_asked, true) {
                    return Poll::Pending;
                }
                self.pass(milliseconds);
                Poll::Ready(7)
            })
        }
    }

    impl Runtime for Clock {
        fn spawn(&self, _: BoxedFuture<()>) {}

        fn callback(
            &self,
            _: CallbackPath,
            _: u32,
            _: Message,
        ) -> BoxedFuture<Result<bytes::Bytes, CallbackFailure>> {
            Box::pin(ready(Err(CallbackFailure::Unreachable)))
        }

        fn sleep(&self, milliseconds: u64) -> BoxedFuture<()> {
            self.pass(milliseconds);
            Box::pin(ready(()))
        }

        fn now(&self) -> Now {
            Now { monotonic_nanos: self.0.load(Ordering::Relaxed), ..Now::default() }
        }

        fn connected(&self, _: ConnectionId) -> bool {
            true
        }

        fn random(&self) -> u64 {
            0
        }
    }

    /// The result of a wait, which needs nobody else.
    fn waited(
        clock: &Clock,
        patience: &Patience,
        look_up: impl Future<Output = u32>,
    ) -> Option<u32> {
        let wait = pin!(patience.wait_for(clock, look_up));
        match wait.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(found) => found,
            Poll::Pending => panic!("it waits for something else than the clock"),
        }
    }

    #[test]
    fn only_waits_take_from_it() {
        let (clock, patience) = (Clock::default(), Patience::of(100));
        assert_eq!(waited(&clock, &patience, clock.answer(60)), Some(7));
        clock.pass(1000);
        assert!(!patience.is_over());
        assert_eq!(waited(&clock, &patience, clock.answer(30)), Some(7));
        clock.pass(1000);
        assert_eq!(waited(&clock, &patience, pending()), None);
        assert_eq!(clock.milliseconds(), 2100, "all waits together");
    }

    #[test]
    fn what_is_known_is_told_even_if_nothing_is_left() {
        let (clock, patience) = (Clock::default(), Patience::of(100));
        assert_eq!(waited(&clock, &patience, pending()), None);
        assert!(patience.is_over());
        assert_eq!(waited(&clock, &patience, ready(7)), Some(7));
        assert_eq!(waited(&clock, &patience, clock.answer(1)), None);
        assert_eq!(clock.milliseconds(), 100);
    }
}
