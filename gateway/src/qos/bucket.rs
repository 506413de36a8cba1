//! A token bucket, kept as one time: the moment at which all that was taken so far
//! has been paid for.

use super::limits::{BURST, MAX_WAIT};
use std::time::Duration;

/// Units of one kind, such as requests or bytes.
#[derive(Debug)]
pub(super) struct Bucket {
    units_per_second: u64,
    /// Time since the limiter was made.
    paid_at: Duration,
}

impl Bucket {
    pub(super) fn new(units_per_second: u64, now: Duration) -> Self {
        Self { units_per_second, paid_at: now }
    }

    /// Takes units. Returns the time until they may be used: as long as what others
    /// took before needs, at most [`MAX_WAIT`].
    pub(super) fn take(&mut self, now: Duration, units: u64) -> Duration {
        let begin = self.paid_at.max(now.saturating_sub(BURST));
        let seconds = units as f64 / self.units_per_second.max(1) as f64;
        let cost = Duration::from_secs_f64(seconds.min(MAX_WAIT.as_secs_f64()));
        self.paid_at = (begin + cost).min(now + MAX_WAIT);
        begin.saturating_sub(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn units_pass_at_the_rate_and_idle_time_is_saved_within_a_bound() {
        let mut bucket = Bucket::new(100, ms(0));
        assert_eq!(bucket.take(ms(0), 1), ms(0));
        assert_eq!(bucket.take(ms(0), 1), ms(10));
        assert_eq!(bucket.take(ms(0), 1), ms(20));
        // After an hour no more than 25 units pass at once.
        let waits: Vec<_> = (0..28).map(|_| bucket.take(ms(3_600_000), 1)).collect();
        assert!(waits[..26].iter().all(|wait| wait.is_zero()), "{waits:?}");
        assert_eq!(waits[26..], [ms(10), ms(20)]);
    }

    #[test]
    fn no_wait_is_longer_than_the_bound_and_the_debt_ends_with_it() {
        let mut bucket = Bucket::new(10, ms(0));
        let longest = (0..100_000).map(|_| bucket.take(ms(0), u64::MAX)).max();
        assert_eq!(longest, Some(MAX_WAIT));
        assert_eq!(bucket.take(MAX_WAIT, 1), ms(0));
    }
}
