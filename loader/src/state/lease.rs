//! The lease. A client that sends nothing for the length of its lease loses its
//! open files (RFC 8881 §8.3).

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;
use zgate_nfs_wire::v4::op::sequence::{
    self, STATUS_BACKCHANNEL_FAULT as BACK_FAULT,
    STATUS_RECALLABLE_STATE_REVOKED as DELEGATION_REVOKED,
    STATUS_RESTART_RECLAIM_NEEDED as RECLAIM_NEEDED,
};

/// Flags for revoked state.
pub(crate) const STATE_REVOKED: u32 = sequence::STATUS_EXPIRED_ALL_STATE_REVOKED
    | sequence::STATUS_EXPIRED_SOME_STATE_REVOKED
    | sequence::STATUS_ADMIN_STATE_REVOKED;
/// Flags for a lost callback path.
pub(crate) const BACK_DOWN: u32 =
    sequence::STATUS_CB_PATH_DOWN | sequence::STATUS_CB_PATH_DOWN_SESSION;
/// Flags that are handled.
const HEEDED: u32 = STATE_REVOKED | RECLAIM_NEEDED | DELEGATION_REVOKED | BACK_DOWN | BACK_FAULT;
/// Not a flag of the server: a connection was lost, possibly the one for
/// callbacks.
pub(crate) const CONNECTION_LOST: u32 = 1 << 31;

/// Assumed lease of a server that does not report it: shorter than usual ones.
const UNTOLD_LEASE: Duration = Duration::from_secs(30);
/// Part of the lease after which it is renewed: two more attempts fit before
/// its end.
const PARTS: u32 = 3;
/// Status flags that the server sent, and the time of the last renewal.
#[derive(Debug)]
pub(crate) struct LeaseMonitor {
    begun: Instant,
    /// Time at which the last renewing request was sent, in milliseconds since
    /// `begun`.
    renewed: AtomicU64,
    lease_ms: AtomicU64,
    /// SEQ4_STATUS_* flags not handled yet.
    flags: AtomicU32,
    raised: Notify,
}

impl LeaseMonitor {
    pub(crate) fn new() -> Self {
        Self {
            begun: Instant::now(),
            renewed: AtomicU64::new(0),
            lease_ms: AtomicU64::new(UNTOLD_LEASE.as_millis() as u64),
            flags: AtomicU32::new(0),
            raised: Notify::new(),
        }
    }

    /// Records that a request sent at `sent` passed SEQUENCE.
    pub(crate) fn renewed(&self, sent: Instant, flags: u32) {
        let at = sent.saturating_duration_since(self.begun).as_millis() as u64;
        self.renewed.fetch_max(at, Ordering::Relaxed);
        if flags & HEEDED != 0 {
            self.raise(flags & HEEDED);
        }
    }

    /// Adds flags to be handled.
    pub(crate) fn raise(&self, flags: u32) {
        if self.flags.fetch_or(flags, Ordering::Relaxed) & flags != flags {
            self.raised.notify_one();
        }
    }

    /// Records that a connection was lost.
    pub(crate) fn connection_lost(&self) {
        self.raise(CONNECTION_LOST);
    }

    /// Sets the length of the lease reported by the server.
    pub(crate) fn set_lease(&self, lease: Duration) {
        let lease = lease.max(Duration::from_secs(1));
        self.lease_ms.store(lease.as_millis() as u64, Ordering::Relaxed);
    }

    /// Pause between two renewals.
    pub(crate) fn interval(&self) -> Duration {
        Duration::from_millis(self.lease_ms.load(Ordering::Relaxed)) / PARTS
    }

    /// Waits until flags are raised.
    pub(crate) async fn raised(&self) {
        self.raised.notified().await;
    }

    /// Takes the flags to be handled.
    pub(crate) fn take_flags(&self) -> u32 {
        self.flags.swap(0, Ordering::Relaxed)
    }

    /// Returns the time at which a renewal is due.
    pub(crate) fn due(&self) -> Instant {
        let renewed = Duration::from_millis(self.renewed.load(Ordering::Relaxed));
        self.begun + renewed + self.interval()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_sent_puts_the_next_renewal_off() {
        let monitor = LeaseMonitor::new();
        monitor.set_lease(Duration::from_secs(90));
        let begun = monitor.begun;
        assert_eq!(monitor.due(), begun + Duration::from_secs(30));
        monitor.renewed(begun + Duration::from_secs(20), 0);
        assert_eq!(monitor.due(), begun + Duration::from_secs(50));
        // A reply to an older request changes nothing.
        monitor.renewed(begun + Duration::from_secs(10), 0);
        assert_eq!(monitor.due(), begun + Duration::from_secs(50));
    }

    #[tokio::test]
    async fn what_the_server_says_is_heard_once_until_it_is_heeded() {
        let monitor = LeaseMonitor::new();
        let now = Instant::now();
        // Lease moved: not handled here.
        monitor.renewed(now, 0x80);
        let heard = || tokio::time::timeout(Duration::from_millis(10), monitor.raised.notified());
        assert!(heard().await.is_err());
        monitor.renewed(now, 0x10);
        monitor.renewed(now, 0x10);
        assert!(heard().await.is_ok());
        assert!(heard().await.is_err());
        assert_eq!(monitor.flags.swap(0, Ordering::Relaxed), 0x10);
        monitor.renewed(now, 0x10);
        assert!(heard().await.is_ok());
    }
}
