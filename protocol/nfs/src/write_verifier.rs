//! The write verifier: how clients learn that unstable data may be lost.

use zgate_store::FileStore;

/// Makes the verifier of every export. It changes at each start, and when the
/// export's storage could not keep what it had taken: the kernel reports a
/// failed write-back once, and everybody who wrote without a sync has to write
/// again (RFC 8881 §18.3.4, RFC 1813 §3.3.7, §3.3.21). Clients of other exports
/// have not.
#[derive(Clone, Copy, Debug)]
pub struct WriteVerifier(u64);

impl WriteVerifier {
    /// Verifiers of this start.
    #[must_use]
    pub fn new(initial: [u8; 8]) -> Self {
        Self(u64::from_be_bytes(initial))
    }

    /// What operations on files of `store` answer now. WRITE takes it before the
    /// data is written and COMMIT after the sync: a loss in between is seen.
    #[must_use]
    pub fn of(self, store: &dyn FileStore) -> [u8; 8] {
        self.0.wrapping_add(store.losses()).to_be_bytes()
    }
}
