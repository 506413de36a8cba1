//! Adaptive polling of a completion queue: polling before waiting for an interrupt.
//!
//! An interrupt, the wake-up and a round of the runtime cost a few microseconds; polling
//! an empty queue costs the same CPU time for as long as it lasts. So a queue is polled
//! for at most the time that a wake-up costs, and only where completions have come that
//! fast.

use std::time::{Duration, Instant};

/// About the cost of an interrupt, the wake-up and the system calls around it.
const MOST: Duration = Duration::from_micros(16);
/// A shorter time is not worth a poll.
const LEAST: Duration = Duration::from_micros(2);

/// The polling of one completion queue.
#[derive(Debug)]
pub(crate) struct CqPoller {
    /// Time to poll for; zero while completions are slow.
    window: Duration,
    /// The last poll that found completions.
    found: Instant,
}

impl CqPoller {
    pub(crate) fn new(now: Instant) -> Self {
        Self { window: Duration::ZERO, found: now }
    }

    /// Notes that a poll found completions.
    pub(crate) fn found(&mut self, now: Instant) {
        self.found = now;
    }

    /// Returns true where the queue is to be polled once more before it is waited for.
    pub(crate) fn poll_again(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.found) < self.window
    }

    /// Learns from a wait that has ended: would polling have been faster?
    pub(crate) fn woken(&mut self, now: Instant) {
        let gap = now.saturating_duration_since(self.found);
        self.window = match (gap <= MOST, self.window / 2) {
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
    fn fast_completions_are_polled_for_and_slow_ones_waited_for() {
        let start = Instant::now();
        let after = |micros| start + Duration::from_micros(micros);
        let mut poller = CqPoller::new(start);
        assert!(!poller.poll_again(start), "nothing is known of it yet");
        poller.woken(after(10));
        poller.found(after(10));
        assert!(poller.poll_again(after(20)) && !poller.poll_again(after(27)));
        // A long wait halves it, and a few end it.
        let mut now = 10;
        for window in [8, 4, 2, 0] {
            now += 1000;
            poller.woken(after(now));
            poller.found(after(now));
            assert_eq!(poller.window, Duration::from_micros(window));
        }
        assert!(!poller.poll_again(after(now)));
        // One quick one begins it again.
        poller.woken(after(now + 5));
        assert!(poller.poll_again(after(now + 6)));
    }

    #[test]
    fn a_clock_that_stands_still_does_no_harm() {
        let now = Instant::now() + Duration::from_secs(1);
        let mut poller = CqPoller::new(now);
        let before = now - Duration::from_millis(1);
        poller.woken(before);
        assert!(poller.poll_again(before));
    }
}
