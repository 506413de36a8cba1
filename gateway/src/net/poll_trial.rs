//! A trial that tells whether polling pays: the times between requests with it and without.
//!
//! A poll that sees a request come has not shown that it helped. Where the client or a
//! worker had to wait for the poll's processor, the request came late. Where waking a
//! processor takes long, it came sooner. Which of the two holds depends on the machine and
//! its load: it is measured.

use std::time::Duration;
use tokio::time::Instant;

/// Requests in a row that are all polled after, or all not.
const ROW: usize = 16;
/// Times of each kind in a trial.
const TIMES: usize = 32;
/// Requests that are polled after from one trial to the next.
const POLLED: u32 = 2048;
/// Fewest requests without polling from one trial to the next; each trial in vain
/// doubles them.
const MIN_SKIPPED: u32 = 512;
/// Most of them: a client that begins to wait for each reply is noticed after as many.
const MAX_SKIPPED: u32 = 8192;
/// A poll without a request brings the next trial nearer by as many requests.
const IN_VAIN: u32 = 32;
/// Longest time between two requests that counts, in windows of polling: to wake a
/// thread is a small part of it.
const LONGEST_WINDOWS: u32 = 8;

/// Trials of one core.
#[derive(Debug)]
pub(super) struct PollTrial {
    longest: Duration,
    /// Outcome of the last trial.
    pays: bool,
    /// Requests until the next trial.
    left: u32,
    /// Requests without polling after the next trial in vain.
    skipped: u32,
    last: Option<Instant>,
    /// Times until the next request: not polled, and polled.
    times: [Vec<Duration>; 2],
}

impl PollTrial {
    /// Creates the trials for a window of polling.
    pub(super) fn new(window: Duration) -> Self {
        Self {
            longest: window * LONGEST_WINDOWS,
            pays: false,
            left: 0,
            skipped: MIN_SKIPPED,
            last: None,
            times: [Vec::with_capacity(TIMES), Vec::with_capacity(TIMES)],
        }
    }

    /// Records a request; returns whether to poll after it. The clock is read in trials
    /// only.
    pub(super) fn arrived(&mut self, now: impl FnOnce() -> Instant) -> bool {
        if self.left > 0 {
            self.left -= 1;
            return self.pays;
        }
        let now = now();
        if let Some(last) = self.last.replace(now) {
            let time = now.saturating_duration_since(last).min(self.longest);
            let was_polled = self.polls_in_trial();
            self.times[usize::from(was_polled)].push(time);
        }
        if self.times.iter().all(|times| times.len() >= TIMES) {
            self.conclude();
            return self.pays;
        }
        self.polls_in_trial()
    }

    /// Records a poll in which no request came.
    pub(super) fn in_vain(&mut self) {
        if self.pays {
            self.left = self.left.saturating_sub(IN_VAIN);
        }
    }

    fn polls_in_trial(&self) -> bool {
        let taken: usize = self.times.iter().map(Vec::len).sum();
        (taken / ROW) % 2 == 1
    }

    fn conclude(&mut self) {
        let [without, with] = &mut self.times;
        // Polling costs a processor's time: it must save a sixteenth.
        self.pays = middle_half(with) * 16 < middle_half(without) * 15;
        if self.pays {
            (self.left, self.skipped) = (POLLED, MIN_SKIPPED);
        } else {
            self.left = self.skipped;
            self.skipped = (self.skipped * 2).min(MAX_SKIPPED);
        }
        self.last = None;
        self.times.iter_mut().for_each(Vec::clear);
    }

    /// Ends the trial as if it had this outcome.
    #[cfg(test)]
    pub(super) fn decide(&mut self, pays: bool) {
        (self.pays, self.left) = (pays, POLLED);
    }
}

/// Returns the sum of the middle half: a thread that was kept from its processor once
/// does not count.
fn middle_half(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    let quarter = times.len() / 4;
    times[quarter..times.len() - quarter].iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_micros(50);

    /// Runs a client whose requests come after these microseconds, given their number
    /// and whether the gateway polls; returns the number of requests polled after.
    fn run(trial: &mut PollTrial, requests: u64, after: impl Fn(u64, bool) -> u64) -> u64 {
        let mut now = Instant::now();
        let mut polled = 0;
        for number in 0..requests {
            let polls = trial.arrived(|| now);
            polled += u64::from(polls);
            now += Duration::from_micros(after(number, polls));
        }
        polled
    }

    /// Asserts that a core polls after less than one request in 40.
    fn assert_rare(after: impl Fn(u64, bool) -> u64) {
        let polled = run(&mut PollTrial::new(WINDOW), 20_000, after);
        assert!(polled < 20_000 / 40, "{polled}");
    }

    #[test]
    fn polling_that_shortens_the_round_goes_on() {
        let after = |_: u64, polls: bool| if polls { 20 } else { 30 };
        let polled = run(&mut PollTrial::new(WINDOW), 20_000, after);
        assert!(polled > 20_000 * 9 / 10, "{polled}");
    }

    /// Every request comes within the window, and late: the figures of OPEN and CLOSE on
    /// two processors.
    #[test]
    fn polling_that_takes_the_processor_of_others_becomes_rare() {
        let after = |number: u64, polls: bool| match polls {
            true => [145, 116, 193, 295][number as usize % 4],
            false => 84,
        };
        assert_rare(after);
        let gains_little = |_: u64, polls: bool| if polls { 83 } else { 85 };
        assert_rare(gains_little);
    }

    #[test]
    fn rare_delays_do_not_decide() {
        let after = |number: u64, polls: bool| match number % 10 {
            0 if !polls => 5000,
            _ => 84,
        };
        assert_rare(after);
    }

    /// Differences of a client that computes for milliseconds are no gain of polling.
    #[test]
    fn a_client_that_computes_is_not_polled_for() {
        let after = |_: u64, polls: bool| if polls { 1000 } else { 3000 };
        assert_rare(after);
    }

    #[test]
    fn polls_in_vain_bring_the_next_trial_nearer() {
        let mut trial = PollTrial::new(WINDOW);
        run(&mut trial, 2 * TIMES as u64 + 1, |_, polls| if polls { 20 } else { 30 });
        assert!(trial.arrived(|| panic!("no trial")));
        (0..POLLED / IN_VAIN).for_each(|_| trial.in_vain());
        assert!(!trial.arrived(Instant::now), "a trial begins without polling");
        let polled = run(&mut trial, 20_000, |_, _| 3000);
        assert!(polled < 20_000 / 40, "{polled}");
    }
}
