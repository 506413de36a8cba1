//! Losses of accepted data. The kernel reports a failed write-back once, to the
//! next caller that syncs by the same descriptor; all others learn of it from
//! this count.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use zgate_store::{StoreError, StoreResult};

/// Number of losses of a store; clones share it.
#[derive(Clone, Debug)]
pub struct Losses(Arc<AtomicU64>);

/// Returns the next number. The counter is shared by all stores, so that a
/// reopened store never has an old number.
fn next() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::AcqRel) + 1
}

/// Returns whether an error of a sync means that earlier data may be lost.
pub(crate) fn is_loss(error: StoreError) -> bool {
    matches!(error, StoreError::Io | StoreError::NoSpace | StoreError::QuotaExceeded)
}

impl Default for Losses {
    fn default() -> Self {
        Self(Arc::new(AtomicU64::new(next())))
    }
}

impl Losses {
    /// Returns the current number, which changes with each loss.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Counts a sync error that means that earlier data may be lost.
    pub(crate) fn note<T>(&self, synced: StoreResult<T>) -> StoreResult<T> {
        if let Some(error) = synced.as_ref().err().copied().filter(|error| is_loss(*error)) {
            self.count(error);
        }
        synced
    }

    /// Counts a loss.
    pub(crate) fn count(&self, error: StoreError) {
        self.0.fetch_max(next(), Ordering::AcqRel);
        tracing::warn!(
            %error,
            "data could not be written to stable storage; clients of the export send uncommitted \
             writes again"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lost_data_counts() {
        let losses = Losses::default();
        let shared = losses.clone();
        let before = losses.generation();
        let _ = losses.note::<()>(Err(StoreError::Stale));
        assert_eq!(shared.generation(), before);
        for error in [StoreError::Io, StoreError::NoSpace, StoreError::QuotaExceeded] {
            let before = losses.generation();
            assert_eq!(losses.note::<()>(Err(error)), Err(error));
            assert!(shared.generation() > before);
        }
        assert_ne!(Losses::default().generation(), losses.generation());
    }
}
