//! Files with a write delegation. Each GETATTR of a file asks for its holder; it mostly learns
//! here, without the lock of the tables, that there is none.

use ahash::RandomState;
use std::hash::Hash;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// Number of counters. Files share counters by their hash; a collision costs a look at the
/// tables.
const COUNTERS: usize = 1 << 12;

/// Numbers of write delegations, on cache lines of their own: each GETATTR reads them, and other
/// requests write what is beside them in the state of the server.
#[derive(Debug)]
#[repr(align(128))]
pub struct WriteDelegations {
    all: AtomicUsize,
    by_file: Box<[AtomicU32]>,
    hasher: RandomState,
}

impl WriteDelegations {
    /// None. `secret` decides which files share a counter: clients must not know.
    #[must_use]
    pub fn new(secret: u64) -> Self {
        Self {
            all: AtomicUsize::new(0),
            by_file: (0..COUNTERS).map(|_| AtomicU32::new(0)).collect(),
            // As in `Changes`.
            hasher: RandomState::with_seeds(secret, 0, 0, 0),
        }
    }

    fn counter(&self, file: &impl Hash) -> &AtomicU32 {
        &self.by_file[self.hasher.hash_one(file) as usize % COUNTERS]
    }

    /// Counts a delegation that enters the tables. To be called before its client is told: it
    /// may change the file from then on.
    pub fn enter(&self, file: &impl Hash) {
        self.counter(file).fetch_add(1, Ordering::Release);
        self.all.fetch_add(1, Ordering::Release);
    }

    /// Counts one that has left the tables.
    pub fn leave(&self, file: &impl Hash) {
        self.counter(file).fetch_sub(1, Ordering::Release);
        self.all.fetch_sub(1, Ordering::Release);
    }

    /// True if there is any.
    #[must_use]
    pub fn are_any(&self) -> bool {
        self.all.load(Ordering::Acquire) > 0
    }

    /// True if there may be one of this file: the tables tell.
    #[must_use]
    pub fn may_be_of(&self, file: &impl Hash) -> bool {
        self.counter(file).load(Ordering::Acquire) > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_counts_until_its_last_delegation_leaves() {
        let held = WriteDelegations::new(7);
        assert!(!held.are_any() && !held.may_be_of(&1));
        held.enter(&1);
        held.enter(&1);
        held.leave(&1);
        assert!(held.are_any() && held.may_be_of(&1));
        let others = (2..1000).filter(|file| held.may_be_of(file)).count();
        assert!(others < 10, "{others} look at the tables in vain");
        held.leave(&1);
        assert!(!held.are_any() && !held.may_be_of(&1));
    }
}
