//! A client's lease: renewed from any core without a lock.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Shared by a client's record, its sessions and its open files.
#[derive(Debug)]
pub struct Lease {
    renewed_seconds: AtomicU64,
    revoked: AtomicBool,
    attention: AtomicBool,
}

impl Lease {
    /// A lease renewed now.
    #[must_use]
    pub fn new(now_seconds: u64) -> Self {
        Self {
            renewed_seconds: AtomicU64::new(now_seconds),
            revoked: AtomicBool::new(false),
            attention: AtomicBool::new(false),
        }
    }

    /// The client showed life.
    pub fn renew(&self, now_seconds: u64) {
        self.renewed_seconds.fetch_max(now_seconds, Ordering::Relaxed);
    }

    /// When it last did.
    #[must_use]
    pub fn renewed_seconds(&self) -> u64 {
        self.renewed_seconds.load(Ordering::Relaxed)
    }

    /// Whether the lease ran out. The client keeps its state out of courtesy
    /// until another one needs it (RFC 8881 §8.4.2.4).
    #[must_use]
    pub fn expired(&self, now_seconds: u64, lease_seconds: u32) -> bool {
        now_seconds > self.renewed_seconds() + u64::from(lease_seconds)
    }

    /// Takes all rights away, for good.
    pub fn revoke(&self) {
        self.revoked.store(true, Ordering::Release);
    }

    /// Whether they were taken.
    #[must_use]
    pub fn revoked(&self) -> bool {
        self.revoked.load(Ordering::Acquire)
    }

    /// From now on SEQUENCE looks at the client's record for news: it holds
    /// delegations, or lost state.
    pub fn want_attention(&self) {
        self.attention.store(true, Ordering::Relaxed);
    }

    /// Whether it should.
    #[must_use]
    pub fn wants_attention(&self) -> bool {
        self.attention.load(Ordering::Relaxed)
    }
}
