//! Rate limit of log lines that a peer can cause: one line of each kind in ten
//! seconds, with the number of those omitted.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Time between two lines of one kind.
pub const LINE_PERIOD: Duration = Duration::from_secs(10);

/// Rate limit of one kind of line.
#[derive(Debug, Default)]
pub struct Throttle {
    /// Time at which the next line may be written, in milliseconds of [`now`].
    next: AtomicU64,
    left_out: AtomicU64,
}

/// Returns the milliseconds since the first line.
fn now() -> u64 {
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    u64::try_from(BEGAN.get_or_init(Instant::now).elapsed().as_millis()).unwrap_or(u64::MAX)
}

impl Throttle {
    /// Creates one that lets the first line pass.
    #[must_use]
    pub const fn new() -> Self {
        Self { next: AtomicU64::new(0), left_out: AtomicU64::new(0) }
    }

    /// Returns the number of omitted lines if a line may be written now.
    #[must_use]
    pub fn pass(&self) -> Option<u64> {
        self.pass_at(now())
    }

    fn pass_at(&self, now: u64) -> Option<u64> {
        let next = self.next.load(Ordering::Relaxed);
        let later = now.saturating_add(LINE_PERIOD.as_millis() as u64);
        let mine = now >= next
            && self
                .next
                .compare_exchange(next, later, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if !mine {
            self.left_out.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(self.left_out.swap(0, Ordering::Relaxed))
    }
}

/// Logs a warning that peers can cause as often as they like. The caller needs `tracing`.
#[macro_export]
macro_rules! warn_seldom {
    ($($line:tt)+) => {{
        static KIND: $crate::throttle::Throttle = $crate::throttle::Throttle::new();
        if let Some(left_out) = KIND.pass() {
            tracing::warn!(left_out, $($line)+);
        }
    }};
}
pub use crate::warn_seldom;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_period_and_the_others_are_counted() {
        let throttle = Throttle::new();
        let period = LINE_PERIOD.as_millis() as u64;
        assert_eq!(throttle.pass_at(5), Some(0));
        for later in 0..100 {
            assert_eq!(throttle.pass_at(5 + later), None);
        }
        assert_eq!(throttle.pass_at(5 + period), Some(100));
        assert_eq!(throttle.pass_at(6 + period), None);
        assert_eq!(throttle.pass_at(5 + 3 * period), Some(1));
    }
}
