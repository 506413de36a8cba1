//! Lease of a client: renewed on any core without a lock.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Shared by a client's record, its sessions and its open files.
#[derive(Debug)]
pub struct Lease {
    renewed_seconds: AtomicU64,
    revoked: AtomicBool,
    attention: AtomicBool,
}

impl Lease {
    /// A lease with the renewal time `now_seconds`.
    #[must_use]
    pub fn new(now_seconds: u64) -> Self {
        Self {
            renewed_seconds: AtomicU64::new(now_seconds),
            revoked: AtomicBool::new(false),
            attention: AtomicBool::new(false),
        }
    }

    /// Renews the lease.
    pub fn renew(&self, now_seconds: u64) {
        self.renewed_seconds.fetch_max(now_seconds, Ordering::Relaxed);
    }

    /// Time of the last renewal.
    #[must_use]
    pub fn renewed_seconds(&self) -> u64 {
        self.renewed_seconds.load(Ordering::Relaxed)
    }

    /// True if the lease has expired. The client keeps its state by courtesy
    /// until another client needs it (RFC 8881 §8.4.2.4).
    #[must_use]
    pub fn expired(&self, now_seconds: u64, lease_seconds: u32) -> bool {
        now_seconds > self.renewed_seconds() + u64::from(lease_seconds)
    }

    /// Revokes the lease permanently.
    pub fn revoke(&self) {
        self.revoked.store(true, Ordering::Release);
    }

    /// True if the lease was revoked.
    #[must_use]
    pub fn revoked(&self) -> bool {
        self.revoked.load(Ordering::Acquire)
    }

    /// Makes SEQUENCE check the client's record for changes: it holds
    /// delegations, or lost state.
    pub fn want_attention(&self) {
        self.attention.store(true, Ordering::Relaxed);
    }

    /// True if SEQUENCE must check the record.
    #[must_use]
    pub fn wants_attention(&self) -> bool {
        self.attention.load(Ordering::Relaxed)
    }
}
