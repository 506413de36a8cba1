//! An NFSv4.1 or 4.2 client: its session, its opens and locks, and how it gets
//! them back after a restart of the server.

mod lifecycle;
mod requests;

use super::delegated::Delegated;
use super::{Delegations, Files, Kind, Wire, lock_type};
use crate::executor::{SECOND, lock};
use crate::gateway::LEASE_SECONDS;
use crate::history::History;
use crate::invariant::Invariant;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use zgate_nfs_wire::v4::op::*;
use zgate_nfs_wire::v4::{COMPOUND, ClientId, Fh, SessionId, StateOwner, Stateid, Status};
use zgate_test_harness::nfs::{Ops, Reply};

/// Slots: one for each worker, one for returns, one for renewals.
const SLOTS: usize = 4;
/// Slot of renewals and reclaims.
const OWN_SLOT: usize = SLOTS - 1;
/// Slot of the return of delegations.
const RETURN_SLOT: usize = SLOTS - 2;
/// Time between two looks for delegations to be returned.
const RETURN_NANOS: u64 = SECOND / 4;
/// Bytes of a channel.
const CHANNEL_BYTES: u32 = 64 << 10;
/// Bytes of a locked range.
const RANGE_BYTES: u64 = 10;
/// Version number of NFSv4 in RPC.
const V4: u32 = 4;

/// Access and deny of an open that excludes nobody.
const PLAIN_SHARE: (u32, u32) = (3, 0);

/// The server cannot recall delegations, or has revoked some.
const DELEGATIONS_IN_DOUBT: u32 = sequence::STATUS_CB_PATH_DOWN
    | sequence::STATUS_CB_PATH_DOWN_SESSION
    | sequence::STATUS_BACKCHANNEL_FAULT
    | sequence::STATUS_RECALLABLE_STATE_REVOKED;

/// The session was lost before the answer; `unknown`: the request may have run.
#[derive(Clone, Copy, Debug)]
pub(super) struct SessionLost {
    unknown: bool,
}

/// An open file of a worker, with its locks.
#[derive(Clone, Debug)]
struct Opened {
    fh: Fh,
    stateid: Stateid,
    lock_stateid: Option<Stateid>,
    /// Ranges held; true: for writing.
    ranges: BTreeMap<u32, bool>,
    /// Access and deny of the open.
    share: (u32, u32),
    clientid: ClientId,
}

#[derive(Default)]
struct Inside {
    session: Option<SessionId>,
    clientid: ClientId,
    slots: [u32; SLOTS],
    /// By worker and file.
    opens: BTreeMap<(u32, Kind), Opened>,
    /// Number of the client's restarts.
    boots: u8,
    /// Number of the connection that carries the back channel.
    bound_at: u64,
    ended: bool,
}

/// A client of NFSv4.1 or 4.2.
pub struct SessionClient {
    /// Its transport.
    pub wire: Wire,
    minor: u32,
    files: Files,
    history: Arc<History>,
    /// Its delegations.
    pub delegations: Arc<Delegations>,
    inside: Mutex<Inside>,
    establishing: tokio::sync::Mutex<()>,
}

fn channel() -> create_session::ChannelAttrs {
    create_session::ChannelAttrs {
        header_pad_bytes: 0,
        max_request_bytes: CHANNEL_BYTES,
        max_response_bytes: CHANNEL_BYTES,
        max_cached_bytes: 4096,
        max_ops: 16,
        slots: SLOTS as u32,
    }
}

/// The session, the client or the server's start is not known any more.
fn loses_session(status: Status) -> bool {
    matches!(
        status,
        Status::Badsession | Status::Deadsession | Status::StaleClientid | Status::StaleStateid
    )
}

/// The stateid names nothing (any more).
fn loses_state(status: Status) -> bool {
    matches!(
        status,
        Status::BadStateid
            | Status::Expired
            | Status::StaleStateid
            | Status::OldStateid
            | Status::AdminRevoked
    )
}

impl SessionClient {
    /// A client without a session.
    #[must_use]
    pub fn new(wire: Wire, minor: u32, files: Files, history: &Arc<History>) -> Self {
        let delegations = Arc::<Delegations>::default();
        let answering = Arc::clone(&delegations);
        wire.answer_callbacks(move |call| answering.answer(call));
        Self {
            wire,
            minor,
            files,
            history: Arc::clone(history),
            delegations,
            inside: Mutex::default(),
            establishing: tokio::sync::Mutex::default(),
        }
    }

    /// The client's own file.
    pub(super) fn own_file(&self) -> &Fh {
        self.files.of(Kind::Own, self.wire.client)
    }

    /// Sends a COMPOUND as it is.
    async fn send(&self, ops: Ops) -> (Reply, u32, u64) {
        let (bytes, sent) = ops.encode(b"", self.minor);
        let answer = self.wire.call(V4, COMPOUND, &bytes).await;
        (Reply::parse(answer.body, &sent), answer.sent, answer.sent_at)
    }

    /// Sends a COMPOUND in a slot of a session until the session has answered
    /// it.
    async fn send_in(
        &self,
        session: SessionId,
        slot: usize,
        (sequence, cache): (u32, bool),
        ops: impl Fn() -> Ops,
    ) -> Result<(Reply, u64), SessionLost> {
        let mut sent_before = 0;
        let args = sequence::Args {
            session,
            sequence,
            slot: slot as u32,
            highest_slot: OWN_SLOT as u32,
            cache_this: cache,
        };
        // Once: what the client knows may change while it repeats the request.
        let (bytes, asked) = ops().after(Ops::new().op::<Sequence>(&args)).encode(b"", self.minor);
        loop {
            let answer = self.wire.call(V4, COMPOUND, &bytes).await;
            let (sent, sent_at) = (answer.sent, answer.sent_at);
            let mut reply = Reply::parse(answer.body, &asked);
            let first = reply.answers.first().map_or(reply.status, |answer| answer.status);
            match first {
                Status::Ok => {
                    let flags = reply.get::<Sequence>().status_flags;
                    if flags & DELEGATIONS_IN_DOUBT != 0 {
                        self.delegations.give_all_up(true);
                        lock(&self.inside).bound_at = 0;
                    }
                    reply.answers.remove(0);
                    return Ok((reply, sent_at));
                }
                Status::Delay => {
                    sent_before += sent;
                    self.wire.pause().await;
                }
                status if loses_session(status) => {
                    return Err(SessionLost { unknown: sent_before + sent > 1 });
                }
                status => panic!("SEQUENCE {sequence} in slot {slot}: {status:?}"),
            }
        }
    }

    /// Sends a COMPOUND in a worker's slot; a lost session is replaced.
    async fn request(
        &self,
        slot: usize,
        cache: bool,
        ops: impl Fn() -> Ops,
    ) -> Result<Reply, SessionLost> {
        let session = self.session().await;
        let (sequence, boots) = {
            let inside = lock(&self.inside);
            (inside.slots[slot] + 1, inside.boots)
        };
        match self.send_in(session, slot, (sequence, cache), ops).await {
            Ok((reply, sent_at)) => {
                let mut inside = lock(&self.inside);
                if inside.boots != boots {
                    // The client restarted before the reply: what it grants is
                    // its old self's, which the server forgets with the next
                    // CREATE_SESSION.
                    return Err(SessionLost { unknown: true });
                }
                if inside.session == Some(session) {
                    inside.slots[slot] = sequence;
                    let lease = u64::from(LEASE_SECONDS) * SECOND;
                    drop(inside);
                    self.history.leased(self.wire.client, sent_at + lease);
                }
                Ok(reply)
            }
            Err(lost) => {
                let mut inside = lock(&self.inside);
                if inside.session == Some(session) {
                    inside.session = None;
                }
                Err(lost)
            }
        }
    }

    /// Sends a COMPOUND that may run again, until its last status is not a
    /// request for patience.
    async fn run(&self, slot: usize, ops: impl Fn() -> Ops) -> Reply {
        loop {
            match self.request(slot, false, &ops).await {
                Ok(reply) if matches!(reply.status, Status::Delay | Status::Grace) => {
                    self.wire.pause().await;
                }
                // The reply of the first attempt was not kept.
                Ok(reply) if reply.status == Status::RetryUncachedRep => {}
                Ok(reply) => return reply,
                Err(_) => {}
            }
        }
    }

    /// The session; a new one where there is none.
    async fn session(&self) -> SessionId {
        let _one_at_a_time = self.establishing.lock().await;
        loop {
            let (known, boots) = {
                let inside = lock(&self.inside);
                (inside.session, inside.boots)
            };
            if let Some(session) = known {
                return session;
            }
            if let Some(session) = self.establish(boots).await
                && self.enter(session, boots)
            {
                return session;
            }
            self.wire.pause().await;
        }
    }

    /// Keeps a session that was made after `boots` restarts of the client. If
    /// there was another one meanwhile, the session and what was reclaimed over
    /// it are the old self's: returns false, and nothing is kept of them.
    fn enter(&self, session: SessionId, boots: u8) -> bool {
        let is_own = {
            let mut inside = lock(&self.inside);
            let is_own = inside.boots == boots;
            if is_own {
                inside.session = Some(session);
            }
            is_own
        };
        if !is_own {
            self.lose_cached();
        }
        is_own
    }

    /// EXCHANGE_ID, CREATE_SESSION, and everything again that a new server
    /// does not know, of a client that has restarted `boots` times.
    async fn establish(&self, boots: u8) -> Option<SessionId> {
        let owner = format!("client{}", self.wire.client);
        let args = exchange_id::Args {
            verifier: [boots; 8],
            owner: owner.as_bytes().into(),
            flags: 0,
            protect: exchange_id::Protect::None,
            implementation: None,
        };
        let (reply, ..) = self.send(Ops::new().op::<ExchangeId>(&args)).await;
        let known = reply.result().ok()?.get::<ExchangeId>();
        let args = create_session::Args {
            clientid: known.clientid,
            sequence: known.sequenceid,
            flags: create_session::BACK_CHANNEL,
            fore: channel(),
            back: channel(),
            callback_program: 0x4000_0000,
            security: vec![create_session::CallbackSecurity::None],
        };
        let (reply, ..) = self.send(Ops::new().op::<CreateSession>(&args)).await;
        let session = reply.result().ok()?.get::<CreateSession>().session;
        let same = {
            let mut inside = lock(&self.inside);
            if inside.boots != boots {
                // It restarted meanwhile.
                return None;
            }
            inside.bound_at = 0;
            inside.slots = [0; SLOTS];
            std::mem::replace(&mut inside.clientid, known.clientid) == known.clientid
        };
        let name = &self.wire.name;
        self.wire.trace.note(name, format_args!("session; same client id: {same}"));
        if same {
            self.delegations.give_all_up(true);
        }
        if !same || known.flags & exchange_id::CONFIRMED == 0 {
            let reclaimed = self.reclaim(session, boots).await;
            if reclaimed.is_err() {
                // The next attempt must reclaim again.
                lock(&self.inside).clientid = ClientId::default();
                return None;
            }
        }
        Some(session)
    }

    /// Sends one COMPOUND of a reclaim.
    async fn reclaiming(
        &self,
        session: SessionId,
        ops: impl Fn() -> Ops,
    ) -> Result<Reply, SessionLost> {
        loop {
            let sequence = lock(&self.inside).slots[OWN_SLOT] + 1;
            let (reply, _) = self.send_in(session, OWN_SLOT, (sequence, true), &ops).await?;
            lock(&self.inside).slots[OWN_SLOT] = sequence;
            if !matches!(reply.status, Status::Delay | Status::Grace) {
                return Ok(reply);
            }
            self.wire.pause().await;
        }
    }

    /// Reclaims opens and locks from a new server.
    async fn reclaim(&self, session: SessionId, boots: u8) -> Result<(), SessionLost> {
        let opens: Vec<_> = lock(&self.inside).opens.clone().into_iter().collect();
        for ((worker, kind), old) in opens {
            let again = self.reclaim_open(session, worker, &old).await?;
            if lock(&self.inside).boots != boots {
                // It restarted meanwhile, and holds nothing of before.
                return Err(SessionLost { unknown: true });
            }
            let lost: BTreeSet<u32> = {
                let kept = again.as_ref().map(|open| &open.ranges);
                let lost = |range: &&u32| kept.is_none_or(|kept| !kept.contains_key(*range));
                old.ranges.keys().filter(lost).copied().collect()
            };
            for range in lost {
                self.history.unlocked(self.wire.client, worker, range);
            }
            if again.is_none() && kind == Kind::Shares {
                self.history.unshared(self.wire.client, worker);
            }
            let mut inside = lock(&self.inside);
            match again {
                Some(open) => inside.opens.insert((worker, kind), open),
                None => inside.opens.remove(&(worker, kind)),
            };
        }
        self.reclaim_delegations(session).await?;
        let args = reclaim_complete::Args { one_fs: false };
        let reply = self.reclaiming(session, || Ops::new().op::<ReclaimComplete>(&args)).await?;
        match reply.status {
            Status::Ok | Status::CompleteAlready => Ok(()),
            status => panic!("RECLAIM_COMPLETE: {status:?}"),
        }
    }

    async fn reclaim_open(
        &self,
        session: SessionId,
        worker: u32,
        old: &Opened,
    ) -> Result<Option<Opened>, SessionLost> {
        let args = self.open_args(worker, old.share, open::Claim::Previous(0));
        let ops = || Ops::new().at(&old.fh).op::<Open>(&args);
        let reply = self.reclaiming(session, ops).await?;
        let name = &self.wire.name;
        self.wire.trace.note(name, format_args!("reclaim of worker {worker}: {:?}", reply.status));
        if reply.status != Status::Ok {
            return Ok(None);
        }
        let stateid = reply.get::<Open>().stateid;
        let mut again = self.opened(old.fh.clone(), stateid, old.share);
        for (range, write) in &old.ranges {
            let args = self.lock_args(worker, &again, *range, *write, true);
            let ops = || Ops::new().at(&again.fh).op::<Lock>(&args);
            let reply = self.reclaiming(session, ops).await?;
            let status = reply.status;
            self.wire.trace.note(name, format_args!("reclaim of range {range}: {status:?}"));
            if status == Status::Ok {
                again.lock_stateid = Some(reply.get::<Lock>().stateid);
                again.ranges.insert(*range, *write);
            }
        }
        Ok(Some(again))
    }

    fn owner(&self, kind: &str, worker: u32) -> StateOwner {
        let clientid = lock(&self.inside).clientid;
        StateOwner { clientid, owner: format!("{kind}{worker}").as_bytes().into() }
    }

    fn opened(&self, fh: Fh, stateid: Stateid, share: (u32, u32)) -> Opened {
        let clientid = lock(&self.inside).clientid;
        Opened { fh, stateid, lock_stateid: None, ranges: BTreeMap::new(), share, clientid }
    }

    fn open_args(&self, worker: u32, (access, deny): (u32, u32), claim: open::Claim) -> open::Args {
        open::Args {
            seqid: 0,
            access: access | open::WANT_NO_DELEGATION,
            deny,
            owner: self.owner("open", worker),
            how: open::How::NoCreate,
            claim,
        }
    }

    fn lock_args(
        &self,
        worker: u32,
        opened: &Opened,
        range: u32,
        write: bool,
        reclaim: bool,
    ) -> lock::Args {
        let locker = match opened.lock_stateid {
            Some(stateid) => lock::Locker::Existing { stateid, seqid: 0 },
            None => lock::Locker::New {
                open_seqid: 0,
                open: opened.stateid,
                lock_seqid: 0,
                owner: self.owner("lock", worker),
            },
        };
        let offset = u64::from(range) * RANGE_BYTES;
        lock::Args { kind: lock_type(write), reclaim, offset, length: RANGE_BYTES, locker }
    }

    /// A worker's open of its own file or of the file of locks; `None` if the
    /// server's storage fails.
    async fn open(&self, worker: u32, kind: Kind) -> Option<Opened> {
        let known = lock(&self.inside).opens.get(&(worker, kind)).cloned();
        if known.is_some() {
            return known;
        }
        let fh = self.files.of(kind, self.wire.client).clone();
        let args = || self.open_args(worker, PLAIN_SHARE, open::Claim::Fh);
        let reply = self.run(worker as usize, || Ops::new().at(&fh).op::<Open>(&args())).await;
        match reply.status {
            Status::Ok => {}
            Status::Io => return None,
            // The client id has changed meanwhile.
            status if loses_session(status) => return None,
            status => panic!("OPEN: {status:?}"),
        }
        let opened = self.opened(fh, reply.get::<Open>().stateid, PLAIN_SHARE);
        lock(&self.inside).opens.insert((worker, kind), opened.clone());
        Some(opened)
    }

    /// The server refuses an open's state: checks that it may, and forgets the
    /// open.
    fn refused(&self, what: &str, (worker, kind): (u32, Kind), opened: &Opened, status: Status) {
        let same_client = lock(&self.inside).clientid == opened.clientid;
        if status == Status::BadStateid
            && same_client
            && self.history.lease_is_valid(self.wire.client)
        {
            let text = format!(
                "{what} of client{}.{worker}: {status:?} although the lease is valid",
                self.wire.client
            );
            self.history.fail(Invariant::StateKept, text);
        }
        self.forget(worker, kind, opened.stateid);
    }

    /// Forgets an open that the server does not know, with its locks.
    fn forget(&self, worker: u32, kind: Kind, stateid: Stateid) {
        let mut inside = lock(&self.inside);
        let Some(opened) = inside.opens.get(&(worker, kind)) else { return };
        if opened.stateid.other != stateid.other {
            // It was reclaimed meanwhile.
            return;
        }
        let ranges: Vec<u32> = opened.ranges.keys().copied().collect();
        inside.opens.remove(&(worker, kind));
        drop(inside);
        if kind == Kind::Shares {
            self.history.unshared(self.wire.client, worker);
        }
        for range in ranges {
            self.history.unlocked(self.wire.client, worker, range);
        }
    }
}

#[cfg(test)]
mod tests;
