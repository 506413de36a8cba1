//! How long a queue is looked at again and again before its next completion is
//! waited for: adaptive polling.
//!
//! To be woken costs a few microseconds, an interrupt and a round of the runtime;
//! looking costs the same for as long as it goes on in vain. So it goes on for at most
//! what being woken costs, and only where completions have come that fast.

use std::time::{Duration, Instant};

/// About what an interrupt, the wake-up and the system calls around it cost.
const MOST: Duration = Duration::from_micros(16);
/// Less is not worth a look.
const LEAST: Duration = Duration::from_micros(2);

/// The pace of one completion queue.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Looking goes on for so long; zero while completions are slow.
    patience: Duration,
    /// The last look that found something.
    found: Instant,
}

impl Pace {
    pub(crate) fn new(now: Instant) -> Self {
        Self { patience: Duration::ZERO, found: now }
    }

    /// A look found completions.
    pub(crate) fn found(&mut self, now: Instant) {
        self.found = now;
    }

    /// Whether to look once more before waiting.
    pub(crate) fn look_again(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.found) < self.patience
    }

    /// The queue was waited for, and something came: had looking been the better way?
    pub(crate) fn woken(&mut self, now: Instant) {
        let gap = now.saturating_duration_since(self.found);
        self.patience = match (gap <= MOST, self.patience / 2) {
            (true, _) => MOST,
            (false, half) if half < LEAST => Duration::ZERO,
            (false, half) => half,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quick_completions_are_looked_for_and_slow_ones_waited_for() {
        let start = Instant::now();
        let after = |micros| start + Duration::from_micros(micros);
        let mut pace = Pace::new(start);
        assert!(!pace.look_again(start), "nothing is known of it yet");
        pace.woken(after(10));
        pace.found(after(10));
        assert!(pace.look_again(after(20)) && !pace.look_again(after(27)));
        // A long wait halves it, and a few end it.
        let mut now = 10;
        for patience in [8, 4, 2, 0] {
            now += 1000;
            pace.woken(after(now));
            pace.found(after(now));
            assert_eq!(pace.patience, Duration::from_micros(patience));
        }
        assert!(!pace.look_again(after(now)));
        // One quick one begins it again.
        pace.woken(after(now + 5));
        assert!(pace.look_again(after(now + 6)));
    }

    #[test]
    fn a_clock_that_stands_still_does_no_harm() {
        let now = Instant::now() + Duration::from_secs(1);
        let mut pace = Pace::new(now);
        let before = now - Duration::from_millis(1);
        pace.woken(before);
        assert!(pace.look_again(before));
    }
}
