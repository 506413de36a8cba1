//! The lease. A client that sends nothing for the length of its lease loses its
//! open files. A background task renews the lease in time (RFC 8881 §8.3) and
//! handles the status flags that the server returns (§18.46.3).

use crate::channel::Channel;
use crate::compound::Ops;
use crate::error::ClientError;
use crate::revoked;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;
use zgate_nfs_wire::v4::op::sequence::{
    self, STATUS_BACKCHANNEL_FAULT as BACK_FAULT,
    STATUS_RECALLABLE_STATE_REVOKED as DELEGATION_REVOKED,
    STATUS_RESTART_RECLAIM_NEEDED as RECLAIM_NEEDED,
};

/// Flags for revoked state.
const STATE_REVOKED: u32 = sequence::STATUS_EXPIRED_ALL_STATE_REVOKED
    | sequence::STATUS_EXPIRED_SOME_STATE_REVOKED
    | sequence::STATUS_ADMIN_STATE_REVOKED;
/// Flags for a lost callback path.
const BACK_DOWN: u32 = sequence::STATUS_CB_PATH_DOWN | sequence::STATUS_CB_PATH_DOWN_SESSION;
/// Flags that are handled.
const HEEDED: u32 = STATE_REVOKED | RECLAIM_NEEDED | DELEGATION_REVOKED | BACK_DOWN | BACK_FAULT;
/// Not a flag of the server: a connection was lost, possibly the one for
/// callbacks.
const CONNECTION_LOST: u32 = 1 << 31;

/// Assumed lease of a server that does not report it: shorter than usual ones.
const UNTOLD_LEASE: Duration = Duration::from_secs(30);
/// Part of the lease after which it is renewed: two more attempts fit before
/// its end.
const PARTS: u32 = 3;
/// Least pause between two handlings of the flags; it grows while the server
/// reports the same flags.
const PAUSE: Duration = Duration::from_secs(1);

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

    fn raise(&self, flags: u32) {
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

    fn interval(&self) -> Duration {
        Duration::from_millis(self.lease_ms.load(Ordering::Relaxed)) / PARTS
    }

    /// Returns the time at which a renewal is due.
    fn due(&self) -> Instant {
        let renewed = Duration::from_millis(self.renewed.load(Ordering::Relaxed));
        self.begun + renewed + self.interval()
    }
}

/// Starts the task that renews a lease.
pub(crate) fn keeper(channel: &Arc<Channel>) -> AbortOnDropHandle<()> {
    let monitor = Arc::clone(channel.monitor());
    AbortOnDropHandle::new(tokio::spawn(keep(Arc::downgrade(channel), monitor)))
}

async fn keep(channel: Weak<Channel>, monitor: Arc<LeaseMonitor>) {
    let (mut heeded, mut pause) = (None::<Instant>, PAUSE);
    loop {
        tokio::select! {
            () = tokio::time::sleep_until(monitor.due()) => {}
            () = monitor.raised.notified() => {
                if let Some(before) = heeded {
                    tokio::time::sleep_until(before + pause).await;
                }
            }
        }
        let Some(channel) = channel.upgrade() else { return };
        let flags = monitor.flags.swap(0, Ordering::Relaxed);
        let mut result = Ok(());
        if flags != 0 {
            let again = heeded.is_some_and(|before| before.elapsed() < 2 * pause);
            pause = if again { (2 * pause).min(monitor.interval()).max(PAUSE) } else { PAUSE };
            heeded = Some(Instant::now());
            result = heed(&channel, flags).await;
        }
        if result.is_ok() && monitor.due() <= Instant::now() {
            result = channel.exchange(&Ops::new(), false, &mut None).await.map(|_| ());
        }
        if let Err(error) = result {
            // Callers of the client get the error, too.
            tracing::debug!(%error, "cannot renew the lease");
            monitor.raise(flags);
            heeded = None;
            tokio::time::sleep(PAUSE).await;
        }
    }
}

async fn heed(channel: &Channel, flags: u32) -> Result<(), ClientError> {
    if flags & RECLAIM_NEEDED != 0 {
        tracing::info!("the server has restarted: reclaiming open files");
        channel.reclaim_in_session().await?;
    }
    if flags & STATE_REVOKED != 0 {
        tracing::warn!("the server has revoked open files: they are opened again");
    }
    if flags & (STATE_REVOKED | DELEGATION_REVOKED) != 0 {
        revoked::acknowledge(channel).await?;
    }
    if flags & BACK_FAULT != 0 {
        tracing::info!("the server cannot call back: files are read without delegations");
        channel.session().give_up_back();
        channel.delegations().give_back_all_but(0);
    } else if flags & (BACK_DOWN | CONNECTION_LOST) != 0 {
        channel.mend_back(flags & BACK_DOWN != 0).await?;
    }
    Ok(())
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
