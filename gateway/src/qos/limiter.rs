//! The rates of one export or logical unit.

use super::bucket::Bucket;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, sleep};
use zgate_config::Rates;

/// Requests of all limiters that had to wait.
static DELAYED: AtomicU64 = AtomicU64::new(0);
/// Time for which they waited, in microseconds.
static WAITED_MICROS: AtomicU64 = AtomicU64::new(0);

/// Returns the number of requests that had to wait for their rate, and the time for
/// which they did.
pub(crate) fn delayed() -> (u64, Duration) {
    let waited = Duration::from_micros(WAITED_MICROS.load(Ordering::Relaxed));
    (DELAYED.load(Ordering::Relaxed), waited)
}

#[derive(Debug, Default)]
struct Buckets {
    rates: Rates,
    requests: Option<Bucket>,
    bytes: Option<Bucket>,
}

/// Limits, and what was taken of them. Requests wait in the order in which they came.
#[derive(Debug)]
pub(crate) struct Limiter {
    since: Instant,
    buckets: Mutex<Buckets>,
}

impl Limiter {
    /// Creates a limiter.
    pub(crate) fn new(rates: Rates) -> Self {
        let limiter = Self { since: Instant::now(), buckets: Mutex::default() };
        limiter.set(rates);
        limiter
    }

    fn lock(&self) -> MutexGuard<'_, Buckets> {
        self.buckets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets other limits. Requests that wait already keep their time.
    pub(crate) fn set(&self, rates: Rates) {
        let mut buckets = self.lock();
        if buckets.rates == rates {
            return;
        }
        let now = self.since.elapsed();
        let bucket = |rate: Option<u64>| rate.map(|rate| Bucket::new(rate, now));
        *buckets = Buckets {
            rates,
            requests: bucket(rates.iops_max),
            bytes: bucket(rates.bytes_per_second_max),
        };
    }

    /// Returns the limits.
    #[cfg(test)]
    pub(crate) fn rates(&self) -> Rates {
        self.lock().rates
    }

    /// Waits until a request may go on; `bytes`: those that it moves.
    pub(super) async fn admit(&self, bytes: u64) {
        let wait = self.take(bytes);
        if wait.is_zero() {
            return;
        }
        DELAYED.fetch_add(1, Ordering::Relaxed);
        let micros = u64::try_from(wait.as_micros()).unwrap_or(u64::MAX);
        WAITED_MICROS.fetch_add(micros, Ordering::Relaxed);
        sleep(wait).await;
    }

    fn take(&self, bytes: u64) -> Duration {
        let now = self.since.elapsed();
        let mut buckets = self.lock();
        let requests = buckets.requests.as_mut().map(|bucket| bucket.take(now, 1));
        let bytes = buckets.bytes.as_mut().map(|bucket| bucket.take(now, bytes));
        requests.max(bytes).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::limits::{BURST, MAX_WAIT};
    use super::*;
    use std::sync::Arc;

    fn rates(iops_max: Option<u64>, bytes_per_second_max: Option<u64>) -> Rates {
        Rates { iops_max, bytes_per_second_max }
    }

    /// Returns the time that `count` requests of `bytes` need, all at once.
    async fn time_of(limiter: &Arc<Limiter>, count: u32, bytes: u64) -> Duration {
        let begun = Instant::now();
        let one = |_| {
            let limiter = Arc::clone(limiter);
            tokio::spawn(async move { limiter.admit(bytes).await })
        };
        for task in (0..count).map(one).collect::<Vec<_>>() {
            task.await.unwrap();
        }
        begun.elapsed()
    }

    fn is_about(time: Duration, seconds: f64) -> bool {
        (time.as_secs_f64() - seconds).abs() < BURST.as_secs_f64() + 0.01
    }

    #[tokio::test(start_paused = true)]
    async fn requests_and_bytes_pass_at_their_rates() {
        let limiter = Arc::new(Limiter::new(rates(Some(1000), None)));
        assert!(is_about(time_of(&limiter, 5000, 1 << 20).await, 5.0));
        let limiter = Arc::new(Limiter::new(rates(None, Some(100 << 20))));
        assert!(is_about(time_of(&limiter, 400, 1 << 20).await, 4.0));
        // The stricter one decides.
        let limiter = Arc::new(Limiter::new(rates(Some(1000), Some(1 << 20))));
        assert!(is_about(time_of(&limiter, 768, 4096).await, 3.0));
        assert!(is_about(time_of(&limiter, 2000, 1).await, 2.0));
    }

    #[tokio::test(start_paused = true)]
    async fn ten_thousand_at_once_wait_no_longer_than_the_bound() {
        let limiter = Arc::new(Limiter::new(rates(Some(10), None)));
        let time = time_of(&limiter, 10_000, 4096).await;
        assert!(time >= MAX_WAIT && time < MAX_WAIT + Duration::from_millis(10), "{time:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn other_limits_hold_from_the_next_request_on() {
        let limiter = Arc::new(Limiter::new(rates(Some(10), None)));
        time_of(&limiter, 20, 0).await;
        limiter.set(rates(None, None));
        assert_eq!(time_of(&limiter, 1000, 1 << 30).await, Duration::ZERO);
        limiter.set(rates(Some(100), None));
        assert!(is_about(time_of(&limiter, 200, 0).await, 2.0));
        // The same limits again forgive no debt.
        limiter.take(0);
        limiter.take(0);
        limiter.set(rates(Some(100), None));
        assert!(!limiter.take(0).is_zero());
    }
}
