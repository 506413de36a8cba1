//! Renewal of the lease in time (RFC 8881 §8.3), and handling of the status flags
//! that the server returns (§18.46.3).

use super::revoked;
use crate::channel::Channel;
use crate::compound::Ops;
use crate::error::ClientError;
use crate::state::lease::{BACK_DOWN, CONNECTION_LOST, LeaseMonitor, STATE_REVOKED};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;
use zgate_nfs_wire::v4::op::sequence::{
    STATUS_BACKCHANNEL_FAULT as BACK_FAULT, STATUS_RECALLABLE_STATE_REVOKED as DELEGATION_REVOKED,
    STATUS_RESTART_RECLAIM_NEEDED as RECLAIM_NEEDED,
};

/// Least pause between two handlings of the flags; it grows while the server
/// reports the same flags.
const PAUSE: Duration = Duration::from_secs(1);

/// Starts the task that renews a lease.
pub(crate) fn start(channel: &Arc<Channel>) -> AbortOnDropHandle<()> {
    let monitor = Arc::clone(channel.monitor());
    AbortOnDropHandle::new(tokio::spawn(keep(Arc::downgrade(channel), monitor)))
}

async fn keep(channel: Weak<Channel>, monitor: Arc<LeaseMonitor>) {
    let (mut heeded, mut pause) = (None::<Instant>, PAUSE);
    loop {
        tokio::select! {
            biased;
            () = tokio::time::sleep_until(monitor.due()) => {}
            () = monitor.raised() => {
                if let Some(before) = heeded {
                    tokio::time::sleep_until(before + pause).await;
                }
            }
        }
        let Some(channel) = channel.upgrade() else { return };
        let flags = monitor.take_flags();
        let mut result = Ok(());
        if flags != 0 {
            let again = heeded.is_some_and(|before| before.elapsed() < 2 * pause);
            pause = if again { (2 * pause).min(monitor.interval()).max(PAUSE) } else { PAUSE };
            heeded = Some(Instant::now());
            result = heed(&channel, flags).await;
        }
        // A server may refuse for good what its flags ask for.
        if monitor.due() <= Instant::now() {
            let renewed = channel.exchange(&Ops::new(), false, &mut None).await;
            result = result.and(renewed.map(|_| ()));
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
        channel.give_up_back();
    } else if flags & (BACK_DOWN | CONNECTION_LOST) != 0 {
        channel.mend_back(flags & BACK_DOWN != 0).await?;
    }
    Ok(())
}
