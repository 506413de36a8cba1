//! Sessions and their slots (RFC 8881 §2.10): exactly-once execution.

use super::lease::{Lease, RunningRequest};
use super::reply_memory::Share;
use crate::runtime::ConnectionId;
use dashmap::DashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use zgate_nfs_wire::v4::callback::ReferringCall;
use zgate_nfs_wire::v4::{ClientId, SessionId, Status};
use zgate_rpc::auth::OpaqueAuth;
use zgate_xdr::Message;

/// Limits of a session's channel (RFC 8881 §18.36.3, channel_attrs4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Channel {
    /// ca_headerpadsize.
    pub header_pad_bytes: u32,
    /// ca_maxrequestsize.
    pub max_request_bytes: u32,
    /// ca_maxresponsesize.
    pub max_response_bytes: u32,
    /// ca_maxresponsesize_cached.
    pub max_cached_bytes: u32,
    /// ca_maxoperations.
    pub max_ops: u32,
    /// ca_maxrequests: the number of slots.
    pub slots: u32,
}

#[derive(Debug, Default)]
struct Slot {
    seqid: u32,
    busy: bool,
    used: bool,
    reply: Option<Message>,
    request_digest: u64,
}

/// Parameters of the RPC header of a callback (RFC 8881 §18.36.3,
/// csa_cb_program and csa_sec_parms).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallbackHeader {
    /// Minor version of the session: CB_COMPOUND carries the same.
    pub minor: u8,
    /// Program number.
    pub program: u32,
    /// The credential that the client requested.
    pub credential: OpaqueAuth,
}

/// A session.
#[derive(Debug)]
pub struct Session {
    /// Its id.
    pub id: SessionId,
    /// The client.
    pub client: ClientId,
    /// The client's lease.
    pub lease: Arc<Lease>,
    /// Fore channel.
    pub fore: Channel,
    /// Back channel.
    pub back: Channel,
    /// Header of callbacks; BACKCHANNEL_CTL changes it. `None`: the client offers no security
    /// that the server can use.
    callback: Mutex<Option<CallbackHeader>>,
    slots: Vec<Mutex<Slot>>,
    /// The reply cache's part of the total memory.
    share: std::sync::OnceLock<Share>,
    replays: AtomicU64,
    /// Connections bound to the fore channel.
    connections: Mutex<Vec<ConnectionId>>,
    /// Connections bound to the back channel.
    pub back_connections: Mutex<Vec<ConnectionId>>,
    /// A connection was bound to the back channel at some time.
    wants_back: AtomicBool,
    /// Number of the client's news at which SEQUENCE had nothing to tell in this session, and
    /// one more; 0: it has not looked yet.
    nothing_told_at: AtomicU64,
    /// Set when it is no longer in the table.
    ended: AtomicBool,
}

/// Result of the slot check of SEQUENCE.
#[derive(Debug)]
pub enum SlotVerdict {
    /// A new request; run it and finish the slot.
    Run(SlotUse),
    /// A retry; answer with this reply.
    Replay(Message),
    /// A retry whose reply was not kept; run nothing.
    RanBefore,
}

/// A request that has run, by its place in its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestId {
    /// The session.
    pub session: SessionId,
    /// Slot and sequence number.
    pub call: ReferringCall,
}

/// A slot in use by a COMPOUND. Dropping it without [`SlotUse::finish`]
/// releases the slot as if the request had not arrived.
#[derive(Debug)]
pub struct SlotUse {
    /// The session.
    pub session: Arc<Session>,
    /// The client.
    pub client: ClientId,
    /// The slot.
    pub slot: u32,
    /// Its sequence number.
    pub sequence: u32,
    /// The client requested that the reply be cached.
    pub cache_this: bool,
    finished: bool,
    _running: RunningRequest,
}

impl Session {
    /// A session with free slots.
    #[must_use]
    pub fn new(
        id: SessionId,
        client: ClientId,
        lease: Arc<Lease>,
        fore: Channel,
        back: Channel,
        callback: Option<CallbackHeader>,
    ) -> Self {
        Self {
            id,
            client,
            lease,
            fore,
            back,
            callback: Mutex::new(callback),
            slots: (0..fore.slots).map(|_| Mutex::default()).collect(),
            share: std::sync::OnceLock::new(),
            replays: AtomicU64::new(0),
            connections: Mutex::default(),
            back_connections: Mutex::default(),
            wants_back: AtomicBool::new(false),
            nothing_told_at: AtomicU64::new(0),
            ended: AtomicBool::new(false),
        }
    }

    /// Returns whether it was destroyed, by itself or with its client.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Checks a request by its slot and sequence number (RFC 8881 §2.10.6.1).
    ///
    /// # Errors
    /// [`Status::Badslot`], [`Status::SeqMisordered`], [`Status::Delay`] for a
    /// retry of a running request and for the one behind it, [`Status::SeqFalseRetry`].
    pub fn take(
        self: &Arc<Self>,
        slot: u32,
        seqid: u32,
        cache_this: bool,
        request_digest: u64,
    ) -> Result<SlotVerdict, Status> {
        let cell = self.slots.get(slot as usize).ok_or(Status::Badslot)?;
        let mut state = cell.lock().unwrap_or_else(PoisonError::into_inner);
        if state.used && seqid == state.seqid {
            if state.busy {
                return Err(Status::Delay);
            }
            self.replays.fetch_add(1, Ordering::Relaxed);
            if state.request_digest != request_digest {
                return Err(Status::SeqFalseRetry);
            }
            let kept = state.reply.clone();
            return Ok(kept.map_or(SlotVerdict::RanBefore, SlotVerdict::Replay));
        }
        if seqid != state.seqid.wrapping_add(1) {
            return Err(Status::SeqMisordered);
        }
        // The client has given up the request that runs; the next one may come again.
        if state.busy {
            return Err(Status::Delay);
        }
        *state = Slot { seqid, busy: true, used: true, reply: None, request_digest };
        Ok(SlotVerdict::Run(SlotUse {
            session: Arc::clone(self),
            client: self.client,
            slot,
            sequence: seqid,
            cache_this,
            finished: false,
            _running: RunningRequest::of(&self.lease),
        }))
    }

    /// Returns whether the client has sent no other request in the slot since: it may not have
    /// the answer yet.
    #[must_use]
    pub fn is_latest(&self, call: &ReferringCall) -> bool {
        self.slots.get(call.slot as usize).is_some_and(|slot| {
            let state = slot.lock().unwrap_or_else(PoisonError::into_inner);
            state.used && state.seqid == call.sequence
        })
    }

    /// Stores the session's share of the reply memory until the session ends.
    pub fn keep(&self, share: Share) {
        // The share is set once, by the operation that creates the session.
        let _ = self.share.set(share);
    }

    /// The current header of callbacks; `None`: the client offers no security that the server
    /// can use.
    #[must_use]
    pub fn callback(&self) -> Option<CallbackHeader> {
        self.callback.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes the header of callbacks.
    pub fn set_callback(&self, header: CallbackHeader) {
        *self.callback.lock().unwrap_or_else(PoisonError::into_inner) = Some(header);
    }

    /// Returns whether the session can have a back channel: a call takes a slot, two operations,
    /// and security that the client offers.
    #[must_use]
    pub fn may_have_back(&self) -> bool {
        self.back.max_ops >= 2 && self.back.slots > 0 && self.callback().is_some()
    }

    /// Binds a connection to the fore channel.
    pub fn bind_fore(&self, connection: ConnectionId) {
        let mut bound = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        if !bound.contains(&connection) {
            bound.push(connection);
        }
    }

    /// True if the connection is bound to the fore channel.
    #[must_use]
    pub fn is_bound(&self, connection: ConnectionId) -> bool {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner).contains(&connection)
    }

    /// Binds a connection to the back channel.
    pub fn bind_back(&self, connection: ConnectionId) {
        self.wants_back.store(true, Ordering::Relaxed);
        let mut bound = self.back_connections.lock().unwrap_or_else(PoisonError::into_inner);
        if !bound.contains(&connection) {
            bound.push(connection);
        }
        drop(bound);
        // The connection may have ended meanwhile, and nothing unbinds it any more.
        self.lease.note_news();
    }

    /// True if the connection is bound to the back channel.
    #[must_use]
    pub fn is_bound_back(&self, connection: ConnectionId) -> bool {
        let bound = self.back_connections.lock().unwrap_or_else(PoisonError::into_inner);
        bound.contains(&connection)
    }

    /// Unbinds a closed connection. If the back channel had it, SEQUENCE looks whether there
    /// is another one.
    pub fn unbind(&self, connection: ConnectionId) {
        self.connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|c| *c != connection);
        let mut back = self.back_connections.lock().unwrap_or_else(PoisonError::into_inner);
        let before = back.len();
        back.retain(|c| *c != connection);
        // Not only the last one: a connection that ended before it was bound stays in the list.
        if back.len() < before {
            self.lease.want_attention();
        }
    }

    /// Returns whether the client asked for a back channel of this session, at its
    /// creation or later.
    #[must_use]
    pub fn wants_back(&self) -> bool {
        self.wants_back.load(Ordering::Relaxed)
    }

    /// Number of the client's news, if SEQUENCE may have something to tell in this session. To
    /// be read before SEQUENCE looks: what changes meanwhile is told by the next one.
    #[must_use]
    pub fn news(&self) -> Option<u64> {
        self.lease.news().filter(|news| self.nothing_told_at.load(Ordering::Relaxed) != news + 1)
    }

    /// Notes that there was nothing to tell at this number of news.
    pub fn note_nothing_told(&self, news: u64) {
        self.nothing_told_at.store(news + 1, Ordering::Relaxed);
    }

    /// Connections for callbacks, newest first.
    #[must_use]
    pub fn back_paths(&self) -> Vec<ConnectionId> {
        let bound = self.back_connections.lock().unwrap_or_else(PoisonError::into_inner);
        bound.iter().rev().copied().collect()
    }

    /// Number of slots with a running request.
    #[must_use]
    pub fn busy_slots(&self) -> usize {
        self.slots
            .iter()
            .filter(|slot| slot.lock().unwrap_or_else(PoisonError::into_inner).busy)
            .count()
    }

    /// Number of retries answered from the reply cache or refused.
    #[must_use]
    pub fn replays(&self) -> u64 {
        self.replays.load(Ordering::Relaxed)
    }
}

impl SlotUse {
    /// The request's place.
    #[must_use]
    pub fn request(&self) -> RequestId {
        let call = ReferringCall { sequence: self.sequence, slot: self.slot };
        RequestId { session: self.session.id, call }
    }

    /// Ends the request; `reply` answers a retry.
    pub fn finish(mut self, reply: Option<&Message>) {
        // A cached reply must not change later, nor keep buffers of the data that was
        // read for it: the session's memory counts for what it is long.
        let reply = reply.and_then(Message::compacted);
        self.finished = true;
        if let Some(cell) = self.session.slots.get(self.slot as usize) {
            let mut state = cell.lock().unwrap_or_else(PoisonError::into_inner);
            state.busy = false;
            state.reply = reply;
        }
    }
}

impl Drop for SlotUse {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        if let Some(cell) = self.session.slots.get(self.slot as usize) {
            let mut state = cell.lock().unwrap_or_else(PoisonError::into_inner);
            state.busy = false;
            state.seqid = state.seqid.wrapping_sub(1);
            state.used = false;
        }
    }
}

/// All sessions.
#[derive(Debug, Default)]
pub struct SessionTable(DashMap<SessionId, Arc<Session>, ahash::RandomState>);

impl SessionTable {
    /// Finds a session.
    #[must_use]
    pub fn get(&self, id: SessionId) -> Option<Arc<Session>> {
        self.0.get(&id).map(|session| Arc::clone(&session))
    }

    /// Adds a session.
    pub fn insert(&self, session: Arc<Session>) {
        self.0.insert(session.id, session);
    }

    /// Removes a session, which has ended then.
    pub fn remove(&self, id: SessionId) {
        if let Some((_, session)) = self.0.remove(&id) {
            session.ended.store(true, Ordering::Release);
        }
    }

    /// Unbinds a closed connection from all sessions.
    pub fn connection_closed(&self, connection: ConnectionId) {
        self.0.iter().for_each(|session| session.unbind(connection));
    }
}

#[cfg(test)]
pub(in crate::v4) mod tests {
    use super::*;
    use bytes::Bytes;

    pub(in crate::v4) fn session() -> Arc<Session> {
        let channel = Channel {
            header_pad_bytes: 0,
            max_request_bytes: 4096,
            max_response_bytes: 4096,
            max_cached_bytes: 4096,
            max_ops: 8,
            slots: 2,
        };
        Arc::new(Session::new(
            SessionId::default(),
            ClientId(1),
            Arc::new(Lease::new(0)),
            channel,
            channel,
            Some(CallbackHeader { minor: 1, program: 0, credential: OpaqueAuth::none() }),
        ))
    }

    #[test]
    fn a_slot_runs_each_request_once() {
        let session = session();
        let Ok(SlotVerdict::Run(used)) = session.take(0, 1, true, 9) else { panic!() };
        assert_eq!(session.take(0, 1, true, 9).unwrap_err(), Status::Delay);
        assert_eq!(session.take(0, 2, true, 9).unwrap_err(), Status::Delay);
        for wrong in [0, 3, u32::MAX] {
            assert_eq!(session.take(0, wrong, true, 9).unwrap_err(), Status::SeqMisordered);
        }
        used.finish(Some(&Message::default()));
        assert!(matches!(session.take(0, 1, true, 9), Ok(SlotVerdict::Replay(_))));
        assert_eq!(session.take(0, 1, true, 8).unwrap_err(), Status::SeqFalseRetry);
        assert_eq!(session.take(0, 3, true, 9).unwrap_err(), Status::SeqMisordered);
        assert_eq!(session.take(2, 1, true, 9).unwrap_err(), Status::Badslot);
        let Ok(SlotVerdict::Run(used)) = session.take(0, 2, false, 9) else { panic!() };
        used.finish(None);
        assert!(matches!(session.take(0, 2, false, 9), Ok(SlotVerdict::RanBefore)));
    }

    #[test]
    fn the_answer_may_not_have_come_until_the_next_request() {
        let session = session();
        let Ok(SlotVerdict::Run(used)) = session.take(1, 1, true, 9) else { panic!() };
        let first = used.request();
        assert_eq!((first.call.slot, first.call.sequence), (1, 1));
        assert!(session.is_latest(&first.call), "it runs");
        used.finish(None);
        assert!(session.is_latest(&first.call));
        assert!(!session.is_latest(&ReferringCall { slot: 0, sequence: 0 }), "a slot not used yet");
        let Ok(SlotVerdict::Run(_next)) = session.take(1, 2, true, 9) else { panic!() };
        assert!(!session.is_latest(&first.call));
    }

    #[test]
    fn a_cached_reply_keeps_no_buffer_that_was_read_into() {
        let session = session();
        let buffer = Bytes::from(vec![7; 1 << 20]);
        let mut message = Message::from(Bytes::from_static(&[1; 4]));
        message.extend(Message::from(buffer.slice(9..10)));
        let Ok(SlotVerdict::Run(used)) = session.take(0, 1, true, 9) else { panic!() };
        used.finish(Some(&message));
        drop(message);
        assert!(buffer.is_unique());
        let Ok(SlotVerdict::Replay(kept)) = session.take(0, 1, true, 9) else { panic!() };
        assert_eq!(kept.flatten().unwrap()[..], [1, 1, 1, 1, 7]);
    }

    #[test]
    fn sequence_looks_once_after_each_of_the_news() {
        let (one, connection) = (session(), ConnectionId(7));
        one.bind_back(connection);
        assert_eq!(one.news(), None, "there is nothing to watch");
        one.lease.want_attention();
        let news = one.news().unwrap();
        one.note_nothing_told(news);
        assert_eq!(one.news(), None);
        one.unbind(ConnectionId(8));
        assert_eq!(one.news(), None, "it was none of the back channel");
        one.unbind(connection);
        assert!(one.news().is_some());
        // An answer from before does not hide it.
        one.note_nothing_told(news);
        assert!(one.news().is_some());
    }

    #[test]
    fn a_connection_that_ended_before_it_was_bound_hides_no_loss() {
        let (one, ended, open) = (session(), ConnectionId(7), ConnectionId(8));
        one.unbind(ended);
        one.bind_back(ended);
        one.bind_back(open);
        one.lease.want_attention();
        one.note_nothing_told(one.news().unwrap());
        assert_eq!(one.news(), None);
        one.unbind(open);
        assert!(one.news().is_some());
    }

    #[test]
    fn a_dropped_request_never_came() {
        let session = session();
        drop(session.take(1, 1, true, 9));
        assert!(matches!(session.take(1, 1, true, 9), Ok(SlotVerdict::Run(_))));
    }
}
