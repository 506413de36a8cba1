//! The write verifier: how clients learn that unstable data may be lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use zgate_store::StoreError;

/// The same for all versions and cores. It changes at every start and when the
/// storage says that it could not keep what it had taken: the kernel reports a
/// failed write-back once, and whoever wrote without a sync has to write again
/// (RFC 8881 §18.3.4, RFC 1813 §3.3.7).
#[derive(Clone, Debug)]
pub struct WriteVerifier(Arc<AtomicU64>);

impl WriteVerifier {
    /// The verifier of this start.
    #[must_use]
    pub fn new(initial: [u8; 8]) -> Self {
        Self(Arc::new(AtomicU64::new(u64::from_be_bytes(initial))))
    }

    /// What WRITE and COMMIT answer now. Take it before the operation.
    #[must_use]
    pub fn get(&self) -> [u8; 8] {
        self.0.load(Ordering::Acquire).to_be_bytes()
    }

    /// Changes the verifier when the error means that data taken earlier may
    /// be gone.
    pub fn note(&self, error: StoreError) {
        if matches!(error, StoreError::Io | StoreError::NoSpace | StoreError::QuotaExceeded) {
            self.0.fetch_add(1, Ordering::AcqRel);
            tracing::warn!(
                %error,
                "data could not be brought to stable storage; clients will write it again"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lost_data_changes_it() {
        let verifier = WriteVerifier::new(*b"verifier");
        let shared = verifier.clone();
        verifier.note(StoreError::Stale);
        assert_eq!(shared.get(), *b"verifier");
        verifier.note(StoreError::Io);
        assert_ne!(shared.get(), *b"verifier");
    }
}
