//! The write verifier: tells clients that unstable data may have been lost.

use zgate_store::FileStore;

/// Generates the verifier of every export. It changes at each start, and after
/// a failed write-back of the export's storage: the kernel reports such a
/// failure once, and all clients with unstable writes must write again (RFC
/// 8881 §18.3.4, RFC 1813 §3.3.7, §3.3.21). Clients of other exports are not
/// affected.
#[derive(Clone, Copy, Debug)]
pub struct WriteVerifier(u64);

impl WriteVerifier {
    /// Verifiers of this server start.
    #[must_use]
    pub fn new(initial: [u8; 8]) -> Self {
        Self(u64::from_be_bytes(initial))
    }

    /// The current verifier for files of `store`. WRITE takes it before the
    /// data is written and COMMIT after the sync, so that a loss in between is
    /// detected.
    #[must_use]
    pub fn of(self, store: &dyn FileStore) -> [u8; 8] {
        self.0.wrapping_add(store.losses()).to_be_bytes()
    }
}
