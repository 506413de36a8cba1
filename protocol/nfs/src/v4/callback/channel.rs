//! Paths to clients: back channels of sessions, and the callback address of
//! minor version 0.

use super::message::{BackSlot, CallbackOp, CallbackReply, decode_reply, encode_call, encode_null};
use crate::limits::MAX_BACK_SLOTS;
use crate::runtime::{CallbackFailure, CallbackPath, LocalFuture, Runtime};
use crate::v4::Server;
use crate::v4::state::session::{CallbackHeader, Session};
use crate::v4::state::tables::{Callback40, Tables};
use crate::v4::wire::{ClientId, SessionId};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// How often a busy back channel is looked at again, in milliseconds.
const SLOT_POLL_MILLISECONDS: u64 = 5;
/// How often at most.
const SLOT_POLLS: u32 = 400;
/// How long after CREATE_SESSION the back channel is tried, in milliseconds.
const GREETING_MILLISECONDS: u64 = 20;

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    seqid: u32,
    busy: bool,
    /// The latest call had no answer: the client has its number, or has not.
    in_doubt: bool,
}

/// A slot in use, given back when dropped.
struct SlotUse {
    slots: Slots,
    client: ClientId,
    at: BackSlot,
    /// The client has the number that a call of this use carried.
    taken: bool,
    in_doubt: bool,
}

impl SlotUse {
    /// The number of the use is the client's now: the next call has the next.
    fn advance(&mut self) {
        self.at.seqid = self.at.seqid.wrapping_add(1);
        (self.taken, self.in_doubt) = (false, false);
    }
}

impl Drop for SlotUse {
    fn drop(&mut self) {
        let mut all = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(slots) = all.get_mut(&(self.client, self.at.session)) else { return };
        if let Some(slot) = slots.get_mut(self.at.slot as usize) {
            let seqid = self.at.seqid.wrapping_sub(u32::from(!self.taken));
            *slot = Slot { seqid, busy: false, in_doubt: self.in_doubt };
        }
    }
}

/// Where a client can be called, as it was when this was asked for.
pub(crate) struct CallbackTarget {
    channels: BackChannels,
    runtime: Arc<dyn Runtime>,
    to: To,
}

enum To {
    Address(Callback40),
    Sessions(Vec<Arc<Session>>),
}

impl CallbackTarget {
    /// Sends `ops` and waits for the answer.
    pub(crate) async fn send(&self, ops: &[CallbackOp]) -> CallbackOutcome {
        let (channels, runtime) = (&self.channels, &*self.runtime);
        match &self.to {
            To::Address(callback) => {
                let xid = channels.next_xid();
                let call = encode_call(xid, &address_header(callback), callback.ident, None, ops);
                let path = CallbackPath::Address(callback.address);
                let raw = runtime.callback(path, xid, call).await?;
                decode_reply(&raw).map_err(|_| CallbackFailure::Unreachable)
            }
            To::Sessions(sessions) => {
                for session in sessions {
                    if let Ok(reply) = channels.send(runtime, session, ops).await {
                        return Ok(reply);
                    }
                }
                Err(CallbackFailure::Unreachable)
            }
        }
    }

    /// Waits.
    pub(crate) async fn sleep(&self, milliseconds: u64) {
        self.runtime.sleep(milliseconds).await;
    }
}

type Slots = Arc<Mutex<HashMap<(ClientId, SessionId), Vec<Slot>>>>;

/// Sequence numbers of all back channels.
#[derive(Clone, Debug, Default)]
pub struct BackChannels {
    slots: Slots,
    xid: Arc<AtomicU32>,
}

/// What sending a callback comes to.
pub(crate) type CallbackOutcome = Result<CallbackReply, CallbackFailure>;

impl BackChannels {
    /// Forgets a client that is gone.
    pub(crate) fn forget(&self, client: ClientId) {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.retain(|(owner, _), _| *owner != client);
    }

    /// Forgets a session that was destroyed: a client may make and destroy as
    /// many as it likes.
    pub(crate) fn forget_session(&self, client: ClientId, session: SessionId) {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.remove(&(client, session));
    }

    fn next_xid(&self) -> u32 {
        self.xid.fetch_add(1, Ordering::Relaxed) | 0x8000_0000
    }

    /// Where a client can be called now; `None` when it has no path.
    pub(crate) fn target(
        &self,
        server: &Server,
        tables: &Tables,
        client: ClientId,
    ) -> Option<CallbackTarget> {
        let record = tables.clients.get(&client)?;
        let to = match &record.callback {
            Some(callback) => To::Address(callback.clone()),
            None => {
                let reachable = record.sessions.iter().filter(|s| !s.back_paths().is_empty());
                To::Sessions(reachable.cloned().collect())
            }
        };
        if matches!(&to, To::Sessions(sessions) if sessions.is_empty()) {
            return None;
        }
        Some(CallbackTarget { channels: self.clone(), runtime: Arc::clone(&server.runtime), to })
    }

    /// The work of sending `ops` to a client; `None` when it has no path.
    pub(crate) fn prepare(
        &self,
        server: &Server,
        tables: &Tables,
        client: ClientId,
        ops: Vec<CallbackOp>,
    ) -> Option<LocalFuture<CallbackOutcome>> {
        let target = self.target(server, tables, client)?;
        Some(Box::pin(async move { target.send(&ops).await }))
    }

    /// A way to send something to a client later, when the paths of today may
    /// be gone.
    pub(crate) fn later(
        &self,
        server: &Server,
        tables: &Tables,
        client: ClientId,
    ) -> Option<CallbackTarget> {
        let to = To::Sessions(tables.clients.get(&client)?.sessions.clone());
        Some(CallbackTarget { channels: self.clone(), runtime: Arc::clone(&server.runtime), to })
    }

    async fn send(
        &self,
        runtime: &dyn Runtime,
        session: &Arc<Session>,
        ops: &[CallbackOp],
    ) -> CallbackOutcome {
        let mut slot = self.acquire(runtime, session).await?;
        if slot.in_doubt {
            // A call with the number in doubt would be a false retry if the
            // client has it. CB_SEQUENCE alone settles that: taken as new, or
            // known already (RFC 8881 §2.10.6.1.3).
            let reply = self.exchange(runtime, session, &mut slot, &[]).await?;
            if slot.in_doubt {
                return Ok(reply);
            }
            slot.advance();
        }
        self.exchange(runtime, session, &mut slot, ops).await
    }

    /// One call in a slot, over whichever connection answers.
    async fn exchange(
        &self,
        runtime: &dyn Runtime,
        session: &Arc<Session>,
        slot: &mut SlotUse,
        ops: &[CallbackOp],
    ) -> CallbackOutcome {
        let doubted = slot.in_doubt;
        let mut failure = CallbackFailure::Unreachable;
        for connection in session.back_paths() {
            if !runtime.connected(connection) {
                continue;
            }
            let xid = self.next_xid();
            let call = encode_call(xid, &session.callback(), 0, Some(slot.at), ops);
            slot.in_doubt = true;
            let answer = runtime.callback(CallbackPath::Connection(connection), xid, call).await;
            let reply =
                answer.and_then(|raw| decode_reply(&raw).map_err(|_| CallbackFailure::Unreachable));
            match reply {
                Ok(reply) => {
                    slot.taken = reply.took_slot;
                    slot.in_doubt = doubted && !reply.took_slot;
                    return Ok(reply);
                }
                Err(why) => failure = why,
            }
        }
        Err(failure)
    }

    async fn acquire(
        &self,
        runtime: &dyn Runtime,
        session: &Arc<Session>,
    ) -> Result<SlotUse, CallbackFailure> {
        for _ in 0..SLOT_POLLS {
            if let Some(slot) = self.try_acquire(session) {
                return Ok(slot);
            }
            runtime.sleep(SLOT_POLL_MILLISECONDS).await;
        }
        Err(CallbackFailure::TimedOut)
    }

    /// A free slot, one that is not in doubt if there is any.
    fn try_acquire(&self, session: &Arc<Session>) -> Option<SlotUse> {
        let mut all = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let count = session.back.slots.clamp(1, MAX_BACK_SLOTS) as usize;
        let slots =
            all.entry((session.client, session.id)).or_insert_with(|| vec![Slot::default(); count]);
        let sure = slots.iter().position(|slot| !slot.busy && !slot.in_doubt);
        let free = sure.or_else(|| slots.iter().position(|slot| !slot.busy))?;
        slots[free].busy = true;
        let highest = slots.iter().rposition(|slot| slot.busy).unwrap_or(free);
        let at = BackSlot {
            session: session.id,
            slot: free as u32,
            seqid: slots[free].seqid.wrapping_add(1),
            highest_slot: highest as u32,
        };
        let in_doubt = slots[free].in_doubt;
        let slots = Arc::clone(&self.slots);
        Some(SlotUse { slots, client: session.client, at, taken: false, in_doubt })
    }

    /// Says CB_NULL over a new session's back channel: a client behind a
    /// firewall or with another program number is found out now, not at the
    /// first recall.
    pub(crate) fn greet(&self, server: &Server, session: Arc<Session>) {
        let (runtime, xid) = (Arc::clone(&server.runtime), self.next_xid());
        server.runtime.spawn(Box::pin(async move {
            // The answer to CREATE_SESSION goes first.
            runtime.sleep(GREETING_MILLISECONDS).await;
            let Some(connection) = session.back_paths().first().copied() else { return };
            let call = encode_null(xid, &session.callback());
            let path = CallbackPath::Connection(connection);
            if runtime.callback(path, xid, call).await.is_err() && runtime.connected(connection) {
                tracing::info!(
                    client = session.client.0,
                    "the back channel does not answer: delegations may have to be revoked"
                );
            }
        }));
    }

    /// Whether a minor-0 client's callback address answers CB_NULL.
    pub(super) async fn answers_null(&self, runtime: &dyn Runtime, callback: &Callback40) -> bool {
        let xid = self.next_xid();
        let call = encode_null(xid, &address_header(callback));
        runtime.callback(CallbackPath::Address(callback.address), xid, call).await.is_ok()
    }
}

fn address_header(callback: &Callback40) -> CallbackHeader {
    CallbackHeader { minor: 0, program: callback.program, credential: callback.credential.clone() }
}
