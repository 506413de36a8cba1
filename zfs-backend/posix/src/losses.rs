//! Data that was taken and could not be kept. The kernel reports a failed
//! write-back once, to whoever syncs next by the same descriptor; everybody else
//! learns of it from this count.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use zgate_store::{StoreError, StoreResult};

/// Counts the losses of a store; clones share it.
#[derive(Clone, Debug)]
pub struct Losses(Arc<AtomicU64>);

/// What stores begin with and count on from: no two share a number, so that a
/// store that is opened again does not have an old one.
fn next() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::AcqRel) + 1
}

impl Default for Losses {
    fn default() -> Self {
        Self(Arc::new(AtomicU64::new(next())))
    }
}

impl Losses {
    /// Another number after each loss.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Counts a sync's error that means that data taken earlier may be gone.
    pub(crate) fn note<T>(&self, synced: StoreResult<T>) -> StoreResult<T> {
        if let Err(error @ (StoreError::Io | StoreError::NoSpace | StoreError::QuotaExceeded)) =
            synced
        {
            self.count(error);
        }
        synced
    }

    /// Counts a loss.
    pub(crate) fn count(&self, error: StoreError) {
        self.0.fetch_max(next(), Ordering::AcqRel);
        tracing::warn!(
            %error,
            "data could not be brought to stable storage; clients of the export write again what \
             they have not committed"
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
