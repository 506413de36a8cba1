//! Restarts of a client and ends of its session, share reservations, and
//! delegations over restarts of the server.

use super::super::delegated::Delegated;
use super::super::delegations::OwnDelegation;
use super::super::{Delegations, Kind, LockEnd, Wire};
use super::{RETURN_SLOT, SessionClient, SessionLost, loses_session};
use crate::executor::lock;
use crate::history::History;
use bytes::Bytes;
use zgate_nfs_wire::v4::op::*;
use zgate_nfs_wire::v4::{Fh, SessionId, StableHow, Status};
use zgate_test_harness::nfs::{Ops, Reply};

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
        let opened = lock(&self.inside).opens.get(&key).cloned();
        if let Some(opened) = opened {
            self.close_open(key, &opened).await;
        }
    }
}

impl Delegated for SessionClient {
    type Server = SessionId;
    type Lost = SessionLost;

    fn parts(&self) -> (&Wire, &History, &Delegations) {
        (&self.wire, &self.history, &self.delegations)
    }

    async fn reclaim_open_of(
        &self,
        session: SessionId,
        fh: &Fh,
        (kind, access): (u32, u32),
    ) -> Result<Option<open::Delegated>, SessionLost> {
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
        Ok(Some(opened.delegated))
    }

    async fn write_back(&self, held: &OwnDelegation, offset: u64, data: &Bytes) -> Reply {
        let write =
            || Ops::new().at(&held.fh).write(held.stateid, offset, data, StableHow::FileSync);
        self.run(RETURN_SLOT, write).await
    }
}
