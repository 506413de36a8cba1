//! Runs futures to their end on this thread.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

/// Polls until the future is ready. All work on a bench progresses by polling,
/// so that a future that stays pending has deadlocked.
pub(super) fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..1_000_000 {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
    }
    panic!("deadlock");
}

/// Is pending once if `pauses` is set.
pub(super) async fn pause(pauses: &AtomicBool) {
    let mut paused = !pauses.load(Ordering::Relaxed);
    std::future::poll_fn(|_| {
        let ready = std::mem::replace(&mut paused, true);
        if ready { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
