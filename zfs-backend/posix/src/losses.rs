//! Losses of accepted data. The kernel reports a failed write-back once, to the
//! next caller that syncs by the same descriptor; all others learn of it from
//! this count.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use zgate_io::throttle::warn_seldom;
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

/// Returns the loss of earlier data that may be behind the end of a write of `len` bytes
/// that syncs itself. Where the kernel reports a failed write-back once, the error may be
/// that report, also the one behind a write that is cut short; a write that is refused for
/// lack of space cannot be told from it. Elsewhere (ZFS) space is checked before a write is
/// accepted, and each sync is told its own error: a user without space loses nobody's data.
pub(crate) fn loss_of_write(
    written: StoreResult<usize>,
    len: usize,
    is_told_once: bool,
) -> Option<StoreError> {
    match written {
        Ok(written) => (written < len && is_told_once).then_some(StoreError::Io),
        Err(StoreError::NoSpace | StoreError::QuotaExceeded) if !is_told_once => None,
        Err(error) => is_loss(error).then_some(error),
    }
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

    /// Changes the number where nobody will be told of a loss.
    pub(crate) fn renew(&self) {
        self.0.fetch_max(next(), Ordering::AcqRel);
    }

    /// Counts that the file system may have other content than a moment ago, by somebody else:
    /// nobody knows of what was accepted whether it is there.
    pub fn content_replaced(&self) {
        self.renew();
    }

    /// Counts a loss.
    pub(crate) fn count(&self, error: StoreError) {
        self.renew();
        warn_seldom!(
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
        let before = losses.generation();
        losses.content_replaced();
        assert!(shared.generation() > before);
        assert_ne!(Losses::default().generation(), losses.generation());
    }

    #[test]
    fn who_has_no_space_left_loses_nobodys_data_on_zfs() {
        use StoreError::{Io, NoSpace, QuotaExceeded, Stale};
        for (written, told_once, elsewhere) in [
            (Ok(9), None, None),
            (Ok(5), Some(Io), None),
            (Err(NoSpace), Some(NoSpace), None),
            (Err(QuotaExceeded), Some(QuotaExceeded), None),
            (Err(Io), Some(Io), Some(Io)),
            (Err(Stale), None, None),
        ] {
            assert_eq!(loss_of_write(written, 9, true), told_once, "{written:?}");
            assert_eq!(loss_of_write(written, 9, false), elsewhere, "{written:?}");
        }
    }
}
