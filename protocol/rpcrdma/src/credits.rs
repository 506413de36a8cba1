//! Credits (RFC 8166 §3.3.1): the number of calls that may be outstanding, and
//! the receives that back them.

use crate::limits::MAX_CREDITS;
use std::num::NonZeroU32;

/// A number of credits that may be sent: never zero, never above the number of
/// receives posted when it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant(NonZeroU32);

impl Grant {
    /// Returns the value for the wire.
    #[must_use]
    pub fn get(self) -> u32 {
        self.0.get()
    }
}

/// Number of receives posted by a responder.
#[derive(Clone, Debug)]
pub struct ReceiveQueue {
    posted: u32,
    /// Receives reserved for messages that take no credit: replies to callbacks
    /// and errors about them.
    reserved: u32,
    ceiling: NonZeroU32,
}

impl ReceiveQueue {
    /// Creates an empty queue that grants at most `ceiling` credits and
    /// excludes `reserved` receives from the count.
    #[must_use]
    pub fn new(ceiling: NonZeroU32, reserved: u32) -> Self {
        let most = NonZeroU32::new(MAX_CREDITS).unwrap_or(NonZeroU32::MIN);
        Self { posted: 0, reserved, ceiling: ceiling.min(most) }
    }

    /// Returns the number of receives to keep posted.
    #[must_use]
    pub fn depth(&self) -> u32 {
        self.ceiling.get() + self.reserved
    }

    /// Records that a receive was posted.
    pub fn posted(&mut self) {
        self.posted += 1;
    }

    /// Records that a receive was used by a message, or returned unused.
    pub fn consumed(&mut self) {
        debug_assert!(self.posted > 0, "a receive that was never posted");
        self.posted = self.posted.saturating_sub(1);
    }

    /// Returns the grant for a peer that requests `wanted` credits. `None`: no
    /// receive is posted, and one must be before any reply.
    #[must_use]
    pub fn grant(&self, wanted: u32) -> Option<Grant> {
        let behind_it = self.posted.saturating_sub(self.reserved);
        // RFC 8166 §3.3.1: a grant of zero would be a deadlock.
        NonZeroU32::new(wanted.clamp(1, self.ceiling.get()).min(behind_it)).map(Grant)
    }
}

/// The right to have one call outstanding.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a credit that is dropped is never returned"]
pub struct Credit(());

/// Credits of a requester.
#[derive(Clone, Debug)]
pub struct SendCredits {
    granted: u32,
    used: u32,
}

/// Until the first reply only one call may be outstanding (RFC 8166 §3.3.3).
impl Default for SendCredits {
    fn default() -> Self {
        Self { granted: 1, used: 0 }
    }
}

impl SendCredits {
    /// Takes a credit; `None` if all are in use.
    pub fn take(&mut self) -> Option<Credit> {
        (self.used < self.granted).then(|| {
            self.used += 1;
            Credit(())
        })
    }

    /// Returns the credit of an answered call, whose reply grants `granted`.
    pub fn answered(&mut self, credit: Credit, granted: u32) {
        self.forfeit(credit);
        self.granted = granted.clamp(1, MAX_CREDITS);
    }

    /// Returns the credit of a call that ended without a reply.
    pub fn forfeit(&mut self, _credit: Credit) {
        self.used = self.used.saturating_sub(1);
    }

    /// Returns the number of outstanding calls.
    #[must_use]
    pub fn in_use(&self) -> u32 {
        self.used
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(ceiling: u32, reserved: u32) -> ReceiveQueue {
        ReceiveQueue::new(NonZeroU32::new(ceiling).unwrap(), reserved)
    }

    #[test]
    fn grants_stay_between_one_and_what_is_posted() {
        let mut queue = queue(64, 2);
        assert_eq!(queue.depth(), 66);
        assert_eq!(queue.grant(32), None);
        for posted in 1..=80u32 {
            queue.posted();
            for wanted in [0, 1, 32, 64, 1000] {
                match queue.grant(wanted) {
                    Some(grant) => {
                        assert!(grant.get() >= 1);
                        assert!(grant.get() <= posted - 2);
                        assert!(grant.get() <= 64);
                        assert!(grant.get() <= wanted.max(1));
                    }
                    None => assert!(posted <= 2),
                }
            }
        }
        for _ in 0..80 {
            queue.consumed();
        }
        assert_eq!(queue.grant(1), None);
    }

    #[test]
    fn a_requester_never_exceeds_what_it_was_granted() {
        let mut credits = SendCredits::default();
        let first = credits.take().unwrap();
        assert!(credits.take().is_none());
        credits.answered(first, 3);
        let taken: Vec<_> = std::iter::from_fn(|| credits.take()).collect();
        assert_eq!(taken.len(), 3);
        for credit in taken {
            credits.answered(credit, 0);
        }
        let last = credits.take().unwrap();
        assert!(credits.take().is_none(), "a grant of zero counts as one");
        credits.forfeit(last);
        assert_eq!(credits.in_use(), 0);
    }
}
