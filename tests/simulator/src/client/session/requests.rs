//! Requests of a client with a session, each until it has ended.

use super::super::delegated::Delegated;
use super::super::{Kind, LockEnd, NameChange, Named, Written, lock_type};
use super::{
    OWN_SLOT, Opened, PLAIN_SHARE, RANGE_BYTES, RETURN_NANOS, RETURN_SLOT, SessionClient,
    loses_session, loses_state,
};
use crate::executor::{SECOND, lock};
use crate::gateway::LEASE_SECONDS;
use crate::history::{BLOCK_BYTES, Register};
use crate::plan::{BLOCKS_PER_WORKER, WORKERS};
use bytes::Bytes;
use zgate_nfs_wire::v4::op::*;
use zgate_nfs_wire::v4::{SessionId, StableHow, Stateid, Status, Verifier};
use zgate_store::Payload;
use zgate_store::file_store::NewNode;
use zgate_test_harness::nfs::{Ops, mode, name};

impl SessionClient {
    /// WRITE.
    pub async fn write(&self, worker: u32, offset: u64, data: &[u8], stable: bool) -> Written {
        let stable = if stable { StableHow::FileSync } else { StableHow::Unstable };
        loop {
            let Some(opened) = self.open(worker, Kind::Own).await else { return Written::Failed };
            let ops = || Ops::new().at(&opened.fh).write(opened.stateid, offset, data, stable);
            let reply = self.run(worker as usize, ops).await;
            match reply.status {
                Status::Ok => {
                    let done = reply.get::<Write>();
                    if done.count as usize != data.len() {
                        return Written::Failed;
                    }
                    let stable = done.committed != StableHow::Unstable;
                    return Written::Done { stable, verifier: done.verifier };
                }
                Status::Io | Status::Nospc => return Written::Failed,
                status if loses_state(status) => {
                    self.refused("WRITE", (worker, Kind::Own), &opened, status);
                }
                status => panic!("WRITE: {status:?}"),
            }
        }
    }

    /// CLOSE of a worker's open of the client's own file, if there is one.
    pub async fn close(&self, worker: u32) {
        let key = (worker, Kind::Own);
        let opened = lock(&self.inside).opens.get(&key).cloned();
        if let Some(opened) = opened {
            self.close_open(key, &opened).await;
        }
    }

    /// CLOSE of an open. The server keeps the reply: an attempt that ran twice would find
    /// no open.
    pub(super) async fn close_open(&self, (worker, kind): (u32, Kind), opened: &Opened) {
        let args = close::Args { seqid: 0, stateid: opened.stateid };
        let ops = || Ops::new().at(&opened.fh).op::<Close>(&args);
        // By an attempt whose session was lost with its reply.
        let mut may_be_closed = false;
        loop {
            let reply = match self.request(worker as usize, true, ops).await {
                Ok(reply) => reply,
                Err(lost) => {
                    may_be_closed |= lost.unknown;
                    continue;
                }
            };
            return match reply.status {
                Status::Ok => self.forget(worker, kind, opened.stateid),
                Status::BadStateid if may_be_closed => self.forget(worker, kind, opened.stateid),
                Status::Delay | Status::Grace => {
                    self.wire.pause().await;
                    continue;
                }
                status if loses_state(status) => {
                    self.refused("CLOSE", (worker, kind), opened, status);
                }
                status => panic!("CLOSE: {status:?}"),
            };
        }
    }

    /// COMMIT of the client's own file; `None` if it failed.
    pub async fn commit(&self, worker: u32) -> Option<Verifier> {
        let fh = &self.files.own[self.wire.client];
        let args = commit::Args { offset: 0, count: 0 };
        let reply = self.run(worker as usize, || Ops::new().at(fh).op::<Commit>(&args)).await;
        match reply.status {
            Status::Ok => Some(reply.get::<Commit>()),
            Status::Io | Status::Nospc => None,
            status => panic!("COMMIT: {status:?}"),
        }
    }

    /// READ without an open; `None` if it failed.
    pub async fn read(&self, worker: u32, file: usize, offset: u64, count: u32) -> Option<Bytes> {
        let fh = &self.files.own[file];
        let ops = || Ops::new().at(fh).read(Stateid::ANONYMOUS, offset, count);
        let reply = self.run(worker as usize, ops).await;
        match reply.status {
            Status::Ok => match reply.get::<Read>().data {
                Payload::Bytes(bytes) => Some(bytes),
                _ => panic!("a store in memory has no spans"),
            },
            Status::Io => None,
            status => panic!("READ: {status:?}"),
        }
    }

    /// CREATE of a directory, REMOVE, RENAME.
    pub async fn change(&self, worker: u32, change: &NameChange) -> Named {
        let root = &self.files.root;
        let ops = || match change {
            NameChange::Make(text) => {
                let kind = create::Kind::Node(NewNode::Directory);
                let args = create::Args { kind, name: name(text), attrs: mode(0o755) };
                Ops::new().at(root).op::<Create>(&args)
            }
            NameChange::Remove(text) => Ops::new().at(root).remove(text),
            NameChange::Rename(from, to) => Ops::new().at(root).save().at(root).rename(from, to),
        };
        loop {
            let reply = match self.request(worker as usize, true, ops).await {
                Ok(reply) => reply,
                Err(lost) if lost.unknown => return Named::Unknown,
                Err(_) => continue,
            };
            return match reply.status {
                Status::Ok => Named::Done,
                Status::Exist => Named::Exists,
                Status::Noent => Named::Absent,
                Status::Io | Status::Nospc => Named::Failed,
                Status::Delay | Status::Grace => {
                    self.wire.pause().await;
                    continue;
                }
                status => panic!("{change:?}: {status:?}"),
            };
        }
    }

    /// LOCK.
    pub async fn lock(&self, worker: u32, range: u32, write: bool) -> LockEnd {
        if !write {
            self.history.weakening(self.wire.client, worker, range);
        }
        loop {
            let Some(opened) = self.open(worker, Kind::Locks).await else {
                return LockEnd::Refused;
            };
            let args = self.lock_args(worker, &opened, range, write, false);
            let ops = || Ops::new().at(&opened.fh).op::<Lock>(&args);
            let reply = match self.request(worker as usize, true, ops).await {
                Ok(reply) => reply,
                // The stateid may be another one now.
                Err(_) => continue,
            };
            match reply.status {
                Status::Ok => {
                    let stateid = reply.get::<Lock>().stateid;
                    let mut inside = lock(&self.inside);
                    let now = inside.opens.get_mut(&(worker, Kind::Locks));
                    let Some(now) = now.filter(|now| now.stateid.other == opened.stateid.other)
                    else {
                        // The server that granted it is gone.
                        continue;
                    };
                    now.lock_stateid = Some(stateid);
                    now.ranges.insert(range, write);
                    drop(inside);
                    self.history.locked(self.wire.client, worker, range, write);
                    return LockEnd::Granted;
                }
                Status::Denied | Status::Io => return LockEnd::Refused,
                Status::Delay | Status::Grace => self.wire.pause().await,
                status if loses_state(status) || loses_session(status) => {
                    self.refused("LOCK", (worker, Kind::Locks), &opened, status);
                }
                status => panic!("LOCK: {status:?}"),
            }
        }
    }

    /// LOCKU of a range, if it is held.
    pub async fn unlock(&self, worker: u32, range: u32) {
        self.history.unlocked(self.wire.client, worker, range);
        loop {
            let opened = lock(&self.inside).opens.get(&(worker, Kind::Locks)).cloned();
            let Some(opened) = opened.filter(|opened| opened.ranges.contains_key(&range)) else {
                return;
            };
            let Some(stateid) = opened.lock_stateid else { return };
            let offset = u64::from(range) * RANGE_BYTES;
            let kind = lock_type(true);
            let args = locku::Args { kind, seqid: 0, stateid, offset, length: RANGE_BYTES };
            let ops = || Ops::new().at(&opened.fh).op::<Locku>(&args);
            let Ok(reply) = self.request(worker as usize, true, ops).await else { continue };
            match reply.status {
                Status::Ok => {
                    let stateid = reply.get::<Locku>().stateid;
                    let mut inside = lock(&self.inside);
                    if let Some(opened) = inside.opens.get_mut(&(worker, Kind::Locks)) {
                        opened.lock_stateid = Some(stateid);
                        opened.ranges.remove(&range);
                    }
                    return;
                }
                Status::Delay | Status::Grace => self.wire.pause().await,
                status if loses_state(status) => {
                    self.refused("LOCKU", (worker, Kind::Locks), &opened, status);
                }
                status => panic!("LOCKU: {status:?}"),
            }
        }
    }

    /// Opens a file for reading and asks for a delegation; reads the file under
    /// it.
    pub async fn delegate(&self, worker: u32, file: usize) -> &'static str {
        let fh = self.files.own[file].clone();
        let args = || open::Args {
            access: 1 | open::WANT_READ,
            owner: self.owner("reader", worker),
            ..self.open_args(worker, PLAIN_SHARE, open::Claim::Fh)
        };
        let slot = worker as usize;
        let reply = self.run(slot, || Ops::new().at(&fh).op::<Open>(&args())).await;
        if reply.status != Status::Ok {
            return "not opened";
        }
        let opened = reply.get::<Open>();
        if let open::Delegated::Read { stateid, .. } = opened.delegated {
            self.delegations.granted(file, fh.clone(), stateid);
        }
        let args = close::Args { seqid: 0, stateid: opened.stateid };
        // Its failure means that there is no open any more.
        let _ = self.run(slot, || Ops::new().at(&fh).op::<Close>(&args)).await;
        let Some(stateid) = self.delegations.of(file) else { return "none" };
        for block in 0..WORKERS * BLOCKS_PER_WORKER {
            let register = Register { client: file, block };
            let (offset, count) = (register.offset(), BLOCK_BYTES as u32);
            let reply = self.run(slot, || Ops::new().at(&fh).read(stateid, offset, count)).await;
            if reply.status == Status::Ok
                && let Payload::Bytes(data) = reply.get::<Read>().data
            {
                self.delegations.cache(file, stateid, block, data);
            }
        }
        "held"
    }

    /// Asks for a write delegation of the client's own file. What the client
    /// writes goes to the server all the same.
    pub async fn delegate_own(&self, worker: u32) -> &'static str {
        let fh = self.files.own[self.wire.client].clone();
        let args = || open::Args {
            access: 3 | open::WANT_WRITE,
            owner: self.owner("writer", worker),
            ..self.open_args(worker, PLAIN_SHARE, open::Claim::Fh)
        };
        let slot = worker as usize;
        let reply = self.run(slot, || Ops::new().at(&fh).op::<Open>(&args())).await;
        if reply.status != Status::Ok {
            return "not opened";
        }
        let opened = reply.get::<Open>();
        let held = match opened.delegated {
            open::Delegated::Write { stateid, .. } => {
                self.delegations.granted_of_own(fh.clone(), stateid);
                "held"
            }
            _ => "none",
        };
        let args = close::Args { seqid: 0, stateid: opened.stateid };
        // Its failure means that there is no open any more.
        let _ = self.run(slot, || Ops::new().at(&fh).op::<Close>(&args)).await;
        held
    }

    /// Returns recalled delegations, and gives the server a back channel over
    /// each new connection, until the client goes away.
    pub async fn return_delegations(&self) {
        loop {
            self.wire.executor.sleep(RETURN_NANOS).await;
            let (session, bound_at) = {
                let inside = lock(&self.inside);
                if inside.ended {
                    return;
                }
                (inside.session, inside.bound_at)
            };
            let Some(session) = session else { continue };
            if bound_at != self.wire.connections() {
                self.bind(session).await;
            }
            while let Some(held) = self.delegations.next_return() {
                self.flush(&held).await;
                let args = delegreturn::Args { stateid: held.stateid };
                let ops = || Ops::new().at(&held.fh).op::<Delegreturn>(&args);
                let reply = self.run(RETURN_SLOT, ops).await;
                let name = &self.wire.name;
                self.wire.trace.note(name, format_args!("DELEGRETURN: {:?}", reply.status));
            }
        }
    }

    /// BIND_CONN_TO_SESSION.
    async fn bind(&self, session: SessionId) {
        let number = self.wire.connections();
        let direction = bind_conn_to_session::Direction::ForeOrBoth;
        let args = bind_conn_to_session::Args { session, direction, rdma_mode: false };
        let (reply, ..) = self.send(Ops::new().op::<BindConnToSession>(&args)).await;
        if reply.status == Status::Ok && number == self.wire.connections() {
            lock(&self.inside).bound_at = number;
        }
    }

    /// Renews the lease until the client goes away.
    pub async fn renew(&self) {
        loop {
            self.wire.executor.sleep(u64::from(LEASE_SECONDS) * SECOND / 3).await;
            if lock(&self.inside).ended {
                return;
            }
            // A lost session is replaced by the next request.
            let _ = self.request(OWN_SLOT, false, || Ops::new().root()).await;
        }
    }

    /// The client goes away without a word.
    pub fn vanish(&self) {
        lock(&self.inside).ended = true;
    }
}
