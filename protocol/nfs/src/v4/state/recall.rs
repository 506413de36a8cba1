//! Recalls a delegation until the client acknowledges the recall (RFC 8881
//! §10.2.1, §20.2). Its return is monitored separately (expiry.rs).

use super::State;
use crate::v4::callback::{MadeBy, recall_call};
use crate::v4::tables::Tables;
use crate::v4::tables::delegation::{Delegation, RECALL_AGAIN_SECONDS};
use crate::v4::tables::ids::StateKey;
use std::sync::atomic::Ordering;
use zgate_nfs_wire::v4::{ClientId, Status};

/// First pause before a recall that was answered with an error is sent again,
/// in milliseconds; doubled each time. The client may not have received the
/// reply that granted the delegation or created the session yet (RFC 8881
/// §2.10.6.3).
const FIRST_PAUSE_MILLISECONDS: u64 = 50;
/// Number of such repetitions.
const QUICK_TRIES: u32 = 6;

const _: () = assert!(
    FIRST_PAUSE_MILLISECONDS << QUICK_TRIES < RECALL_AGAIN_SECONDS * 1000,
    "the quick repetitions end before the next recall is due"
);

fn outstanding(delegation: &Delegation) -> bool {
    delegation.recalled_seconds.is_some() && !delegation.recall.is_settled()
}

impl State {
    /// Sends a recall. An error is not final: the recall is sent again, soon at
    /// first.
    pub(super) fn send_recall(&self, tables: &Tables, key: StateKey, now_seconds: u64) {
        let Some(delegation) = tables.delegations.get(&key) else { return };
        delegation.recall.sent_seconds.store(now_seconds, Ordering::Release);
        let Some(target) = self.back.target(tables, delegation.client) else { return };
        let ops = [recall_call(delegation)];
        let made_by = delegation.granted_by.and_then(|request| {
            let session = self.sessions.get(request.session)?;
            Some(MadeBy { session, call: request.call })
        });
        let in_flight = delegation.recall.begin();
        self.runtime.spawn(Box::pin(async move {
            for turn in 0..QUICK_TRIES {
                if in_flight.0.is_settled() {
                    return;
                }
                match target.send_after(&ops, made_by.as_ref()).await {
                    Ok(reply) if reply.status == Status::Ok => return in_flight.0.settle(),
                    Ok(_) => target.sleep(FIRST_PAUSE_MILLISECONDS << turn).await,
                    // No answer: it is sent again on a new back channel, and
                    // after a while (repeat_recalls).
                    Err(_) => return,
                }
            }
        }));
    }

    /// Sends unacknowledged recalls again after a client got a new back channel
    /// (RFC 8881 §10.2.1), and lets it be asked for attributes again.
    pub(crate) fn resend_recalls(&self, tables: &Tables, client: ClientId, now_seconds: u64) {
        let Some(record) = tables.clients.get(&client) else { return };
        record.silent_until_seconds.store(0, Ordering::Relaxed);
        for key in &record.delegations {
            if tables.delegations.get(key).is_some_and(outstanding) {
                self.send_recall(tables, *key, now_seconds);
            }
        }
    }

    /// Sends recalls again that were not answered in time, or not sent: a slow
    /// client, a short loss of the path, or a full back channel must not cost a
    /// client its delegation.
    pub(super) fn repeat_recalls(&self, tables: &Tables, now_seconds: u64) {
        for delegation in tables.recalled.iter().filter_map(|key| tables.delegations.get(key)) {
            if outstanding(delegation) && delegation.recall.is_due(now_seconds) {
                self.send_recall(tables, delegation.key, now_seconds);
            }
        }
    }
}
