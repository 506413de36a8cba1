//! Requests of an NFSv4.0 client, each until it has ended.

use super::super::delegated::Delegated;
use super::super::{Kind, LockEnd, NameChange, Named, Written, lock_type};
use super::{
    Inside, Opened, OwnerClient, PLAIN_SHARE, RANGE_BYTES, RETURN_NANOS, asks_for_patience,
    lock_owner, open_owner,
};
use crate::executor::{SECOND, lock};
use crate::gateway::LEASE_SECONDS;
use crate::history::{BLOCK_BYTES, Register};
use crate::plan::{BLOCKS_PER_WORKER, WORKERS};
use bytes::Bytes;
use std::collections::BTreeMap;
use zgate_nfs_wire::v4::op::*;
use zgate_nfs_wire::v4::{Fh, StableHow, Stateid, Status, Verifier};
use zgate_store::Payload;
use zgate_store::file_store::NewNode;
use zgate_test_harness::nfs::{Ops, Reply, mode, name};

/// Name of a file in the root of the export.
pub(super) fn file_name(kind: Kind, client: usize) -> String {
    match kind {
        Kind::Own => format!("f{client}"),
        Kind::Locks => "locks".to_owned(),
        Kind::Shares => "shares".to_owned(),
    }
}

/// End of an OPEN.
pub(super) enum Open40 {
    /// The result, the stateid once it is confirmed, and the client id's number.
    Done(open::Res, Stateid, u64),
    /// The server's storage fails.
    Failed,
    /// Another open excludes it.
    Denied,
}

/// An open without locks.
pub(super) fn unlocked(fh: Fh, stateid: Stateid, share: (u32, u32), generation: u64) -> Opened {
    Opened { fh, stateid, lock_stateid: None, ranges: BTreeMap::new(), share, generation }
}

impl OwnerClient {
    /// Opens a file by name.
    pub(super) async fn open_file(
        &self,
        owner: &str,
        (fh, text, share): (&Fh, &str, (u32, u32)),
    ) -> Open40 {
        loop {
            let generation = self.registered().await;
            let ops = {
                let args =
                    lock(&self.inside).open_args(owner, share, open::Claim::Null(name(text)));
                Ops::new().at(&self.files.root).op::<Open>(&args)
            };
            let (reply, sent_at) = self.send(ops).await;
            self.advance(owner, &reply, generation);
            match reply.status {
                Status::Ok => self.renewed(generation, sent_at),
                Status::Io | Status::Nospc => return Open40::Failed,
                Status::ShareDenied => return Open40::Denied,
                Status::StaleClientid | Status::Expired => {
                    self.lose_id(generation);
                    continue;
                }
                status if asks_for_patience(status) => {
                    self.wire.pause().await;
                    continue;
                }
                status => panic!("OPEN: {status:?}"),
            }
            let opened = reply.get::<Open>();
            if opened.flags & open::RESULT_CONFIRM == 0 {
                let stateid = opened.stateid;
                return Open40::Done(opened, stateid, generation);
            }
            if let Some(stateid) = self.confirm(owner, fh, opened.stateid, generation).await {
                return Open40::Done(opened, stateid, generation);
            }
        }
    }

    /// OPEN_CONFIRM; `None` if the open is lost.
    async fn confirm(
        &self,
        owner: &str,
        fh: &Fh,
        stateid: Stateid,
        generation: u64,
    ) -> Option<Stateid> {
        loop {
            let seqid = {
                let inside = lock(&self.inside);
                if inside.generation != generation {
                    return None;
                }
                inside.seqid(owner)
            };
            let args = open_confirm::Args { stateid, seqid };
            let (reply, _) = self.send(Ops::new().at(fh).op::<OpenConfirm>(&args)).await;
            self.advance(owner, &reply, generation);
            match reply.status {
                Status::Ok => return Some(reply.get::<OpenConfirm>().stateid),
                status if asks_for_patience(status) => self.wire.pause().await,
                Status::StaleStateid | Status::StaleClientid | Status::Expired => {
                    self.lose_id(generation);
                    return None;
                }
                // The client has another id meanwhile.
                Status::BadStateid | Status::BadSeqid
                    if lock(&self.inside).generation != generation =>
                {
                    return None;
                }
                status => panic!("OPEN_CONFIRM: {status:?}"),
            }
        }
    }

    /// A worker's open of its own file or of the file of locks; `None` if the
    /// server's storage fails.
    async fn open(&self, worker: u32, kind: Kind) -> Option<Opened> {
        loop {
            self.registered().await;
            let known = lock(&self.inside).opens.get(&(worker, kind)).cloned();
            if known.is_some() {
                return known;
            }
            let fh = self.files.of(kind, self.wire.client).clone();
            let text = file_name(kind, self.wire.client);
            let opened = self.open_file(&open_owner(worker), (&fh, &text, PLAIN_SHARE)).await;
            let Open40::Done(result, stateid, generation) = opened else { return None };
            match result.delegated {
                open::Delegated::Write { stateid, .. } | open::Delegated::Read { stateid, .. } => {
                    self.delegations.granted_of_own(fh.clone(), stateid);
                }
                _ => {}
            }
            let opened = unlocked(fh, stateid, PLAIN_SHARE, generation);
            let mut inside = lock(&self.inside);
            if inside.generation == generation {
                inside.opens.insert((worker, kind), opened);
            }
        }
    }

    /// WRITE.
    pub async fn write(&self, worker: u32, offset: u64, data: &[u8], stable: bool) -> Written {
        let stable = if stable { StableHow::FileSync } else { StableHow::Unstable };
        loop {
            let Some(opened) = self.open(worker, Kind::Own).await else { return Written::Failed };
            let ops = Ops::new().at(&opened.fh).write(opened.stateid, offset, data, stable);
            let (reply, sent_at) = self.send(ops).await;
            match reply.status {
                Status::Ok => {
                    self.renewed(opened.generation, sent_at);
                    let done = reply.get::<Write>();
                    if done.count as usize != data.len() {
                        return Written::Failed;
                    }
                    let stable = done.committed != StableHow::Unstable;
                    return Written::Done { stable, verifier: done.verifier };
                }
                Status::Io | Status::Nospc => return Written::Failed,
                status if asks_for_patience(status) => self.wire.pause().await,
                status => self.refused("WRITE", (worker, Kind::Own), &opened, status),
            }
        }
    }

    /// CLOSE of a worker's open of the client's own file, if there is one.
    pub async fn close(&self, worker: u32) {
        loop {
            self.registered().await;
            let known = lock(&self.inside).opens.get(&(worker, Kind::Own)).cloned();
            let Some(opened) = known else { return };
            let reply = self.close_open(&open_owner(worker), &opened).await;
            match reply.status {
                Status::Ok => return self.forget(worker, Kind::Own, opened.stateid),
                status if asks_for_patience(status) => self.wire.pause().await,
                status => self.refused("CLOSE", (worker, Kind::Own), &opened, status),
            }
        }
    }

    pub(super) async fn close_open(&self, owner: &str, opened: &Opened) -> Reply {
        let seqid = lock(&self.inside).seqid(owner);
        let args = close::Args { seqid, stateid: opened.stateid };
        let (reply, _) = self.send(Ops::new().at(&opened.fh).op::<Close>(&args)).await;
        self.advance(owner, &reply, opened.generation);
        reply
    }

    /// COMMIT of the client's own file; `None` if it failed.
    pub async fn commit(&self) -> Option<Verifier> {
        let fh = &self.files.own[self.wire.client];
        let args = commit::Args { offset: 0, count: 0 };
        let reply = self.run(|| Ops::new().at(fh).op::<Commit>(&args)).await;
        match reply.status {
            Status::Ok => Some(reply.get::<Commit>()),
            Status::Io | Status::Nospc => None,
            status => panic!("COMMIT: {status:?}"),
        }
    }

    /// READ without an open; `None` if it failed.
    pub async fn read(&self, file: usize, offset: u64, count: u32) -> Option<Bytes> {
        let fh = &self.files.own[file];
        let reply = self.run(|| Ops::new().at(fh).read(Stateid::ANONYMOUS, offset, count)).await;
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
    pub async fn change(&self, change: &NameChange) -> Named {
        let root = &self.files.root;
        loop {
            let ops = match change {
                NameChange::Make(text) => {
                    let kind = create::Kind::Node(NewNode::Directory);
                    let args = create::Args { kind, name: name(text), attrs: mode(0o755) };
                    Ops::new().at(root).op::<Create>(&args)
                }
                NameChange::Remove(text) => Ops::new().at(root).remove(text),
                NameChange::Rename(from, to) => {
                    Ops::new().at(root).save().at(root).rename(from, to)
                }
            };
            let first_server = self.gateway.running();
            let (bytes, sent) = ops.encode(b"", 0);
            let answer = self.wire.call(super::V4, super::COMPOUND, &bytes).await;
            let reply = Reply::parse(answer.body, &sent);
            let restarted = answer.sent > 1
                && (first_server.is_none() || self.gateway.running() != first_server);
            return match reply.status {
                status if asks_for_patience(status) => {
                    if restarted {
                        return Named::Unknown;
                    }
                    self.wire.pause().await;
                    continue;
                }
                _ if restarted => Named::Unknown,
                Status::Ok => Named::Done,
                Status::Exist => Named::Exists,
                Status::Noent => Named::Absent,
                Status::Io | Status::Nospc => Named::Failed,
                status => panic!("{change:?}: {status:?}"),
            };
        }
    }

    /// LOCK.
    pub async fn lock(&self, worker: u32, range: u32, write: bool) -> LockEnd {
        let (opener, locker) = (open_owner(worker), lock_owner(worker));
        if !write {
            self.history.weakening(self.wire.client, worker, range);
        }
        loop {
            let Some(opened) = self.open(worker, Kind::Locks).await else {
                return LockEnd::Refused;
            };
            let args = lock(&self.inside).lock_args(worker, &opened, (range, write), false);
            let first = opened.lock_stateid.is_none();
            let (reply, sent_at) = self.send(Ops::new().at(&opened.fh).op::<Lock>(&args)).await;
            let status = reply.status;
            if first {
                self.advance(&opener, &reply, opened.generation);
            }
            // Of an owner that the server does not know it takes any number.
            self.advance(&locker, &reply, opened.generation);
            match status {
                Status::Ok => {
                    let stateid = reply.get::<Lock>().stateid;
                    let mut inside = lock(&self.inside);
                    let now = inside.opens.get_mut(&(worker, Kind::Locks));
                    let now = now.filter(|now| now.stateid.other == opened.stateid.other);
                    // Otherwise the server that granted it is gone.
                    let Some(now) = now else { continue };
                    now.lock_stateid = Some(stateid);
                    now.ranges.insert(range, write);
                    drop(inside);
                    self.renewed(opened.generation, sent_at);
                    self.history.locked(self.wire.client, worker, range, write);
                    return LockEnd::Granted;
                }
                Status::Denied | Status::Io => return LockEnd::Refused,
                status if asks_for_patience(status) => self.wire.pause().await,
                status => self.refused("LOCK", (worker, Kind::Locks), &opened, status),
            }
        }
    }

    /// LOCKU of a range, if it is held.
    pub async fn unlock(&self, worker: u32, range: u32) {
        self.history.unlocked(self.wire.client, worker, range);
        let owner = lock_owner(worker);
        loop {
            self.registered().await;
            let opened = lock(&self.inside).opens.get(&(worker, Kind::Locks)).cloned();
            let Some(opened) = opened.filter(|opened| opened.ranges.contains_key(&range)) else {
                return;
            };
            let Some(stateid) = opened.lock_stateid else { return };
            let (offset, seqid) = (u64::from(range) * RANGE_BYTES, self.next_of(&owner));
            let kind = lock_type(true);
            let args = locku::Args { kind, seqid, stateid, offset, length: RANGE_BYTES };
            let (reply, _) = self.send(Ops::new().at(&opened.fh).op::<Locku>(&args)).await;
            self.advance(&owner, &reply, opened.generation);
            match reply.status {
                Status::Ok => {
                    let stateid = reply.get::<Locku>().stateid;
                    let mut inside = lock(&self.inside);
                    let now = inside.opens.get_mut(&(worker, Kind::Locks));
                    if let Some(now) = now.filter(|now| now.generation == opened.generation) {
                        now.lock_stateid = Some(stateid);
                        now.ranges.remove(&range);
                        return;
                    }
                }
                status if asks_for_patience(status) => self.wire.pause().await,
                status => self.refused("LOCKU", (worker, Kind::Locks), &opened, status),
            }
        }
    }

    fn next_of(&self, owner: &str) -> u32 {
        Inside::seqid(&lock(&self.inside), owner)
    }

    /// Opens a file for reading, which may bring a delegation; reads the file
    /// under it.
    pub async fn delegate(&self, worker: u32, file: usize) -> &'static str {
        let (fh, text) = (self.files.own[file].clone(), file_name(Kind::Own, file));
        let owner = format!("reader{worker}");
        let opened = self.open_file(&owner, (&fh, &text, (1, 0))).await;
        let Open40::Done(result, stateid, generation) = opened else { return "not opened" };
        if let open::Delegated::Read { stateid, .. } = result.delegated
            && lock(&self.inside).generation == generation
        {
            self.delegations.granted(file, fh.clone(), stateid);
        }
        let opened = unlocked(fh.clone(), stateid, (1, 0), generation);
        while asks_for_patience(self.close_open(&owner, &opened).await.status) {
            self.wire.pause().await;
        }
        let Some(stateid) = self.delegations.of(file) else { return "none" };
        for block in 0..WORKERS * BLOCKS_PER_WORKER {
            let register = Register { client: file, block };
            let (offset, count) = (register.offset(), BLOCK_BYTES as u32);
            let reply = self.run(|| Ops::new().at(&fh).read(stateid, offset, count)).await;
            if reply.status == Status::Ok
                && let Payload::Bytes(data) = reply.get::<Read>().data
            {
                self.delegations.cache(file, stateid, block, data);
            }
        }
        "held"
    }

    /// Returns recalled delegations until the client goes away.
    pub async fn return_delegations(&self) {
        loop {
            self.wire.executor.sleep(RETURN_NANOS).await;
            if lock(&self.inside).ended {
                return;
            }
            while let Some(held) = self.delegations.next_return() {
                self.flush(&held).await;
                let args = delegreturn::Args { stateid: held.stateid };
                let reply = self.run(|| Ops::new().at(&held.fh).op::<Delegreturn>(&args)).await;
                let name = &self.wire.name;
                self.wire.trace.note(name, format_args!("DELEGRETURN: {:?}", reply.status));
            }
        }
    }

    /// Renews the lease until the client goes away.
    pub async fn renew(&self) {
        loop {
            self.wire.executor.sleep(u64::from(LEASE_SECONDS) * SECOND / 3).await;
            if lock(&self.inside).ended {
                return;
            }
            let generation = self.registered().await;
            let clientid = lock(&self.inside).clientid.unwrap_or_default();
            let ops = Ops::new().op::<Renew>(&renew::Args { clientid });
            let (reply, sent_at) = self.send(ops).await;
            match reply.status {
                Status::Ok => self.renewed(generation, sent_at),
                // The server cannot recall: another callback path, and no trust
                // in what it could not take back.
                Status::CbPathDown => {
                    self.renewed(generation, sent_at);
                    self.delegations.give_all_up(true);
                    self.lose_id(generation);
                }
                Status::StaleClientid | Status::Expired => self.lose_id(generation),
                status if asks_for_patience(status) => {}
                status => panic!("RENEW: {status:?}"),
            }
        }
    }

    /// The client goes away without a word.
    pub fn vanish(&self) {
        lock(&self.inside).ended = true;
    }
}
