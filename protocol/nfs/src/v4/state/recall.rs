//! Recalls a delegation until the client acknowledges the recall (RFC 8881
//! §10.2.1, §20.2). Its return is monitored separately (expiry.rs).

use super::State;
use super::ids::StateKey;
use super::tables::{Delegation, Tables};
use crate::v4::Server;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use zgate_nfs_wire::v4::{ClientId, Status};

/// Time after which an unacknowledged recall is sent again, in seconds: longer
/// than the timeout of a callback. It is a new call in another slot then: no
/// call is repeated in its slot while the connection lasts (RFC 8881
/// §2.10.6.2).
const RECALL_AGAIN_SECONDS: u64 = 6;
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

/// State of the recall of one delegation.
#[derive(Debug, Default)]
pub struct Recall {
    /// The client acknowledged it, or there is nothing to recall any more.
    settled: AtomicBool,
    /// Number of calls without an answer.
    under_way: AtomicU32,
    sent_seconds: AtomicU64,
}

impl Recall {
    /// Stops further calls.
    pub fn settle(&self) {
        self.settled.store(true, Ordering::Release);
    }

    fn is_settled(&self) -> bool {
        self.settled.load(Ordering::Acquire)
    }

    /// True if the recall must be sent again.
    fn is_due(&self, now_seconds: u64) -> bool {
        !self.is_settled()
            && self.under_way.load(Ordering::Acquire) == 0
            && now_seconds >= self.sent_seconds.load(Ordering::Acquire) + RECALL_AGAIN_SECONDS
    }

    fn begin(self: &Arc<Self>) -> UnderWay {
        self.under_way.fetch_add(1, Ordering::AcqRel);
        UnderWay(Arc::clone(self))
    }
}

/// A call that waits for its answer, until dropped.
struct UnderWay(Arc<Recall>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::AcqRel);
    }
}

fn outstanding(delegation: &Delegation) -> bool {
    delegation.recalled_seconds.is_some() && !delegation.recall.is_settled()
}

impl State {
    /// Sends a recall. An error is not final: the recall is sent again, soon at
    /// first.
    pub(super) fn send_recall(
        &self,
        server: &Server,
        tables: &Tables,
        key: StateKey,
        now_seconds: u64,
    ) {
        let Some(delegation) = tables.delegations.get(&key) else { return };
        delegation.recall.sent_seconds.store(now_seconds, Ordering::Release);
        let Some(target) = self.back.target(server, tables, delegation.client) else { return };
        let ops = [crate::v4::callback::recall_call(delegation)];
        let under_way = delegation.recall.begin();
        server.runtime.spawn(Box::pin(async move {
            for turn in 0..QUICK_TRIES {
                if under_way.0.is_settled() {
                    return;
                }
                match target.send(&ops).await {
                    Ok(reply) if reply.status == Status::Ok => return under_way.0.settle(),
                    Ok(_) => target.sleep(FIRST_PAUSE_MILLISECONDS << turn).await,
                    // No answer: it is sent again on a new back channel, and
                    // after a while (repeat_recalls).
                    Err(_) => return,
                }
            }
        }));
    }

    /// Sends unacknowledged recalls again after a client got a new back channel
    /// (RFC 8881 §10.2.1).
    pub(crate) fn resend_recalls(
        &self,
        server: &Server,
        tables: &Tables,
        client: ClientId,
        now_seconds: u64,
    ) {
        let Some(record) = tables.clients.get(&client) else { return };
        for key in &record.delegations {
            if tables.delegations.get(key).is_some_and(outstanding) {
                self.send_recall(server, tables, *key, now_seconds);
            }
        }
    }

    /// Sends recalls again that were not answered in time, or not sent: a slow
    /// client, a short loss of the path, or a full back channel must not cost a
    /// client its delegation.
    pub(super) fn repeat_recalls(&self, server: &Server, tables: &Tables, now_seconds: u64) {
        for delegation in tables.recalled.iter().filter_map(|key| tables.delegations.get(key)) {
            if outstanding(delegation) && delegation.recall.is_due(now_seconds) {
                self.send_recall(server, tables, delegation.key, now_seconds);
            }
        }
    }
}
