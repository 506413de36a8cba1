//! Descriptors that the stores of a process may keep open: counted where they
//! are opened, so that other parts of the process always find some free.
//!
//! Objects at hand and files that clients have open draw on one budget. When it
//! is used up, objects nobody uses are let go of; when there are none, whoever
//! wants a descriptor is told to come back later
//! ([`StoreError::OutOfResources`]). Descriptors that live as long as one system
//! call or two are not counted: each worker thread has a few at most.

use crate::entry_cache::EntryCache;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use zgate_store::{StoreError, StoreResult};

/// Objects let go of when a descriptor is wanted and none is left.
const RECLAIMED_AT_ONCE: usize = 32;

/// What all stores together may keep open.
pub struct DescriptorBudget {
    limit: usize,
    held: AtomicUsize,
    caches: Mutex<Vec<Weak<EntryCache>>>,
}

impl fmt::Debug for DescriptorBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DescriptorBudget({} of {})", self.held(), self.limit)
    }
}

impl DescriptorBudget {
    /// A budget of so many descriptors.
    #[must_use]
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, held: AtomicUsize::new(0), caches: Mutex::default() })
    }

    /// How many there may be.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// How many there are.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Lets objects of this cache go when descriptors are short.
    pub(crate) fn reclaim_from(&self, cache: &Arc<EntryCache>) {
        let mut caches = self.caches.lock().unwrap_or_else(PoisonError::into_inner);
        caches.retain(|cache| cache.strong_count() > 0);
        caches.push(Arc::downgrade(cache));
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

    /// A place for one descriptor that is about to be opened.
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

/// A place for one descriptor. Dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Claim(Arc<DescriptorBudget>);

impl Claim {
    /// A place for another one of the same process.
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
