//! Restarts of an NFSv4.0 client, share reservations, and delegations over
//! restarts of the server.

use super::super::delegations::OwnDelegation;
use super::super::{Kind, LockEnd};
use super::requests::{Open40, file_name, unlocked};
use super::{IdLost, Inside, OwnerClient, asks_for_patience, open_owner};
use crate::executor::lock;
use crate::history::Register;
use zgate_nfs_wire::v4::op::*;
use zgate_nfs_wire::v4::{Fh, StableHow, Stateid, Status};
use zgate_test_harness::nfs::Ops;

/// Kinds of delegation in a CLAIM_PREVIOUS.
const DELEGATE_READ: u32 = 1;
const DELEGATE_WRITE: u32 = 2;
/// Owner of opens that reclaim delegations.
const OWNER: &str = "delegated";

impl OwnerClient {
    /// The client restarts: it has another verifier, and nothing of before.
    pub fn restart(&self) {
        let opens = {
            let mut inside = lock(&self.inside);
            inside.boots += 1;
            inside.generation += 1;
            (inside.clientid, inside.last_id) = (None, None);
            inside.owners.clear();
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
        for block in self.delegations.give_all_up(false) {
            self.history.uncached(Register { client: self.wire.client, block });
        }
        self.wire.break_connections();
    }

    /// Opens the file of shares with this access and deny, instead of what the
    /// worker had before.
    pub async fn share(&self, worker: u32, share: (u32, u32)) -> LockEnd {
        self.unshare(worker).await;
        let fh = self.files.shares.clone();
        let text = file_name(Kind::Shares, self.wire.client);
        loop {
            let opened = self.open_file(&open_owner(worker), (&fh, &text, share)).await;
            let Open40::Done(_, stateid, generation) = opened else { return LockEnd::Refused };
            let mut inside = lock(&self.inside);
            // Otherwise the server that granted it is gone.
            if inside.generation == generation {
                let opened = unlocked(fh.clone(), stateid, share, generation);
                inside.opens.insert((worker, Kind::Shares), opened);
                drop(inside);
                self.history.shared(self.wire.client, worker, share);
                return LockEnd::Granted;
            }
        }
    }

    /// Closes the worker's open of the file of shares, if there is one.
    pub async fn unshare(&self, worker: u32) {
        self.history.unshared(self.wire.client, worker);
        let key = (worker, Kind::Shares);
        loop {
            self.registered().await;
            let Some(opened) = lock(&self.inside).opens.get(&key).cloned() else { return };
            let reply = self.close_open(&open_owner(worker), &opened).await;
            match reply.status {
                Status::Ok => return self.forget(worker, Kind::Shares, opened.stateid),
                status if asks_for_patience(status) => self.wire.pause().await,
                status => self.refused("CLOSE", key, &opened, status),
            }
        }
    }

    /// Asks a new server for the delegations of before.
    pub(super) async fn reclaim_delegations(&self) -> Result<(), IdLost> {
        let mut former = self.delegations.former();
        let mut own = std::mem::take(&mut former.own).into_iter();
        for (file, fh) in std::mem::take(&mut former.read) {
            if let Some(again) = self.reclaim_one(&fh, DELEGATE_READ).await? {
                self.delegations.read_again(file, again, &mut former);
            }
        }
        while let Some(held) = own.next() {
            match self.reclaim_one(&held.fh, DELEGATE_WRITE).await {
                Ok(Some((fh, stateid, recall))) => {
                    let again = OwnDelegation { fh, stateid, dirty: held.dirty };
                    self.delegations.write_again(again, recall);
                }
                Ok(None) => {
                    for block in held.dirty.into_keys() {
                        self.history.uncached(Register { client: self.wire.client, block });
                    }
                }
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

    async fn reclaim_one(&self, fh: &Fh, kind: u32) -> Result<Option<(Fh, Stateid, bool)>, IdLost> {
        let access = if kind == DELEGATE_WRITE { 3 } else { 1 };
        let ops = |inside: &Inside| {
            let claim = open::Claim::Previous(kind);
            Ops::new().at(fh).op::<Open>(&inside.open_args(OWNER, (access, 0), claim))
        };
        let reply = self.reclaiming(OWNER, ops).await?;
        let name = &self.wire.name;
        self.wire.trace.note(name, format_args!("reclaim of a delegation: {:?}", reply.status));
        if reply.status != Status::Ok {
            return Ok(None);
        }
        let opened = reply.get::<Open>();
        let ops = |inside: &Inside| {
            let args = close::Args { seqid: inside.seqid(OWNER), stateid: opened.stateid };
            Ops::new().at(fh).op::<Close>(&args)
        };
        self.reclaiming(OWNER, ops).await?;
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
            let reply = self.run(ops).await;
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
