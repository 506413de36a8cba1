//! Whether a peer's side still completes what this side posts.

use std::time::{Duration, Instant};

/// When the peer's side last completed work, or first had some to complete.
/// Devices try for long, and longer when much is under way.
#[derive(Debug)]
pub(crate) struct Progress(Instant);

impl Progress {
    pub(crate) fn new() -> Self {
        Self(Instant::now())
    }

    /// Work was completed.
    pub(crate) fn made(&mut self) {
        self.0 = Instant::now();
    }

    /// Work is about to be posted; `already` says whether there is some.
    pub(crate) fn work_begins(&mut self, already: bool) {
        if !already {
            self.made();
        }
    }

    /// Whether nothing was completed for `limit`. Call it while there is work.
    pub(crate) fn has_stalled(&self, limit: Duration) -> bool {
        self.0.elapsed() > limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_runs_from_the_first_work_on_and_each_completion() {
        let long_ago = || Progress(Instant::now().checked_sub(Duration::from_secs(9)).unwrap());
        let limit = Duration::from_secs(5);
        let mut more = long_ago();
        more.work_begins(true);
        assert!(more.has_stalled(limit));
        let mut first = long_ago();
        first.work_begins(false);
        let mut completed = long_ago();
        completed.made();
        assert!(!first.has_stalled(limit) && !completed.has_stalled(limit));
    }
}
