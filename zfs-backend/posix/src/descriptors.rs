//! Budget of descriptors that the stores of a process may keep open, so that
//! other parts of the process always find some free.
//!
//! Cached objects and files that clients have open draw on one budget. When it
//! is used up, unused cached objects are closed, and files with unstable writes are
//! synced, so that they can be closed next; if none could be closed, the request
//! for a descriptor fails with [`StoreError::OutOfResources`] and the client
//! retries. Descriptors that live for one or two system calls are not counted:
//! each worker thread has a few at most.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use zgate_store::{StoreError, StoreResult};

/// Number of objects closed when a descriptor is needed and none is left.
const RECLAIMED_AT_ONCE: usize = 32;

/// A table of objects with descriptors.
pub(crate) trait Reclaim: Send + Sync {
    /// Closes at most `most` unused objects, or prepares that; returns the number of those
    /// that are closed.
    fn let_go_of_idle(&self, most: usize) -> usize;
}

/// Number of descriptors that all stores together may keep open.
pub struct DescriptorBudget {
    limit: usize,
    held: AtomicUsize,
    caches: Mutex<Vec<Weak<dyn Reclaim>>>,
}

impl fmt::Debug for DescriptorBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DescriptorBudget({} of {})", self.held(), self.limit)
    }
}

impl DescriptorBudget {
    /// Creates a budget of `limit` descriptors.
    #[must_use]
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, held: AtomicUsize::new(0), caches: Mutex::default() })
    }

    /// Returns the limit.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Returns the number of descriptors in use.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Registers a cache whose objects may be closed when descriptors are
    /// short.
    pub(crate) fn reclaim_from(&self, cache: Weak<dyn Reclaim>) {
        let mut caches = self.caches.lock().unwrap_or_else(PoisonError::into_inner);
        caches.retain(|cache| cache.strong_count() > 0);
        caches.push(cache);
    }

    fn reserve(&self) -> bool {
        let more = |held: usize| (held < self.limit).then_some(held + 1);
        self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    fn reclaim(&self) {
        let caches: Vec<_> = {
            let caches = self.caches.lock().unwrap_or_else(PoisonError::into_inner);
            caches.iter().filter_map(Weak::upgrade).collect()
        };
        let mut wanted = RECLAIMED_AT_ONCE;
        for cache in caches {
            wanted -= cache.let_go_of_idle(wanted);
            if wanted == 0 {
                return;
            }
        }
    }

    /// Claims one descriptor that is about to be opened.
    pub(crate) fn claim(self: &Arc<Self>) -> StoreResult<Claim> {
        if !self.reserve() {
            self.reclaim();
            if !self.reserve() {
                return Err(StoreError::OutOfResources);
            }
        }
        Ok(Claim(Arc::clone(self)))
    }
}

/// Claim on one descriptor. Dropping it returns the descriptor to the budget.
#[derive(Debug)]
pub(crate) struct Claim(Arc<DescriptorBudget>);

impl Claim {
    /// Claims another descriptor of the same process.
    pub(crate) fn another(&self) -> StoreResult<Self> {
        self.0.claim()
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.0.held.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_end_at_the_limit_and_come_back() {
        let budget = DescriptorBudget::new(2);
        let first = budget.claim().unwrap();
        let second = first.another().unwrap();
        assert_eq!(first.another().unwrap_err(), StoreError::OutOfResources);
        drop(second);
        assert_eq!(budget.held(), 1);
        assert!(budget.claim().is_ok());
    }
}
