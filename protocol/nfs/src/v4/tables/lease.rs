//! Lease of a client: renewed on any core without a lock.

use crate::limits::LEASES_OF_A_RUNNING_REQUEST;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Shared by a client's record, its sessions and its open files.
#[derive(Debug)]
pub struct Lease {
    renewed_seconds: AtomicU64,
    /// Requests of the client that are running.
    running: AtomicU32,
    revoked: AtomicBool,
    attention: AtomicBool,
    /// Number of changes that SEQUENCE may have to tell of.
    news: AtomicU64,
}

impl Lease {
    /// A lease with the renewal time `now_seconds`.
    #[must_use]
    pub fn new(now_seconds: u64) -> Self {
        Self {
            renewed_seconds: AtomicU64::new(now_seconds),
            running: AtomicU32::new(0),
            revoked: AtomicBool::new(false),
            attention: AtomicBool::new(false),
            news: AtomicU64::new(0),
        }
    }

    /// Renews the lease.
    pub fn renew(&self, now_seconds: u64) {
        // Mostly another request has renewed it in the same second: nothing is written then.
        if self.renewed_seconds() < now_seconds {
            self.renewed_seconds.fetch_max(now_seconds, Ordering::Relaxed);
        }
    }

    /// Time of the last renewal.
    #[must_use]
    pub fn renewed_seconds(&self) -> u64 {
        self.renewed_seconds.load(Ordering::Relaxed)
    }

    /// True if the lease has expired. The client keeps its state by courtesy
    /// until another client needs it (RFC 8881 §8.4.2.4).
    ///
    /// It does not expire while a request of the client runs (RFC 8881 §8.3): a
    /// client with requests in all its slots cannot renew it. That lasts for
    /// [`LEASES_OF_A_RUNNING_REQUEST`].
    #[must_use]
    pub fn expired(&self, now_seconds: u64, lease_seconds: u32) -> bool {
        // Before the time: a request that ends renews the lease before it is no
        // longer counted.
        let is_running = self.running() > 0;
        let leases = if is_running { LEASES_OF_A_RUNNING_REQUEST } else { 1 };
        now_seconds > self.renewed_seconds() + leases * u64::from(lease_seconds)
    }

    /// Number of the client's requests that are running: those in slots of its
    /// sessions; of a client of minor version 0 only those that name it.
    #[must_use]
    pub fn running(&self) -> u32 {
        self.running.load(Ordering::Acquire)
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

    /// Makes SEQUENCE check the client's record for changes from now on: it holds
    /// delegations, or lost state or a back channel. This is the first change.
    pub fn want_attention(&self) {
        self.attention.store(true, Ordering::Relaxed);
        self.note_news();
    }

    /// Notes a change after which SEQUENCE may have something to tell. To be called behind
    /// the change.
    pub fn note_news(&self) {
        self.news.fetch_add(1, Ordering::Release);
    }

    /// Number of these changes, if SEQUENCE checks the record at all.
    #[must_use]
    pub fn news(&self) -> Option<u64> {
        self.attention.load(Ordering::Relaxed).then(|| self.news.load(Ordering::Acquire))
    }
}

/// A running request of a client, counted in its lease until this is dropped.
#[derive(Debug)]
pub struct RunningRequest(Arc<Lease>);

impl RunningRequest {
    /// Counts a request.
    #[must_use]
    pub fn of(lease: &Arc<Lease>) -> Self {
        lease.running.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(lease))
    }

    /// The client's lease.
    #[must_use]
    pub fn lease(&self) -> &Lease {
        &self.0
    }
}

impl Drop for RunningRequest {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_running_request_keeps_the_lease_for_a_while() {
        let lease = Arc::new(Lease::new(100));
        assert!(!lease.expired(120, 20) && lease.expired(121, 20));
        let (one, two) = (RunningRequest::of(&lease), RunningRequest::of(&lease));
        assert_eq!(lease.running(), 2);
        drop(one);
        assert_eq!(lease.running(), 1);
        let last = 100 + 20 * LEASES_OF_A_RUNNING_REQUEST;
        assert!(!lease.expired(last, 20) && lease.expired(last + 1, 20));
        two.lease().renew(130);
        drop(two);
        assert!(!lease.expired(150, 20) && lease.expired(151, 20));
    }
}
