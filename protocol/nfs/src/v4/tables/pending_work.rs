//! Work that must end before the state of a client is granted to another one:
//! its requests that the backend has not completed, and the removal of its
//! record from stable storage.

use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Weak};

/// Held by work in progress. Dropping the last clone marks its end.
#[derive(Clone, Debug, Default)]
pub struct WorkGuard(Arc<()>);

impl WorkGuard {
    /// A view for waiting for the end of the work.
    #[must_use]
    pub fn pending(&self) -> PendingWork {
        PendingWork(Arc::downgrade(&self.0))
    }
}

/// Work that can be waited for.
#[derive(Clone, Debug)]
pub struct PendingWork(Weak<()>);

impl PendingWork {
    /// True if both are the same work.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        self.0.ptr_eq(&other.0)
    }

    /// True if the work has ended. Its effects are visible then.
    #[must_use]
    pub fn is_over(&self) -> bool {
        let over = self.0.strong_count() == 0;
        fence(Ordering::Acquire);
        over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_over_when_the_last_part_of_it_is() {
        let work = WorkGuard::default();
        let pending = work.pending();
        let part = work.clone();
        drop(work);
        assert!(!pending.is_over());
        drop(part);
        assert!(pending.is_over());
    }
}
