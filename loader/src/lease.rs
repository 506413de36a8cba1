//! The lease: who holds files open and says nothing for that long loses them. A
//! task beside the client says something in time (RFC 8881 §8.3), and looks
//! after what the server says of the lease in return (§18.46.3).

use crate::attendant::Attendant;
use crate::channel::Channel;
use crate::compound::Ops;
use crate::error::ClientError;
use crate::revoked;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// SEQ4_STATUS_EXPIRED_ALL_STATE_REVOKED, _SOME_STATE_REVOKED, and
/// SEQ4_STATUS_ADMIN_STATE_REVOKED: something that was open is not any more.
const STATE_REVOKED: u32 = 0x8 | 0x10 | 0x20;
/// SEQ4_STATUS_RESTART_RECLAIM_NEEDED.
const RECLAIM_NEEDED: u32 = 0x100;
/// SEQ4_STATUS_RECALLABLE_STATE_REVOKED: a delegation was not returned in time.
const DELEGATION_REVOKED: u32 = 0x40;
/// SEQ4_STATUS_CB_PATH_DOWN and SEQ4_STATUS_CB_PATH_DOWN_SESSION.
const BACK_DOWN: u32 = 0x1 | 0x200;
/// SEQ4_STATUS_BACKCHANNEL_FAULT: this session's back channel is lost for good.
const BACK_FAULT: u32 = 0x400;
/// What is looked after.
const HEEDED: u32 = STATE_REVOKED | RECLAIM_NEEDED | DELEGATION_REVOKED | BACK_DOWN | BACK_FAULT;
/// None of the server's flags: a connection was lost, the one the server calls
/// back over perhaps.
const CONNECTION_LOST: u32 = 1 << 31;

/// The lease of a server that does not tell: shorter than any usual one.
const UNTOLD_LEASE: Duration = Duration::from_secs(30);
/// Something is said after this part of the lease: twice more before it ends.
const PARTS: u32 = 3;
/// What the server says is looked after no more often than that, and less often
/// the longer it says the same.
const PAUSE: Duration = Duration::from_secs(1);

/// What the server said about the lease, and when it heard of us.
#[derive(Debug)]
pub(crate) struct Attention {
    begun: Instant,
    /// When the last request was sent that renewed the lease, in milliseconds
    /// since `begun`.
    renewed: AtomicU64,
    lease_ms: AtomicU64,
    /// SEQ4_STATUS_* not yet looked after.
    flags: AtomicU32,
    raised: Notify,
}

impl Attention {
    pub(crate) fn new() -> Self {
        Self {
            begun: Instant::now(),
            renewed: AtomicU64::new(0),
            lease_ms: AtomicU64::new(UNTOLD_LEASE.as_millis() as u64),
            flags: AtomicU32::new(0),
            raised: Notify::new(),
        }
    }

    /// A request sent at `sent` got through SEQUENCE.
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

    /// A connection was lost.
    pub(crate) fn connection_lost(&self) {
        self.raise(CONNECTION_LOST);
    }

    /// The server has told how long its lease is.
    pub(crate) fn set_lease(&self, lease: Duration) {
        let lease = lease.max(Duration::from_secs(1));
        self.lease_ms.store(lease.as_millis() as u64, Ordering::Relaxed);
    }

    fn interval(&self) -> Duration {
        Duration::from_millis(self.lease_ms.load(Ordering::Relaxed)) / PARTS
    }

    /// When something has to be said if nothing is said before.
    fn due(&self) -> Instant {
        let renewed = Duration::from_millis(self.renewed.load(Ordering::Relaxed));
        self.begun + renewed + self.interval()
    }
}

/// Starts the task that keeps a lease.
pub(crate) fn keeper(channel: &Arc<Channel>) -> Attendant {
    let attention = Arc::clone(channel.attention());
    Attendant::start(keep(Arc::downgrade(channel), attention))
}

async fn keep(channel: Weak<Channel>, attention: Arc<Attention>) {
    let (mut heeded, mut pause) = (None::<Instant>, PAUSE);
    loop {
        tokio::select! {
            () = tokio::time::sleep_until(attention.due()) => {}
            () = attention.raised.notified() => {
                if let Some(before) = heeded {
                    tokio::time::sleep_until(before + pause).await;
                }
            }
        }
        let Some(channel) = channel.upgrade() else { return };
        let flags = attention.flags.swap(0, Ordering::Relaxed);
        let mut result = Ok(());
        if flags != 0 {
            let again = heeded.is_some_and(|before| before.elapsed() < 2 * pause);
            pause = if again { (2 * pause).min(attention.interval()).max(PAUSE) } else { PAUSE };
            heeded = Some(Instant::now());
            result = heed(&channel, flags).await;
        }
        if result.is_ok() && attention.due() <= Instant::now() {
            result = channel.exchange(&Ops::new(), false, &mut None).await.map(|_| ());
        }
        if let Err(error) = result {
            // Whoever uses the client hears of it, too.
            tracing::debug!(%error, "the lease is not renewed");
            attention.raise(flags);
            heeded = None;
            tokio::time::sleep(PAUSE).await;
        }
    }
}

async fn heed(channel: &Channel, flags: u32) -> Result<(), ClientError> {
    if flags & RECLAIM_NEEDED != 0 {
        tracing::info!("the server has restarted: reclaiming what was open");
        channel.reclaim_in_session().await?;
    }
    if flags & STATE_REVOKED != 0 {
        tracing::warn!("the server has closed files that were open here: they are opened again");
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
        let attention = Attention::new();
        attention.set_lease(Duration::from_secs(90));
        let begun = attention.begun;
        assert_eq!(attention.due(), begun + Duration::from_secs(30));
        attention.renewed(begun + Duration::from_secs(20), 0);
        assert_eq!(attention.due(), begun + Duration::from_secs(50));
        // An answer to something older changes nothing.
        attention.renewed(begun + Duration::from_secs(10), 0);
        assert_eq!(attention.due(), begun + Duration::from_secs(50));
    }

    #[tokio::test]
    async fn what_the_server_says_is_heard_once_until_it_is_heeded() {
        let attention = Attention::new();
        let now = Instant::now();
        // Lease moved: nothing to be done about that here.
        attention.renewed(now, 0x80);
        let heard = || tokio::time::timeout(Duration::from_millis(10), attention.raised.notified());
        assert!(heard().await.is_err());
        attention.renewed(now, 0x10);
        attention.renewed(now, 0x10);
        assert!(heard().await.is_ok());
        assert!(heard().await.is_err());
        assert_eq!(attention.flags.swap(0, Ordering::Relaxed), 0x10);
        attention.renewed(now, 0x10);
        assert!(heard().await.is_ok());
    }
}
