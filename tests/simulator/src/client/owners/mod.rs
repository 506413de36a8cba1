//! An NFSv4.0 client: its client id, its owners with their sequence numbers,
//! and how it gets its state back after a restart of the server.

mod lifecycle;
mod requests;

use super::delegated::Delegated;
use super::{Delegations, Files, Kind, Wire, lock_type};
use crate::executor::{SECOND, lock};
use crate::gateway::{Gateway, LEASE_SECONDS};
use crate::history::History;
use crate::invariant::Invariant;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use zgate_nfs_wire::v4::op::*;
use zgate_nfs_wire::v4::{COMPOUND, ClientId, Fh, StateOwner, Stateid, Status};
use zgate_test_harness::nfs::{Ops, Reply};

/// Time between two looks for delegations to be returned.
const RETURN_NANOS: u64 = SECOND / 4;
/// Bytes of a locked range.
const RANGE_BYTES: u64 = 10;
/// Version number of NFSv4 in RPC.
const V4: u32 = 4;
/// Port at which a client awaits the server's calls.
const CALLBACK_PORT: u16 = 4000;

/// Access and deny of an open that excludes nobody.
const PLAIN_SHARE: (u32, u32) = (3, 0);

/// The server does not know the client id any more: it must be registered
/// again.
#[derive(Clone, Copy, Debug)]
pub(super) struct IdLost;

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
    generation: u64,
}

#[derive(Default)]
struct Inside {
    clientid: Option<ClientId>,
    /// The id that was confirmed last.
    last_id: Option<ClientId>,
    /// Number of client ids so far.
    generation: u64,
    /// The last sequence number of each owner.
    owners: BTreeMap<String, u32>,
    /// By worker and file.
    opens: BTreeMap<(u32, Kind), Opened>,
    /// Number of the client's restarts.
    boots: u8,
    ended: bool,
}

/// A client of NFSv4.0.
pub struct OwnerClient {
    /// Its transport.
    pub wire: Wire,
    files: Files,
    history: Arc<History>,
    gateway: Arc<Gateway>,
    /// Its delegations.
    pub delegations: Arc<Delegations>,
    inside: Mutex<Inside>,
    establishing: tokio::sync::Mutex<()>,
}

/// Failures that do not advance an owner's sequence number (RFC 7530 §9.1.7).
fn leaves_seqid(status: Status) -> bool {
    matches!(
        status,
        Status::StaleClientid
            | Status::StaleStateid
            | Status::BadStateid
            | Status::BadSeqid
            | Status::Badxdr
            | Status::Resource
            | Status::Nofilehandle
    )
}

/// The server asks for patience.
fn asks_for_patience(status: Status) -> bool {
    matches!(status, Status::Delay | Status::Grace | Status::Resource)
}

fn open_owner(worker: u32) -> String {
    format!("open{worker}")
}

fn lock_owner(worker: u32) -> String {
    format!("lock{worker}")
}

impl Inside {
    fn seqid(&self, owner: &str) -> u32 {
        self.owners.get(owner).map_or(0, |last| last + 1)
    }

    fn owner(&self, text: &str) -> StateOwner {
        let clientid = self.clientid.unwrap_or_default();
        StateOwner { clientid, owner: text.as_bytes().into() }
    }

    fn open_args(&self, owner: &str, (access, deny): (u32, u32), claim: open::Claim) -> open::Args {
        open::Args {
            seqid: self.seqid(owner),
            access,
            deny,
            owner: self.owner(owner),
            how: open::How::NoCreate,
            claim,
        }
    }

    fn lock_args(
        &self,
        worker: u32,
        opened: &Opened,
        (range, write): (u32, bool),
        reclaim: bool,
    ) -> lock::Args {
        let (opener, locker) = (open_owner(worker), lock_owner(worker));
        let locker = match opened.lock_stateid {
            Some(stateid) => lock::Locker::Existing { stateid, seqid: self.seqid(&locker) },
            None => lock::Locker::New {
                open_seqid: self.seqid(&opener),
                open: opened.stateid,
                lock_seqid: self.seqid(&locker),
                owner: self.owner(&locker),
            },
        };
        let offset = u64::from(range) * RANGE_BYTES;
        lock::Args { kind: lock_type(write), reclaim, offset, length: RANGE_BYTES, locker }
    }
}

impl OwnerClient {
    /// A client that is not registered.
    #[must_use]
    pub fn new(wire: Wire, files: Files, history: &Arc<History>, gateway: &Arc<Gateway>) -> Self {
        let delegations = Arc::<Delegations>::default();
        let answering = Arc::clone(&delegations);
        wire.answer_callbacks_as_called(move |call| answering.answer(call));
        Self {
            wire,
            files,
            history: Arc::clone(history),
            gateway: Arc::clone(gateway),
            delegations,
            inside: Mutex::default(),
            establishing: tokio::sync::Mutex::default(),
        }
    }

    /// The client's own file.
    pub(super) fn own_file(&self) -> &Fh {
        self.files.of(Kind::Own, self.wire.client)
    }

    /// Sends a COMPOUND; the second value is the time at which it was sent.
    async fn send(&self, ops: Ops) -> (Reply, u64) {
        let (bytes, sent) = ops.encode(b"", 0);
        let answer = self.wire.call(V4, COMPOUND, &bytes).await;
        (Reply::parse(answer.body, &sent), answer.sent_at)
    }

    /// Sends a COMPOUND that may run again until the server does not ask for
    /// patience.
    async fn run(&self, ops: impl Fn() -> Ops) -> Reply {
        loop {
            let (reply, _) = self.send(ops()).await;
            if !asks_for_patience(reply.status) {
                return reply;
            }
            self.wire.pause().await;
        }
    }

    /// Notes that the lease lasts, counted from the time of a request that
    /// renewed it.
    fn renewed(&self, generation: u64, sent_at: u64) {
        if lock(&self.inside).generation == generation {
            self.history.leased(self.wire.client, sent_at + u64::from(LEASE_SECONDS) * SECOND);
        }
    }

    /// Advances an owner after an answer, unless the client has another id
    /// meanwhile, or the operation was not reached.
    fn advance(&self, owner: &str, reply: &Reply, generation: u64) {
        // PUTFH, and the operation.
        if reply.answers.len() > 1 && !leaves_seqid(reply.status) {
            self.count(owner, generation);
        }
    }

    fn count(&self, owner: &str, generation: u64) {
        let mut inside = lock(&self.inside);
        if inside.generation == generation {
            let next = inside.seqid(owner);
            inside.owners.insert(owner.to_owned(), next);
        }
    }

    /// The number of the client id; a new id where there is none.
    async fn registered(&self) -> u64 {
        let _one_at_a_time = self.establishing.lock().await;
        loop {
            {
                let inside = lock(&self.inside);
                if inside.clientid.is_some() {
                    return inside.generation;
                }
            }
            if self.establish().await.is_err() {
                lock(&self.inside).clientid = None;
            }
            if lock(&self.inside).clientid.is_none() {
                self.wire.pause().await;
            }
        }
    }

    /// The id of this number is not valid any more.
    fn lose_id(&self, generation: u64) {
        let mut inside = lock(&self.inside);
        if inside.generation == generation {
            inside.clientid = None;
        }
    }

    /// SETCLIENTID, SETCLIENTID_CONFIRM, and everything again that a new
    /// server does not know.
    async fn establish(&self) -> Result<(), IdLost> {
        let boots = lock(&self.inside).boots;
        let args = setclientid::Args {
            verifier: [boots; 8],
            name: format!("client{}", self.wire.client).as_bytes().into(),
            callback_program: 0x4000_0000,
            callback_address: setclientid::NetAddress::from_socket(
                (self.wire.address(), CALLBACK_PORT).into(),
            ),
            callback_ident: 1,
        };
        let (reply, _) = self.send(Ops::new().op::<Setclientid>(&args)).await;
        let made = reply.result().map_err(|_| IdLost)?.get::<Setclientid>();
        let args = setclientid_confirm::Args { clientid: made.clientid, confirm: made.confirm };
        let (reply, _) = self.send(Ops::new().op::<SetclientidConfirm>(&args)).await;
        reply.result().map_err(|_| IdLost)?;
        if lock(&self.inside).boots != boots {
            // It restarted meanwhile.
            return Err(IdLost);
        }
        let same = self.enter(made.clientid);
        let name = &self.wire.name;
        self.wire.trace.note(name, format_args!("registered; same client id: {same}"));
        if same {
            self.delegations.give_all_up(true);
        }
        if same { Ok(()) } else { self.reclaim().await }
    }

    /// Keeps a new id; returns whether it is the one before.
    fn enter(&self, id: ClientId) -> bool {
        let mut inside = lock(&self.inside);
        let same = inside.last_id.replace(id) == Some(id);
        inside.clientid = Some(id);
        if !same {
            inside.generation += 1;
            inside.owners.clear();
        }
        same
    }

    /// Reclaims opens and locks from a new server.
    async fn reclaim(&self) -> Result<(), IdLost> {
        let opens: Vec<_> = lock(&self.inside).opens.clone().into_iter().collect();
        for ((worker, kind), old) in opens {
            let again = self.reclaim_open(worker, &old).await?;
            let kept: BTreeSet<u32> =
                again.iter().flat_map(|open| open.ranges.keys().copied()).collect();
            for range in old.ranges.keys().filter(|range| !kept.contains(range)) {
                self.history.unlocked(self.wire.client, worker, *range);
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
        self.reclaim_delegations(()).await
    }

    /// Sends one COMPOUND of a reclaim; `owners` are those whose numbers it has.
    async fn reclaiming(
        &self,
        owners: &[&str],
        ops: impl Fn(&Inside) -> Ops,
    ) -> Result<Reply, IdLost> {
        loop {
            let (ops, generation) = {
                let inside = lock(&self.inside);
                (ops(&inside), inside.generation)
            };
            let (reply, _) = self.send(ops).await;
            for owner in owners {
                self.advance(owner, &reply, generation);
            }
            match reply.status {
                Status::StaleClientid | Status::StaleStateid | Status::Expired => {
                    return Err(IdLost);
                }
                status if asks_for_patience(status) => self.wire.pause().await,
                _ => return Ok(reply),
            }
        }
    }

    async fn reclaim_open(&self, worker: u32, old: &Opened) -> Result<Option<Opened>, IdLost> {
        let (owner, locker) = (open_owner(worker), lock_owner(worker));
        let claim = || open::Claim::Previous(0);
        let ops = |inside: &Inside| {
            Ops::new().at(&old.fh).op::<Open>(&inside.open_args(&owner, old.share, claim()))
        };
        let reply = self.reclaiming(&[owner.as_str()], ops).await?;
        let name = &self.wire.name;
        self.wire.trace.note(name, format_args!("reclaim of worker {worker}: {:?}", reply.status));
        if reply.status != Status::Ok {
            return Ok(None);
        }
        let mut again = Opened {
            fh: old.fh.clone(),
            stateid: reply.get::<Open>().stateid,
            lock_stateid: None,
            ranges: BTreeMap::new(),
            share: old.share,
            generation: lock(&self.inside).generation,
        };
        for (range, write) in &old.ranges {
            let ops = |inside: &Inside| {
                let args = inside.lock_args(worker, &again, (*range, *write), true);
                Ops::new().at(&again.fh).op::<Lock>(&args)
            };
            let both = [owner.as_str(), locker.as_str()];
            let counted = if again.lock_stateid.is_none() { &both[..] } else { &both[1..] };
            let reply = self.reclaiming(counted, ops).await?;
            let status = reply.status;
            self.wire.trace.note(name, format_args!("reclaim of range {range}: {status:?}"));
            if status == Status::Ok {
                again.lock_stateid = Some(reply.get::<Lock>().stateid);
                again.ranges.insert(*range, *write);
            }
        }
        Ok(Some(again))
    }

    /// Forgets an open that the server does not know, with its locks.
    fn forget(&self, worker: u32, kind: Kind, stateid: Stateid) {
        let mut inside = lock(&self.inside);
        let opened = inside.opens.get(&(worker, kind));
        let Some(opened) = opened.filter(|opened| opened.stateid.other == stateid.other) else {
            return;
        };
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

    /// The server refuses an open's state: learns from it what is lost.
    fn refused(&self, what: &str, (worker, kind): (u32, Kind), opened: &Opened, status: Status) {
        match status {
            Status::StaleStateid | Status::StaleClientid => {}
            Status::Expired | Status::AdminRevoked => self.forget(worker, kind, opened.stateid),
            Status::BadStateid => {
                let current = lock(&self.inside).generation == opened.generation;
                if current && self.history.lease_is_valid(self.wire.client) {
                    self.history.fail(
                        Invariant::StateKept,
                        format!(
                            "{what} of client{}.{worker}: {status:?} although the lease is valid",
                            self.wire.client
                        ),
                    );
                }
                self.forget(worker, kind, opened.stateid);
            }
            // The client has restarted, and counts anew.
            Status::BadSeqid if lock(&self.inside).generation != opened.generation => {
                self.forget(worker, kind, opened.stateid);
            }
            status => panic!("{what}: {status:?}"),
        }
        self.lose_id(opened.generation);
    }
}
