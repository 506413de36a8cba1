//! NFSv3 changes that wait for the end of grace, in bounds: each holds its data, and takes the
//! place of another request of its connection.

use crate::limits::{MAX_GRACE_HELD_BYTES, MAX_GRACE_WAITERS};
use std::sync::atomic::{AtomicUsize, Ordering};

/// All of them.
#[derive(Debug, Default)]
pub(super) struct GraceWaiters {
    requests: AtomicUsize,
    bytes: AtomicUsize,
}

/// One of them, counted until this is dropped.
#[derive(Debug)]
pub(super) struct GraceWaiter<'a> {
    all: &'a GraceWaiters,
    bytes: usize,
}

impl GraceWaiters {
    /// Returns `None` if there are too many, or their data is too much.
    pub(super) fn enter(&self, bytes: usize) -> Option<GraceWaiter<'_>> {
        let requests = self.requests.fetch_add(1, Ordering::Relaxed) + 1;
        let held_bytes = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        // One that may not wait is taken back when it is dropped.
        let waiter = GraceWaiter { all: self, bytes };
        let may_wait = requests <= MAX_GRACE_WAITERS && held_bytes <= MAX_GRACE_HELD_BYTES;
        may_wait.then_some(waiter)
    }
}

impl Drop for GraceWaiter<'_> {
    fn drop(&mut self) {
        self.all.requests.fetch_sub(1, Ordering::Relaxed);
        self.all.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_wait_for_the_end_of_grace_are_bounded() {
        let waiters = GraceWaiters::default();
        let all: Vec<_> = (0..MAX_GRACE_WAITERS).map(|_| waiters.enter(0)).collect();
        assert!(all.iter().all(Option::is_some));
        assert!(waiters.enter(0).is_none());
        assert!(waiters.enter(0).is_none(), "who did not enter is not counted");
        drop(all);
        assert_eq!(waiters.requests.load(Ordering::Relaxed), 0);
        assert!(waiters.enter(0).is_some());
    }

    #[test]
    fn the_data_of_those_who_wait_is_bounded() {
        let waiters = GraceWaiters::default();
        let most = waiters.enter(MAX_GRACE_HELD_BYTES);
        assert!(most.is_some());
        assert!(waiters.enter(1).is_none());
        assert!(waiters.enter(0).is_some(), "who has no data waits");
        drop(most);
        assert!(waiters.enter(1).is_some());
        assert_eq!(waiters.bytes.load(Ordering::Relaxed), 0);
    }
}
