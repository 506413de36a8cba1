//! Restarts of a client and ends of its session, share reservations, and
//! delegations over restarts of the server.

use super::super::delegations::OwnDelegation;
use super::super::{Kind, LockEnd};
use super::{RETURN_SLOT, SessionClient, SessionLost, loses_session, loses_state};
use crate::executor::lock;
use crate::history::Register;
use zgate_nfs_wire::v4::op::*;
use zgate_nfs_wire::v4::{Fh, SessionId, StableHow, Stateid, Status};
use zgate_test_harness::nfs::Ops;

/// Kinds of delegation in a CLAIM_PREVIOUS.
const DELEGATE_READ: u32 = 1;
const DELEGATE_WRITE: u32 = 2;

impl SessionClient {
    /// The client restarts: it has another verifier, and nothing of before.
    pub fn restart(&self) {
        let opens = {
            let mut inside = lock(&self.inside);
            inside.boots += 1;
            inside.session = None;
            inside.clientid = Default::default();
            std::mem::take(&mut inside.opens)
        };
        for ((worker, kind), opened) in opens {
            if kind == Kind::Shares {
                self.history.unshared(self.wire.client, worker);
            }
            for range in opened.ranges.into_keys() {
                self.history.unlocked(self.wire.client, worker, range);
            }
        }
        self.lose_cached();
        self.wire.break_connections();
    }

    fn lose_cached(&self) {
        for block in self.delegations.give_all_up(false) {
            self.history.uncached(Register { client: self.wire.client, block });
        }
    }

    /// DESTROY_SESSION; the next request makes a new session for the same
    /// client.
    pub async fn end_session(&self) -> Option<Status> {
        let session = lock(&self.inside).session?;
        let args = destroy_session::Args { session };
        let (reply, ..) = self.send(Ops::new().op::<DestroySession>(&args)).await;
        if reply.status == Status::Ok {
            let mut inside = lock(&self.inside);
            if inside.session == Some(session) {
                inside.session = None;
            }
        }
        Some(reply.status)
    }

    /// Opens the file of shares with this access and deny, instead of what the
    /// worker had before.
    pub async fn share(&self, worker: u32, share: (u32, u32)) -> LockEnd {
        self.unshare(worker).await;
        let fh = self.files.shares.clone();
        loop {
            let args = || self.open_args(worker, share, open::Claim::Fh);
            let ops = || Ops::new().at(&fh).op::<Open>(&args());
            let Ok(reply) = self.request(worker as usize, true, ops).await else {
                // It may have been granted by a server that is gone, or to a
                // session that is: its state is the client's. CLOSE needs a
                // stateid, which the same OPEN gives.
                continue;
            };
            match reply.status {
                Status::Ok => {
                    let opened = self.opened(fh.clone(), reply.get::<Open>().stateid, share);
                    lock(&self.inside).opens.insert((worker, Kind::Shares), opened);
                    self.history.shared(self.wire.client, worker, share);
                    return LockEnd::Granted;
                }
                Status::ShareDenied | Status::Io => return LockEnd::Refused,
                Status::Delay | Status::Grace => self.wire.pause().await,
                status if loses_session(status) => {}
                status => panic!("OPEN with deny: {status:?}"),
            }
        }
    }

    /// Closes the worker's open of the file of shares, if there is one.
    pub async fn unshare(&self, worker: u32) {
        self.history.unshared(self.wire.client, worker);
        let key = (worker, Kind::Shares);
        let Some(opened) = lock(&self.inside).opens.get(&key).cloned() else { return };
        let args = close::Args { seqid: 0, stateid: opened.stateid };
        let ops = || Ops::new().at(&opened.fh).op::<Close>(&args);
        let reply = self.run(worker as usize, ops).await;
        match reply.status {
            Status::Ok => self.forget(worker, Kind::Shares, opened.stateid),
            status if loses_state(status) => self.refused("CLOSE", key, &opened, status),
            status => panic!("CLOSE of a share: {status:?}"),
        }
    }

    /// Asks a new server for the delegations of before.
    pub(super) async fn reclaim_delegations(&self, session: SessionId) -> Result<(), SessionLost> {
        let mut former = self.delegations.former();
        let mut own = std::mem::take(&mut former.own).into_iter();
        for (file, fh) in std::mem::take(&mut former.read) {
            if let Some(again) = self.reclaim_one(session, &fh, DELEGATE_READ).await? {
                self.delegations.read_again(file, again, &mut former);
            }
        }
        while let Some(held) = own.next() {
            match self.reclaim_one(session, &held.fh, DELEGATE_WRITE).await {
                Ok(Some((fh, stateid, recall))) => {
                    let again = OwnDelegation { fh, stateid, dirty: held.dirty };
                    self.delegations.write_again(again, recall);
                }
                Ok(None) => self.lose_blocks(&held),
                Err(lost) => {
                    // Another server has to be asked.
                    self.delegations.write_again(held, false);
                    own.for_each(|held| self.delegations.write_again(held, false));
                    return Err(lost);
                }
            }
        }
        Ok(())
    }

    fn lose_blocks(&self, held: &OwnDelegation) {
        for block in held.dirty.keys() {
            self.history.uncached(Register { client: self.wire.client, block: *block });
        }
    }

    async fn reclaim_one(
        &self,
        session: SessionId,
        fh: &Fh,
        kind: u32,
    ) -> Result<Option<(Fh, Stateid, bool)>, SessionLost> {
        let access = if kind == DELEGATE_WRITE { 3 } else { 1 };
        let owner = self.owner("delegated", 0);
        let claim = open::Claim::Previous(kind);
        let args = open::Args { owner, ..self.open_args(0, (access, 0), claim) };
        let args = open::Args { access, ..args };
        let reply = self.reclaiming(session, || Ops::new().at(fh).op::<Open>(&args)).await?;
        let name = &self.wire.name;
        self.wire.trace.note(name, format_args!("reclaim of a delegation: {:?}", reply.status));
        if reply.status != Status::Ok {
            return Ok(None);
        }
        let opened = reply.get::<Open>();
        let args = close::Args { seqid: 0, stateid: opened.stateid };
        self.reclaiming(session, || Ops::new().at(fh).op::<Close>(&args)).await?;
        Ok(match opened.delegated {
            open::Delegated::Read { stateid, recall, .. } if kind == DELEGATE_READ => {
                Some((fh.clone(), stateid, recall))
            }
            open::Delegated::Write { stateid, recall, .. } if kind == DELEGATE_WRITE => {
                Some((fh.clone(), stateid, recall))
            }
            _ => None,
        })
    }

    /// Writes what lies in the cache under a delegation that is to be returned.
    pub(super) async fn flush(&self, held: &OwnDelegation) {
        if held.dirty.is_empty() {
            return;
        }
        let _alone = self.delegations.writing.lock().await;
        for (block, (version, data)) in &held.dirty {
            let register = Register { client: self.wire.client, block: *block };
            if self.history.sent(register) != *version {
                // A newer version has gone to the server meanwhile.
                continue;
            }
            let offset = register.offset();
            let ops =
                || Ops::new().at(&held.fh).write(held.stateid, offset, data, StableHow::FileSync);
            let reply = self.run(RETURN_SLOT, ops).await;
            let name = &self.wire.name;
            self.wire.trace.note(name, format_args!("writes back {version}: {:?}", reply.status));
            let whole =
                reply.status == Status::Ok && reply.get::<Write>().count as usize == data.len();
            match whole {
                true => self.history.written_back(register, *version),
                false => self.history.uncached(register),
            }
        }
    }
}
