//! Restarts of an NFSv4.0 client, share reservations, and delegations over
//! restarts of the server.

use super::super::delegated::Delegated;
use super::super::delegations::OwnDelegation;
use super::super::{Delegations, Kind, LockEnd, Wire};
use super::requests::{Open40, file_name, unlocked};
use super::{IdLost, Inside, OwnerClient, asks_for_patience, open_owner};
use crate::executor::lock;
use crate::history::History;
use bytes::Bytes;
use zgate_nfs_wire::v4::op::*;
use zgate_nfs_wire::v4::{Fh, StableHow, Status};
use zgate_test_harness::nfs::{Ops, Reply};

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
        self.lose_cached();
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
}

impl Delegated for OwnerClient {
    type Server = ();
    type Lost = IdLost;

    fn parts(&self) -> (&Wire, &History, &Delegations) {
        (&self.wire, &self.history, &self.delegations)
    }

    async fn reclaim_open_of(
        &self,
        (): (),
        fh: &Fh,
        (kind, access): (u32, u32),
    ) -> Result<Option<open::Delegated>, IdLost> {
        let ops = |inside: &Inside| {
            let claim = open::Claim::Previous(kind);
            Ops::new().at(fh).op::<Open>(&inside.open_args(OWNER, (access, 0), claim))
        };
        let reply = self.reclaiming(&[OWNER], ops).await?;
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
        self.reclaiming(&[OWNER], ops).await?;
        Ok(Some(opened.delegated))
    }

    async fn write_back(&self, held: &OwnDelegation, offset: u64, data: &Bytes) -> Reply {
        let write =
            || Ops::new().at(&held.fh).write(held.stateid, offset, data, StableHow::FileSync);
        self.run(write).await
    }
}
