//! Change number of an object, derived from its ctime.
//!
//! RFC 8881 §5.8.1.4 requires a number that differs after every modification.
//! ctime alone is not enough: on many kernels it advances with the timer tick,
//! so that several writes within a few milliseconds leave the same ctime, and
//! it goes backwards when the clock is set back. The rule:
//!
//! 1. The first observation gives the ctime in nanoseconds, so that a restart
//!    or an eviction from the cache does not look like a modification.
//! 2. A ctime other than the last one gives the larger of that ctime and the
//!    last number plus one.
//! 3. The same ctime gives the same number, or the last number plus one if this
//!    store has modified the object since.
//!
//! Hence the number never goes backwards while the object is cached, and
//! advances with every modification made through the store; one made elsewhere
//! is seen as soon as the ctime advances.

use zgate_store::Timestamp;

/// State kept for one object.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ChangeTracker {
    last: Option<Observation>,
}

#[derive(Clone, Copy, Debug)]
struct Observation {
    ctime_nanoseconds: u64,
    change: u64,
}

impl ChangeTracker {
    /// Returns the change number for `ctime`; `modified` is set if this store
    /// has modified the object since the last call.
    pub(crate) fn observe(&mut self, ctime: Timestamp, modified: bool) -> u64 {
        let ctime_nanoseconds = from_ctime(ctime);
        let change = match self.last {
            None => ctime_nanoseconds,
            Some(last) if last.ctime_nanoseconds != ctime_nanoseconds => {
                ctime_nanoseconds.max(last.change.wrapping_add(1))
            }
            Some(last) if modified => last.change.wrapping_add(1),
            Some(last) => last.change,
        };
        self.last = Some(Observation { ctime_nanoseconds, change });
        change
    }
}

/// Returns the change number of an object without kept state.
pub(crate) fn from_ctime(ctime: Timestamp) -> u64 {
    (ctime.seconds as u64).wrapping_mul(1_000_000_000).wrapping_add(u64::from(ctime.nanoseconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanoseconds: u32) -> Timestamp {
        Timestamp { seconds: 100, nanoseconds }
    }

    #[test]
    fn quiet_objects_keep_their_number() {
        let mut tracker = ChangeTracker::default();
        let first = tracker.observe(at(5), false);
        assert_eq!(first, 100_000_000_005);
        assert_eq!(tracker.observe(at(5), false), first);
    }

    #[test]
    fn a_coarse_clock_does_not_hide_modifications() {
        let mut tracker = ChangeTracker::default();
        let mut last = tracker.observe(at(5), false);
        for _ in 0..1000 {
            let next = tracker.observe(at(5), true);
            assert!(next > last);
            last = next;
        }
        assert!(tracker.observe(at(6), false) > last);
    }

    #[test]
    fn a_clock_set_back_does_not_take_the_number_back() {
        let mut tracker = ChangeTracker::default();
        let before = tracker.observe(at(500), false);
        assert_eq!(tracker.observe(at(3), false), before + 1);
        assert_eq!(tracker.observe(at(3), false), before + 1);
    }
}
