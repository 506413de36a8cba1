//! One clock for the executor of the run and for tokio, which the loader runs
//! on: whichever has the earlier event goes first.
//!
//! tokio's clock is paused: it moves only when all its tasks wait. Its timers
//! are in milliseconds, so it is up to a millisecond ahead of the run's.

use crate::executor::{Executor, lock};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The clock of a run with a loader.
pub struct Clock {
    executor: Arc<Executor>,
    /// The beginning of the run in tokio's time.
    epoch: Mutex<Option<Instant>>,
    /// Loaders that run. While there is none, tokio's clock stands still.
    running: AtomicUsize,
    /// A task of tokio was woken by the run.
    touched: AtomicBool,
    /// The loader has left something to be done by the run.
    left: Notify,
}

/// A loader, while it runs.
pub struct Running(Arc<Clock>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::AcqRel);
        self.0.ring();
    }
}

impl Clock {
    /// The clock of an executor, at its beginning.
    #[must_use]
    pub fn new(executor: &Arc<Executor>) -> Arc<Self> {
        Arc::new(Self {
            executor: Arc::clone(executor),
            epoch: Mutex::default(),
            running: AtomicUsize::new(0),
            touched: AtomicBool::new(false),
            left: Notify::new(),
        })
    }

    /// Counts a loader.
    #[must_use]
    pub fn running(self: &Arc<Self>) -> Running {
        self.running.fetch_add(1, Ordering::AcqRel);
        Running(Arc::clone(self))
    }

    /// Time of tokio since the beginning of the run.
    fn ahead(&self) -> Duration {
        let epoch = *lock(&self.epoch);
        epoch.map_or(Duration::ZERO, |epoch| epoch.elapsed())
    }

    /// To be called when a task of tokio is woken by the run.
    pub fn touch(&self) {
        self.touched.store(true, Ordering::Release);
    }

    /// To be called by tasks of tokio before they note or ask something: the
    /// run's time is theirs, unless it has something to do before. Others of
    /// tokio's tasks may be able to go on.
    pub fn catch_up(&self) {
        self.touch();
        self.executor.advance_to(self.ahead());
    }

    /// To be called by tasks of tokio when they have left something to be done.
    pub fn ring(&self) {
        self.left.notify_one();
    }

    /// Sleeps, as a task of tokio.
    pub async fn sleep(&self, nanos: u64) {
        tokio::time::sleep(Duration::from_nanos(nanos)).await;
        self.catch_up();
    }

    /// Sleeps until some time after the beginning, as a task of tokio.
    pub async fn sleep_until(&self, elapsed_nanos: u64) {
        let left = Duration::from_nanos(elapsed_nanos).saturating_sub(self.ahead());
        tokio::time::sleep(left).await;
        self.catch_up();
    }

    /// Runs the executor and tokio's tasks until `done`, or until nothing can
    /// ever happen again: `false`. Runs on a runtime of one thread, whose time is
    /// paused and whose tasks run until none can.
    pub async fn run(&self, done: impl Fn() -> bool) -> bool {
        let epoch = Instant::now();
        *lock(&self.epoch) = Some(epoch);
        loop {
            if self.executor.settle(&done) {
                return true;
            }
            let runs = self.running.load(Ordering::Acquire) > 0;
            let behind = Duration::from_nanos(self.executor.elapsed()).saturating_sub(self.ahead());
            if runs && !behind.is_zero() {
                // It stood still.
                tokio::time::advance(behind).await;
                continue;
            }
            if self.touched.swap(false, Ordering::AcqRel) {
                tokio::task::yield_now().await;
                continue;
            }
            let Some(next) = self.executor.next_timer() else { return false };
            let due = epoch + Duration::from_nanos(next);
            if !runs || Instant::now() >= due {
                self.executor.pass_time();
                continue;
            }
            tokio::select! {
                biased;
                () = self.left.notified() => {}
                () = tokio::time::sleep_until(due) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::executor::{Domain, MILLISECOND};

    #[test]
    fn whichever_is_earlier_goes_first() {
        let executor = Executor::new(1);
        let clock = Clock::new(&executor);
        let events = Arc::<Mutex<Vec<(&str, u64)>>>::default();
        for (name, micros) in [("run", 5_400), ("run", 5_700), ("run", 20_000), ("end", 30_000)] {
            let (sleep, events) =
                (executor.sleep(micros * MILLISECOND / 1000), Arc::clone(&events));
            let inner = Arc::clone(&executor);
            executor.spawn(Domain::Outside, async move {
                sleep.await;
                lock(&events).push((name, inner.elapsed()));
            });
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .event_interval(u32::MAX)
            .build()
            .unwrap();
        let (told, tokio_clock) = (Arc::clone(&events), Arc::clone(&clock));
        let inner = Arc::clone(&executor);
        let done = || lock(&events).last().is_some_and(|(name, _)| *name == "end");
        let ended = runtime.block_on(async {
            let running = clock.running();
            tokio::spawn(async move {
                for _ in 0..2 {
                    tokio_clock.sleep(8 * MILLISECOND).await;
                    lock(&told).push(("tokio", inner.elapsed()));
                }
                drop(running);
            });
            clock.run(done).await
        });
        assert!(ended);
        let expected = [
            ("run", 5_400_000),
            ("run", 5_700_000),
            ("tokio", 8_000_000),
            ("tokio", 16_000_000),
            ("run", 20_000_000),
            ("end", 30_000_000),
        ];
        assert_eq!(*lock(&events), expected);
    }
}
