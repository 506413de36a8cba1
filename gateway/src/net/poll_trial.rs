//! A trial that tells whether polling pays, and when: the times between requests
//! with each way of it and without.
//!
//! A poll that sees a request come has not shown that it helped. Where the client or a
//! worker had to wait for the poll's processor, the request came late. Where waking a
//! processor takes long, the request came sooner, even if a worker was needed for the one
//! before. Which of the two holds depends on the machine and its load: it is measured.

use std::time::Duration;
use tokio::time::Instant;

/// Requests in a row with the same way of polling.
const ROW: usize = 16;
/// Times of each way in a trial.
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
pub(super) const LONGEST_WINDOWS: u32 = 8;

/// When a core polls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Polling {
    Never,
    /// From the reply to the next request.
    AfterReplies,
    /// Also while workers have the request.
    Throughout,
}

/// In the order in which a trial takes turns.
const WAYS: [Polling; 3] = [Polling::Never, Polling::AfterReplies, Polling::Throughout];

/// Trials of one core.
#[derive(Debug)]
pub(super) struct PollTrial {
    longest: Duration,
    /// Outcome of the last trial.
    chosen: Polling,
    /// Requests until the next trial.
    left: u32,
    /// Requests without polling after the next trial in vain.
    skipped: u32,
    last: Option<Instant>,
    /// Times until the next request, for each of [`WAYS`].
    times: [Vec<Duration>; WAYS.len()],
}

impl PollTrial {
    /// Creates the trials for a window of polling.
    pub(super) fn new(window: Duration) -> Self {
        Self {
            longest: window * LONGEST_WINDOWS,
            chosen: Polling::Never,
            left: 0,
            skipped: MIN_SKIPPED,
            last: None,
            times: WAYS.map(|_| Vec::with_capacity(TIMES)),
        }
    }

    /// Records a request; returns when to poll until the next one. The clock is read in
    /// trials only.
    pub(super) fn arrived(&mut self, now: impl FnOnce() -> Instant) -> Polling {
        if self.left > 0 {
            self.left -= 1;
            return self.chosen;
        }
        let now = now();
        if let Some(last) = self.last.replace(now) {
            let time = now.saturating_duration_since(last).min(self.longest);
            let way = self.way_in_trial();
            self.times[way].push(time);
        }
        if self.times.iter().all(|times| times.len() >= TIMES) {
            self.conclude();
            return self.chosen;
        }
        WAYS[self.way_in_trial()]
    }

    /// Records a poll in which no request came.
    pub(super) fn in_vain(&mut self) {
        if self.chosen != Polling::Never {
            self.left = self.left.saturating_sub(IN_VAIN);
        }
    }

    /// Returns the place in [`WAYS`] of the way whose turn it is.
    fn way_in_trial(&self) -> usize {
        let taken: usize = self.times.iter().map(Vec::len).sum();
        (taken / ROW) % WAYS.len()
    }

    fn conclude(&mut self) {
        let times = self.times.each_mut().map(|times| middle_half(times));
        let mut best = 0;
        for way in 1..WAYS.len() {
            // Polling costs a processor's time: more of it must save a sixteenth.
            if times[way] * 16 < times[best] * 15 {
                best = way;
            }
        }
        self.chosen = WAYS[best];
        if best == 0 {
            self.left = self.skipped;
            self.skipped = (self.skipped * 2).min(MAX_SKIPPED);
        } else {
            (self.left, self.skipped) = (POLLED, MIN_SKIPPED);
        }
        self.last = None;
        self.times.iter_mut().for_each(Vec::clear);
    }

    /// Ends the trial as if it had this outcome.
    #[cfg(test)]
    pub(super) fn decide(&mut self, chosen: Polling) {
        (self.chosen, self.left) = (chosen, POLLED);
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
    /// and how the gateway polls; returns how many requests were polled after in each way.
    fn run(
        trial: &mut PollTrial,
        requests: u64,
        after: impl Fn(u64, Polling) -> u64,
    ) -> [u64; WAYS.len()] {
        let mut now = Instant::now();
        let mut polled = [0; WAYS.len()];
        for number in 0..requests {
            let polling = trial.arrived(|| now);
            polled[polling as usize] += 1;
            now += Duration::from_micros(after(number, polling));
        }
        polled
    }

    /// Asserts that a core polls for one request in 25 at most.
    fn assert_rare(after: impl Fn(u64, Polling) -> u64) {
        let [_, replies, throughout] = run(&mut PollTrial::new(WINDOW), 20_000, after);
        assert!(replies + throughout < 20_000 / 25, "{replies} and {throughout}");
    }

    #[test]
    fn polling_that_shortens_the_round_goes_on() {
        let reads = |_: u64, polling| if polling == Polling::Never { 30 } else { 20 };
        let [_, after_replies, _] = run(&mut PollTrial::new(WINDOW), 20_000, reads);
        assert!(after_replies > 20_000 * 9 / 10, "{after_replies}");
        let of_workers = |_: u64, polling| match polling {
            Polling::Never => 280,
            Polling::AfterReplies => 210,
            Polling::Throughout => 150,
        };
        let [_, _, throughout] = run(&mut PollTrial::new(WINDOW), 20_000, of_workers);
        assert!(throughout > 20_000 * 9 / 10, "{throughout}");
        let only_throughout = |_: u64, polling| match polling {
            Polling::Never | Polling::AfterReplies => 280,
            Polling::Throughout => 150,
        };
        let [_, _, throughout] = run(&mut PollTrial::new(WINDOW), 20_000, only_throughout);
        assert!(throughout > 20_000 * 9 / 10, "{throughout}");
    }

    /// Every request comes within the window, and late: the figures of OPEN and CLOSE on
    /// two processors.
    #[test]
    fn polling_that_takes_the_processor_of_others_becomes_rare() {
        assert_rare(|number, polling| match polling {
            Polling::Never => 84,
            _ => [145, 116, 193, 295][number as usize % 4],
        });
        // It gains little.
        assert_rare(|_, polling| if polling == Polling::Never { 85 } else { 83 });
    }

    #[test]
    fn rare_delays_do_not_decide() {
        assert_rare(|number, polling| match number % 10 {
            0 if polling == Polling::Never => 5000,
            _ => 84,
        });
    }

    /// Differences of a client that computes for milliseconds are no gain of polling.
    #[test]
    fn a_client_that_computes_is_not_polled_for() {
        assert_rare(|_, polling| if polling == Polling::Never { 3000 } else { 1000 });
    }

    #[test]
    fn polls_in_vain_bring_the_next_trial_nearer() {
        let mut trial = PollTrial::new(WINDOW);
        let of_trial = (WAYS.len() * TIMES) as u64 + 1;
        run(&mut trial, of_trial, |_, polling| if polling == Polling::Never { 30 } else { 20 });
        assert_eq!(trial.arrived(|| panic!("no trial")), Polling::AfterReplies);
        (0..POLLED / IN_VAIN).for_each(|_| trial.in_vain());
        assert_eq!(trial.arrived(Instant::now), Polling::Never, "a trial begins so");
        let [_, replies, throughout] = run(&mut trial, 20_000, |_, _| 3000);
        assert!(replies + throughout < 20_000 / 25, "{replies} and {throughout}");
    }
}
