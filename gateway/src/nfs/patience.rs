//! Time limits for a peer's records, and for the replies that it is to take. Neither
//! are timed individually: the connection is checked at intervals, and checks in a
//! row without progress are counted.

use super::limits::{
    CHECK_PERIOD, IDLE_CHECK_PERIOD, MAX_UNTOLD_BYTES, RECORD_CHECKS, SCARCE_RECORD_CHECKS,
    SCARCE_SILENT_CHECKS, SCARCE_TAKEN_BYTES, SCARCE_UNREAD_CHECKS, SILENT_CHECKS, UNNAMED_CHECKS,
    UNREAD_CHECKS,
};
use super::record::Mark;
use crate::net::connection_end::Slow;
use std::time::Duration;
use tokio::time::Instant;

/// Progress seen on one connection.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    /// Time of the last check.
    checked: Option<Instant>,
    seen: Mark,
    /// Checks in a row without a further record.
    same: u32,
    /// Checks in a row without a further byte.
    silent: u32,
    /// Bytes that the peer had taken at the last check, if replies waited for it.
    taken: Option<u64>,
    /// Checks in a row without a further byte taken.
    unread: u32,
    /// Checks in a row in which few were taken of replies whose memory others waited for.
    slow: u32,
}

impl Patience {
    /// Of a connection that begins at `now`.
    pub(crate) fn begun(now: Instant) -> Self {
        Self { checked: Some(now), ..Self::default() }
    }

    /// Returns whether a check is due at `now`, which counts as its time then. Checks in a
    /// row mean time: a connection that waits for memory is looked at much more often.
    pub(crate) fn is_due(&mut self, now: Instant) -> bool {
        let is_due = self.checked.is_none_or(|at| now.duration_since(at) >= CHECK_PERIOD);
        if is_due {
            self.checked = Some(now);
        }
        is_due
    }

    /// Checks a connection; the next check is due after [`Self::period`].
    /// `is_wanted`: it holds memory for an unfinished record, and others wait for
    /// memory.
    ///
    /// # Errors
    /// The reason for which the connection must be closed.
    pub(crate) fn check(&mut self, now: Mark, is_named: bool, is_wanted: bool) -> Result<(), Slow> {
        let seen = std::mem::replace(&mut self.seen, now);
        self.same = if now.records == seen.records { self.same + 1 } else { 0 };
        self.silent = if now.received == seen.received { self.silent + 1 } else { 0 };
        if !is_named {
            let is_over = self.same >= UNNAMED_CHECKS;
            return if is_over { Err(Slow::NoCall) } else { Ok(()) };
        }
        if !(now.unfinished && seen.unfinished) {
            // An idle client is welcome; a record that has just begun is new.
            self.excuse();
            return Ok(());
        }
        let (silent, same) = if is_wanted {
            (SCARCE_SILENT_CHECKS, SCARCE_RECORD_CHECKS)
        } else {
            (SILENT_CHECKS, RECORD_CHECKS)
        };
        if self.silent >= silent {
            return Err(Slow::Unfinished);
        }
        if self.same >= same { Err(Slow::LongCall) } else { Ok(()) }
    }

    /// Checks the replies that wait for the peer. `taken`: bytes that it has taken so
    /// far; `None` if none wait. `waiting`: bytes that wait. `is_wanted`: others wait for
    /// memory.
    ///
    /// # Errors
    /// [`Slow::Unread`], [`Slow::Trickling`].
    pub(crate) fn check_replies(
        &mut self,
        taken: Option<u64>,
        waiting: usize,
        is_wanted: bool,
    ) -> Result<(), Slow> {
        let before = std::mem::replace(&mut self.taken, taken);
        self.unread = if taken.is_some() && taken == before { self.unread + 1 } else { 0 };
        // Fewer bytes do not count as memory of the connection.
        let is_wanted_much = is_wanted && waiting >= MAX_UNTOLD_BYTES;
        let further = taken.zip(before).map(|(taken, before)| taken.saturating_sub(before));
        let is_slow = is_wanted_much && further.is_some_and(|bytes| bytes < SCARCE_TAKEN_BYTES);
        self.slow = if is_slow { self.slow + 1 } else { 0 };
        let most = if is_wanted { SCARCE_UNREAD_CHECKS } else { UNREAD_CHECKS };
        if self.unread >= most {
            return Err(Slow::Unread);
        }
        if self.slow >= SCARCE_RECORD_CHECKS { Err(Slow::Trickling) } else { Ok(()) }
    }

    /// Resets the counters, because the server itself is not reading.
    pub(crate) fn excuse(&mut self) {
        (self.same, self.silent) = (0, 0);
    }

    /// Returns the time until the next check.
    pub(crate) fn period(&self, is_named: bool) -> Duration {
        let owes_nothing = !self.seen.unfinished && self.taken.is_none();
        if is_named && owes_nothing { IDLE_CHECK_PERIOD } else { CHECK_PERIOD }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(received: u64, records: u64, unfinished: bool) -> Mark {
        Mark { received, records, unfinished }
    }

    /// Returns the number of checks until the connection is closed.
    fn checks(at: impl FnMut(u32) -> Mark, is_named: bool) -> Option<u32> {
        checks_of(at, is_named, false)
    }

    fn checks_of(mut at: impl FnMut(u32) -> Mark, is_named: bool, is_wanted: bool) -> Option<u32> {
        let mut patience = Patience::default();
        (1..1000).find(|count| patience.check(at(*count), is_named, is_wanted).is_err())
    }

    #[test]
    fn looks_in_between_are_no_checks() {
        let begin = Instant::now();
        let mut patience = Patience::begun(begin);
        let after = |millis| begin + Duration::from_millis(millis);
        assert!((0..500).all(|look| !patience.is_due(after(look * 10))));
        assert!(patience.is_due(begin + CHECK_PERIOD));
        assert!(!patience.is_due(begin + CHECK_PERIOD));
        assert!(patience.is_due(begin + 3 * CHECK_PERIOD));
    }

    #[test]
    fn who_stops_while_others_wait_for_its_memory_is_ended_soon() {
        let stopped = checks_of(|_| mark(700, 3, true), true, true);
        assert_eq!(stopped, Some(SCARCE_SILENT_CHECKS + 1));
        let trickling = checks_of(|n| mark(n.into(), 3, true), true, true);
        assert_eq!(trickling, Some(SCARCE_RECORD_CHECKS + 1));
        // Between two records nothing is held.
        assert_eq!(checks_of(|_| mark(700, 3, false), true, true), None);
        assert_eq!(checks_of(|n| mark(u64::from(n) << 22, n.into(), true), true, true), None);
        // Whoever has stopped before the others came has had its time.
        let mut patience = Patience::default();
        for _ in 0..=SCARCE_SILENT_CHECKS {
            patience.check(mark(7, 1, true), true, false).unwrap();
        }
        assert_eq!(patience.check(mark(7, 1, true), true, true), Err(Slow::Unfinished));
    }

    #[test]
    fn a_named_host_may_be_idle_and_slow_and_not_stop_within_a_record() {
        assert_eq!(checks(|_| mark(700, 3, false), true), None);
        // Half a record, then nothing: one check to see it, then the limit.
        assert_eq!(checks(|_| mark(700, 3, true), true), Some(SILENT_CHECKS + 1));
        // A byte now and then does not help forever.
        assert_eq!(checks(|n| mark(n.into(), 3, true), true), Some(RECORD_CHECKS + 1));
        // A slow link that completes its records is always in the middle of
        // one.
        let slow = |n: u32| mark(u64::from(n) << 16, u64::from(n / 50), true);
        assert_eq!(checks(slow, true), None);
    }

    #[test]
    fn who_takes_no_replies_is_ended_and_soon_while_others_wait_for_memory() {
        let checks = |at: fn(u32) -> Option<u64>, is_wanted| {
            let mut patience = Patience::default();
            (1..1000).find(|n| patience.check_replies(at(*n), 0, is_wanted).is_err())
        };
        assert_eq!(checks(|_| Some(7), false), Some(UNREAD_CHECKS + 1));
        assert_eq!(checks(|_| Some(7), true), Some(SCARCE_UNREAD_CHECKS + 1));
        // A byte now and then is enough, and so is nothing to take.
        assert_eq!(checks(|n| Some(u64::from(n / (UNREAD_CHECKS / 2))), false), None);
        assert_eq!(checks(|_| None, true), None);
        let mut patience = Patience::default();
        patience.check_replies(Some(7), 0, false).unwrap();
        assert_eq!(patience.period(true), CHECK_PERIOD);
        patience.check_replies(None, 0, false).unwrap();
        assert_eq!(patience.period(true), IDLE_CHECK_PERIOD);
    }

    #[test]
    fn who_takes_replies_slowly_is_ended_while_others_wait_for_their_memory() {
        let checks = |bytes: u64, waiting, is_wanted| {
            let mut patience = Patience::default();
            (1..1000_u32).find(|n| {
                let taken = Some(u64::from(*n) * bytes);
                patience.check_replies(taken, waiting, is_wanted).is_err()
            })
        };
        let much = MAX_UNTOLD_BYTES;
        assert_eq!(checks(1, much, true), Some(SCARCE_RECORD_CHECKS + 1));
        assert_eq!(checks(SCARCE_TAKEN_BYTES - 1, much, true), Some(SCARCE_RECORD_CHECKS + 1));
        assert_eq!(checks(SCARCE_TAKEN_BYTES, much, true), None);
        assert_eq!(checks(1, much, false), None, "nobody waits for it");
        assert_eq!(checks(1, much - 1, true), None, "next to nothing waits");
        let mut patience = Patience::default();
        for check in 0..10 * u64::from(SCARCE_RECORD_CHECKS) {
            // Now and then nobody waits.
            let is_wanted = !check.is_multiple_of(SCARCE_RECORD_CHECKS.into());
            patience.check_replies(Some(check), much, is_wanted).unwrap();
        }
    }

    #[test]
    fn a_host_in_no_export_has_to_say_something_soon() {
        for unfinished in [false, true] {
            assert_eq!(checks(|_| mark(0, 0, unfinished), false), Some(UNNAMED_CHECKS));
            assert_eq!(checks(|n| mark(n.into(), 0, unfinished), false), Some(UNNAMED_CHECKS));
        }
        assert_eq!(checks(|n| mark(0, n.into(), false), false), None);
    }

    #[test]
    fn who_waits_for_the_server_is_excused() {
        let mut patience = Patience::default();
        for _ in 0..10 * RECORD_CHECKS {
            patience.excuse();
            patience.check(mark(7, 1, true), true, false).unwrap();
        }
        assert_eq!(patience.period(true), CHECK_PERIOD);
        patience.check(mark(9, 2, false), true, false).unwrap();
        assert_eq!(patience.period(true), IDLE_CHECK_PERIOD);
        assert_eq!(patience.period(false), CHECK_PERIOD);
    }
}
