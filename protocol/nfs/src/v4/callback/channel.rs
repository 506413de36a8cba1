//! Paths to clients: back channels of sessions, and the callback address of
//! minor version 0.

use super::message::{decode_reply, encode_call, encode_null, encode_within};
use crate::limits::MAX_BACK_SLOTS;
use crate::runtime::{BoxedFuture, CallbackFailure, CallbackPath, Runtime};
use crate::v4::tables::Tables;
use crate::v4::tables::callback_path::Callback40;
use crate::v4::tables::session::{CallbackHeader, Session};
use ahash::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use zgate_nfs_wire::v4::callback::{CallbackOp, ReferringCall, ReferringCalls, Reply, Sequence};
use zgate_nfs_wire::v4::{ClientId, SessionId};

/// Poll interval of a busy back channel, in milliseconds.
const SLOT_POLL_MILLISECONDS: u64 = 5;
/// Most polls.
const SLOT_POLLS: u32 = 400;
/// Delay of the first call on a back channel after CREATE_SESSION, in
/// milliseconds.
const GREETING_MILLISECONDS: u64 = 20;

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    seqid: u32,
    busy: bool,
    /// The latest call had no answer: it is unknown if the client has its
    /// sequence number.
    in_doubt: bool,
}

/// A slot in use, released when dropped.
struct SlotUse {
    slots: Slots,
    client: ClientId,
    at: Sequence,
    /// The client has received the sequence number of a call of this use.
    taken: bool,
    in_doubt: bool,
}

impl SlotUse {
    /// The client has received the sequence number: the next call uses the next
    /// one.
    fn advance(&mut self) {
        self.at.sequence = self.at.sequence.wrapping_add(1);
        (self.taken, self.in_doubt) = (false, false);
    }
}

impl Drop for SlotUse {
    fn drop(&mut self) {
        let mut all = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(slots) = all.get_mut(&(self.client, self.at.session)) else { return };
        if let Some(slot) = slots.get_mut(self.at.slot as usize) {
            let seqid = self.at.sequence.wrapping_sub(u32::from(!self.taken));
            *slot = Slot { seqid, busy: false, in_doubt: self.in_doubt };
        }
    }
}

/// The request that made what a callback is about.
pub(crate) struct MadeBy {
    pub(crate) session: Arc<Session>,
    pub(crate) call: ReferringCall,
}

impl MadeBy {
    /// The request, for the client to wait for its answer, as long as that may be under way: the
    /// callback may overtake it (RFC 8881 §2.10.6.3, §20.9.3).
    fn referring(&self) -> Vec<ReferringCalls> {
        if !self.session.is_latest(&self.call) {
            return Vec::new();
        }
        vec![ReferringCalls { session: self.session.id, calls: vec![self.call] }]
    }
}

/// Callback path of a client at the time of the request.
pub(crate) struct CallbackTarget {
    channels: BackChannels,
    to: To,
}

enum To {
    Address(Callback40),
    Sessions(Vec<Arc<Session>>),
}

impl CallbackTarget {
    /// Sends `ops` and waits for the answer.
    pub(crate) async fn send(&self, ops: &[CallbackOp]) -> CallbackOutcome {
        self.send_after(ops, None).await
    }

    /// Sends `ops` about what a request has made, and waits for the answer.
    pub(crate) async fn send_after(
        &self,
        ops: &[CallbackOp],
        made_by: Option<&MadeBy>,
    ) -> CallbackOutcome {
        let channels = &self.channels;
        match &self.to {
            To::Address(callback) => {
                let xid = channels.next_xid();
                let call = encode_call(xid, &address_header(callback), callback.ident, None, ops);
                let answer = channels.runtime.callback(callback.path(), xid, call).await;
                let reply = answer
                    .and_then(|raw| decode_reply(&raw).map_err(|_| CallbackFailure::Unreachable));
                // While it is down RENEW says so, and nothing is delegated (RFC 7530 §16.28).
                callback.up.store(reply.is_ok(), Ordering::Release);
                reply
            }
            To::Sessions(sessions) => {
                for session in sessions {
                    if let Ok(reply) = channels.send(session, ops, made_by).await {
                        return Ok(reply);
                    }
                }
                Err(CallbackFailure::Unreachable)
            }
        }
    }

    /// Sleeps.
    pub(crate) async fn sleep(&self, milliseconds: u64) {
        self.channels.runtime.sleep(milliseconds).await;
    }
}

type Slots = Arc<Mutex<HashMap<(ClientId, SessionId), Vec<Slot>>>>;

/// Sequence numbers of all back channels.
#[derive(Clone)]
pub struct BackChannels {
    pub(super) runtime: Arc<dyn Runtime>,
    slots: Slots,
    xid: Arc<AtomicU32>,
}

/// Result of a callback.
pub(crate) type CallbackOutcome = Result<Reply, CallbackFailure>;

impl BackChannels {
    /// No channel in use yet.
    #[must_use]
    pub fn new(runtime: Arc<dyn Runtime>) -> Self {
        Self { runtime, slots: Slots::default(), xid: Arc::default() }
    }

    /// Removes an expired client.
    pub(crate) fn forget(&self, client: ClientId) {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.retain(|(owner, _), _| *owner != client);
    }

    /// Removes a destroyed session: a client may create and destroy any number
    /// of sessions.
    pub(crate) fn forget_session(&self, client: ClientId, session: SessionId) {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.remove(&(client, session));
    }

    fn next_xid(&self) -> u32 {
        self.xid.fetch_add(1, Ordering::Relaxed) | 0x8000_0000
    }

    /// Current callback path of a client; `None` if it has none.
    pub(crate) fn target(&self, tables: &Tables, client: ClientId) -> Option<CallbackTarget> {
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
        Some(CallbackTarget { channels: self.clone(), to })
    }

    /// The future that sends `ops` to a client; `None` if the client has no
    /// path.
    pub(crate) fn prepare(
        &self,
        tables: &Tables,
        client: ClientId,
        ops: Vec<CallbackOp>,
    ) -> Option<BoxedFuture<CallbackOutcome>> {
        let target = self.target(tables, client)?;
        Some(Box::pin(async move { target.send(&ops).await }))
    }

    /// A handle for a later callback, for the case that the present paths no
    /// longer exist then.
    pub(crate) fn later(&self, tables: &Tables, client: ClientId) -> Option<CallbackTarget> {
        let to = To::Sessions(tables.clients.get(&client)?.sessions.clone());
        Some(CallbackTarget { channels: self.clone(), to })
    }

    async fn send(
        &self,
        session: &Arc<Session>,
        ops: &[CallbackOp],
        made_by: Option<&MadeBy>,
    ) -> CallbackOutcome {
        let mut slot = self.acquire(session).await?;
        if slot.in_doubt {
            // A call with the uncertain number would be a false retry if the
            // client has received it. A lone CB_SEQUENCE resolves this: it is
            // accepted as new, or already known (RFC 8881 §2.10.6.1.3).
            let reply = self.exchange(session, &mut slot, &[]).await?;
            if slot.in_doubt {
                return Ok(reply);
            }
            slot.advance();
        }
        slot.at.referring = made_by.map(MadeBy::referring).unwrap_or_default();
        self.exchange(session, &mut slot, ops).await
    }

    /// Sends one call in a slot, over any connection that answers.
    async fn exchange(
        &self,
        session: &Arc<Session>,
        slot: &mut SlotUse,
        ops: &[CallbackOp],
    ) -> CallbackOutcome {
        let doubted = slot.in_doubt;
        let mut failure = CallbackFailure::Unreachable;
        let Some(header) = session.callback() else { return Err(failure) };
        for connection in session.back_paths() {
            if !self.runtime.connected(connection) {
                continue;
            }
            let xid = self.next_xid();
            let max_bytes = session.back.max_request_bytes;
            let Some(call) = encode_within(max_bytes, xid, &header, &mut slot.at, ops) else {
                // The client would refuse it.
                return Err(failure);
            };
            slot.in_doubt = true;
            let answer =
                self.runtime.callback(CallbackPath::Connection(connection), xid, call).await;
            let reply =
                answer.and_then(|raw| decode_reply(&raw).map_err(|_| CallbackFailure::Unreachable));
            match reply {
                Ok(reply) => {
                    slot.taken = reply.took_slot();
                    slot.in_doubt = doubted && !slot.taken;
                    return Ok(reply);
                }
                Err(why) => failure = why,
            }
        }
        Err(failure)
    }

    async fn acquire(&self, session: &Arc<Session>) -> Result<SlotUse, CallbackFailure> {
        for _ in 0..SLOT_POLLS {
            if let Some(slot) = self.try_acquire(session)? {
                return Ok(slot);
            }
            self.runtime.sleep(SLOT_POLL_MILLISECONDS).await;
        }
        Err(CallbackFailure::TimedOut)
    }

    /// A free slot, preferably one whose sequence number is certain.
    ///
    /// # Errors
    /// The session has ended: a client may end any number, and nobody would forget its slots.
    fn try_acquire(&self, session: &Arc<Session>) -> Result<Option<SlotUse>, CallbackFailure> {
        let mut all = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        // Under the lock: who ends it takes the lock after that, and forgets them.
        if session.has_ended() {
            return Err(CallbackFailure::Unreachable);
        }
        let count = session.back.slots.clamp(1, MAX_BACK_SLOTS) as usize;
        let slots =
            all.entry((session.client, session.id)).or_insert_with(|| vec![Slot::default(); count]);
        let sure = slots.iter().position(|slot| !slot.busy && !slot.in_doubt);
        let Some(free) = sure.or_else(|| slots.iter().position(|slot| !slot.busy)) else {
            return Ok(None);
        };
        slots[free].busy = true;
        let highest = slots.iter().rposition(|slot| slot.busy).unwrap_or(free);
        let at = Sequence {
            session: session.id,
            sequence: slots[free].seqid.wrapping_add(1),
            slot: free as u32,
            highest_slot: highest as u32,
            cache_this: false,
            referring: Vec::new(),
        };
        let in_doubt = slots[free].in_doubt;
        let slots = Arc::clone(&self.slots);
        Ok(Some(SlotUse { slots, client: session.client, at, taken: false, in_doubt }))
    }

    /// Sends CB_NULL over a new session's back channel: detects a client behind
    /// a firewall or with another program number now, not at the first recall.
    pub(crate) fn greet(&self, session: Arc<Session>) {
        let (runtime, xid) = (Arc::clone(&self.runtime), self.next_xid());
        self.runtime.spawn(Box::pin(async move {
            // The answer to CREATE_SESSION must be sent first.
            runtime.sleep(GREETING_MILLISECONDS).await;
            let Some(connection) = session.back_paths().first().copied() else { return };
            let Some(header) = session.callback() else { return };
            let call = encode_null(xid, &header);
            let path = CallbackPath::Connection(connection);
            if runtime.callback(path, xid, call).await.is_err() && runtime.connected(connection) {
                tracing::info!(
                    client = session.client.0,
                    "the back channel does not answer: delegations may have to be revoked"
                );
            }
        }));
    }

    /// True if a minor-0 client's callback address answers CB_NULL. With Kerberos,
    /// a CB_COMPOUND without operations: many clients do not check before that
    /// whether it is their server that calls.
    pub(super) async fn answers(&self, callback: &Callback40) -> bool {
        let (xid, header) = (self.next_xid(), address_header(callback));
        let call = match &callback.security {
            None => encode_null(xid, &header),
            Some(_) => encode_call(xid, &header, callback.ident, None, &[]),
        };
        let answer = self.runtime.callback(callback.path(), xid, call).await;
        answer.is_ok_and(|raw| callback.security.is_none() || decode_reply(&raw).is_ok())
    }
}

fn address_header(callback: &Callback40) -> CallbackHeader {
    CallbackHeader { minor: 0, program: callback.program, credential: callback.credential.clone() }
}

#[cfg(test)]
pub(in crate::v4) mod tests {
    use super::*;
    use crate::runtime::{ConnectionId, Now};
    use crate::v4::tables::session::{SessionTable, tests::session};
    use bytes::Bytes;
    use std::future::ready;
    use zgate_xdr::Message;

    /// Clients that do not answer.
    pub(in crate::v4) struct Silence;

    impl Runtime for Silence {
        fn spawn(&self, _: BoxedFuture<()>) {}

        fn callback(
            &self,
            _: CallbackPath,
            _: u32,
            _: Message,
        ) -> BoxedFuture<Result<Bytes, CallbackFailure>> {
            Box::pin(ready(Err(CallbackFailure::TimedOut)))
        }

        fn sleep(&self, _: u64) -> BoxedFuture<()> {
            Box::pin(ready(()))
        }

        fn now(&self) -> Now {
            Now::default()
        }

        fn connected(&self, _: ConnectionId) -> bool {
            true
        }

        fn random(&self) -> u64 {
            0
        }
    }

    /// The report of a copy, or a recall, may come to a session after its end.
    #[test]
    fn nothing_is_kept_of_a_session_that_has_ended() {
        let (channels, sessions) = (BackChannels::new(Arc::new(Silence)), SessionTable::default());
        let session = session();
        let kept = || channels.slots.lock().unwrap().len();
        sessions.insert(Arc::clone(&session));
        assert!(channels.try_acquire(&session).is_ok_and(|slot| slot.is_some()));
        assert_eq!(kept(), 1);
        sessions.remove(session.id);
        channels.forget_session(session.client, session.id);
        assert_eq!(channels.try_acquire(&session).err(), Some(CallbackFailure::Unreachable));
        assert_eq!(kept(), 0);
    }
}
