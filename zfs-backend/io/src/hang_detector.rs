//! Detection of a store that hangs: it has requests in flight, and none of them
//! ends over several checks.

/// Number of checks without a completed request after which a store counts as
/// slow: its new requests are limited.
pub(crate) const SLOW_LOOKS: u32 = 2;
/// Number of checks after which a store counts as hanging: waiting requests are
/// refused, and clients retry.
pub(crate) const HANGING_LOOKS: u32 = 5;
const _: () = assert!(SLOW_LOOKS < HANGING_LOOKS);
/// Time between checks.
pub(crate) const LOOK_INTERVAL: std::time::Duration = std::time::Duration::from_secs(1);

/// Requests of one store in flight in one place (a pool of workers, a ring).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HangDetector {
    count: usize,
    quiet_looks: u32,
}

impl HangDetector {
    /// Returns the number of requests in flight.
    pub(crate) fn count(self) -> usize {
        self.count
    }

    /// Records the start of a request.
    pub(crate) fn begin(&mut self) {
        self.count += 1;
    }

    /// Records the end of a request, successful or not: the store answers.
    /// Returns whether it was considered hanging until now.
    pub(crate) fn end(&mut self) -> bool {
        let hung = self.is_hanging();
        self.count = self.count.saturating_sub(1);
        self.quiet_looks = 0;
        hung
    }

    /// Checks the store. Returns whether it is found hanging for the first
    /// time.
    pub(crate) fn look(&mut self) -> bool {
        if self.count == 0 {
            self.quiet_looks = 0;
            return false;
        }
        self.quiet_looks = self.quiet_looks.saturating_add(1);
        self.quiet_looks == HANGING_LOOKS
    }

    /// Returns whether no request has ended for some time.
    pub(crate) fn is_slow(self) -> bool {
        self.quiet_looks >= SLOW_LOOKS
    }

    /// Returns whether no request has ended for so long that no further request
    /// should wait.
    pub(crate) fn is_hanging(self) -> bool {
        self.quiet_looks >= HANGING_LOOKS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_silence_with_work_under_way_counts() {
        let mut store = HangDetector::default();
        for _ in 0..10 {
            assert!(!store.look());
        }
        store.begin();
        store.begin();
        let found: Vec<_> = (0..6).map(|_| store.look()).collect();
        assert_eq!(found, [false, false, false, false, true, false], "said once");
        assert!(store.is_slow() && store.is_hanging());
        assert!(store.end(), "it answers again");
        assert!(!store.is_slow() && store.count() == 1);
    }
}
