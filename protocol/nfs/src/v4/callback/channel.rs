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

    /// The work of sending `ops` to a client; `None` when it has no path.
    pub(crate) fn prepare(
        &self,
        server: &Server,
        tables: &Tables,
        client: ClientId,
        ops: Vec<CallbackOp>,
    ) -> Option<LocalFuture<CallbackOutcome>> {
        let record = tables.clients.get(&client)?;
        let runtime = Arc::clone(&server.runtime);
        let channels = self.clone();
        if let Some(callback) = &record.callback {
            let callback = callback.clone();
            return Some(Box::pin(async move {
                let xid = channels.next_xid();
                let header = address_header(&callback);
                let call = encode_call(xid, &header, callback.ident, None, &ops);
                let path = CallbackPath::Address(callback.address);
                let raw = runtime.callback(path, xid, call).await?;
                decode_reply(&raw).map_err(|_| CallbackFailure::Unreachable)
            }));
        }
        let sessions: Vec<_> =
            record.sessions.iter().filter(|s| !s.back_paths().is_empty()).cloned().collect();
        if sessions.is_empty() {
            return None;
        }
        Some(Box::pin(async move {
            for session in sessions {
                if let Ok(reply) = channels.send(&*runtime, &session, &ops).await {
                    return Ok(reply);
                }
            }
            Err(CallbackFailure::Unreachable)
        }))
    }

    /// A way to send something to a client later, when the paths of today may
    /// be gone.
    pub(crate) fn later(
        &self,
        server: &Server,
        tables: &Tables,
        client: ClientId,
    ) -> Option<impl FnOnce(Vec<CallbackOp>) -> LocalFuture<CallbackOutcome> + 'static> {
        let sessions = tables.clients.get(&client)?.sessions.clone();
        let (runtime, channels) = (Arc::clone(&server.runtime), self.clone());
        Some(move |ops: Vec<CallbackOp>| -> LocalFuture<CallbackOutcome> {
            Box::pin(async move {
                for session in sessions {
                    if let Ok(reply) = channels.send(&*runtime, &session, &ops).await {
                        return Ok(reply);
                    }
                }
                Err(CallbackFailure::Unreachable)
            })
        })
    }

    async fn send(
        &self,
        runtime: &dyn Runtime,
        session: &Arc<Session>,
        ops: &[CallbackOp],
    ) -> CallbackOutcome {
        let slot = self.acquire(runtime, session).await?;
        let mut outcome = Err(CallbackFailure::Unreachable);
        for connection in session.back_paths() {
            if !runtime.connected(connection) {
                continue;
            }
            let xid = self.next_xid();
            let call = encode_call(xid, &session.callback(), 0, Some(slot), ops);
            match runtime.callback(CallbackPath::Connection(connection), xid, call).await {
                Ok(raw) => {
                    outcome = decode_reply(&raw).map_err(|_| CallbackFailure::Unreachable);
                    break;
                }
                Err(failure) => outcome = Err(failure),
            }
        }
        self.release(session, slot, outcome.is_ok());
        outcome
    }

    async fn acquire(
        &self,
        runtime: &dyn Runtime,
        session: &Arc<Session>,
    ) -> Result<BackSlot, CallbackFailure> {
        for _ in 0..SLOT_POLLS {
            if let Some(slot) = self.try_acquire(session) {
                return Ok(slot);
            }
            runtime.sleep(SLOT_POLL_MILLISECONDS).await;
        }
        Err(CallbackFailure::TimedOut)
    }

    fn try_acquire(&self, session: &Arc<Session>) -> Option<BackSlot> {
        let mut all = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let count = session.back.slots.clamp(1, MAX_BACK_SLOTS) as usize;
        let slots =
            all.entry((session.client, session.id)).or_insert_with(|| vec![Slot::default(); count]);
        let free = slots.iter().position(|slot| !slot.busy)?;
        slots[free].busy = true;
        let highest = slots.iter().rposition(|slot| slot.busy).unwrap_or(free);
        Some(BackSlot {
            session: session.id,
            slot: free as u32,
            seqid: slots[free].seqid.wrapping_add(1),
            highest_slot: highest as u32,
        })
    }

    fn release(&self, session: &Arc<Session>, used: BackSlot, answered: bool) {
        let mut all = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(slots) = all.get_mut(&(session.client, session.id)) else { return };
        if let Some(slot) = slots.get_mut(used.slot as usize) {
            slot.busy = false;
            if answered {
                slot.seqid = used.seqid;
            }
        }
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
