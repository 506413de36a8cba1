//! Budget of descriptors that the stores of a process may keep open, so that
//! other parts of the process always find some free.
//!
//! Cached objects and files that clients have open draw on one budget. When it
//! is used up, unused cached objects are closed; if there are too few, files with
//! unstable writes are synced, so that they can be closed next. If none could be
//! closed, the request for a descriptor fails with [`StoreError::OutOfResources`]
//! and the client retries. Descriptors that live for one or two system calls are not counted:
//! each worker thread has a few at most.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use zgate_store::{StoreError, StoreResult};

/// Number of objects closed when a descriptor is needed and none is left.
const RECLAIMED_AT_ONCE: usize = 32;

/// A table of objects with descriptors.
pub(crate) trait Reclaim: Send + Sync {
    /// Closes at most `most` unused objects; returns their number.
    fn let_go_of_idle(&self, most: usize) -> usize;

    /// Begins what makes objects unused, up to `most` of them.
    fn make_idle(&self, _most: usize) {}
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
        for cache in &caches {
            wanted -= cache.let_go_of_idle(wanted);
            if wanted == 0 {
                return;
            }
        }
        // Only now: it costs syncs.
        for cache in &caches {
            cache.make_idle(wanted);
        }
    }

    /// Claims one descriptor that is about to be opened, if that closes no other one: to
    /// close one may take long.
    pub(crate) fn claim_free(self: &Arc<Self>) -> Option<Claim> {
        self.reserve().then(|| Claim(Arc::clone(self)))
    }

    /// Claims one descriptor that is about to be opened. May wait for the storage of objects
    /// that are closed for it.
    pub(crate) fn claim(self: &Arc<Self>) -> StoreResult<Claim> {
        if let Some(claim) = self.claim_free() {
            return Ok(claim);
        }
        self.reclaim();
        self.claim_free().ok_or(StoreError::OutOfResources)
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

    /// Does the same, if that closes no other one.
    pub(crate) fn another_free(&self) -> Option<Self> {
        self.0.claim_free()
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

    /// A table with unused objects, which notes how many more it was asked for.
    struct Table {
        idle: AtomicUsize,
        asked: AtomicUsize,
    }

    impl Reclaim for Table {
        fn let_go_of_idle(&self, most: usize) -> usize {
            let closed = self.idle.load(Ordering::Relaxed).min(most);
            self.idle.fetch_sub(closed, Ordering::Relaxed);
            closed
        }

        fn make_idle(&self, most: usize) {
            self.asked.store(most, Ordering::Relaxed);
        }
    }

    #[test]
    fn no_object_is_made_unused_while_another_table_has_some() {
        let budget = DescriptorBudget::new(0);
        let table =
            |idle| Arc::new(Table { idle: AtomicUsize::new(idle), asked: AtomicUsize::new(0) });
        let tables = [0, RECLAIMED_AT_ONCE + 2].map(table);
        for table in &tables {
            let reclaimed: Weak<Table> = Arc::downgrade(table);
            budget.reclaim_from(reclaimed);
        }
        let asked = || tables.each_ref().map(|table| table.asked.load(Ordering::Relaxed));
        assert!(budget.claim_free().is_none());
        assert_eq!(tables[1].idle.load(Ordering::Relaxed), RECLAIMED_AT_ONCE + 2);
        assert_eq!(budget.claim().unwrap_err(), StoreError::OutOfResources);
        assert_eq!(asked(), [0, 0]);
        assert_eq!(budget.claim().unwrap_err(), StoreError::OutOfResources);
        assert_eq!(asked(), [RECLAIMED_AT_ONCE - 2; 2]);
    }
}
