//! Minor version 0: runs an operation under its owner's sequence number.

use super::Cx;
use crate::v4::failure::Failure;
use crate::v4::state::State;
use crate::v4::state::stateids::is_special;
use crate::v4::tables::Tables;
use crate::v4::tables::ids::StateKey;
use crate::v4::tables::owner::OwnerName;
use crate::v4::tables::owner_seq::{LastReply, OwnerSeq, Verdict, answer_bytes};
use std::sync::Arc;
use zgate_nfs_wire::v4::{ClientId, Stateid, Status};
use zgate_xdr::Encode;

/// An owner with sequence numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SeqOwner {
    /// An open owner.
    Open(ClientId, OwnerName),
    /// A lock owner.
    Lock(ClientId, OwnerName),
}

impl State {
    fn owner_seq<'t>(tables: &'t mut Tables, owner: &SeqOwner) -> Option<&'t mut OwnerSeq> {
        match owner {
            SeqOwner::Open(client, name) => {
                let owners = &mut tables.clients.get_mut(client)?.open_owners;
                owners.get_mut(name).map(|owner| &mut owner.seq)
            }
            SeqOwner::Lock(client, name) => {
                let owners = &mut tables.clients.get_mut(client)?.lock_owners;
                owners.get_mut(name).map(|owner| &mut owner.seq)
            }
        }
    }

    /// The owner of a stateid; also for the open that the owner closed last.
    pub(crate) fn owner_of(tables: &Tables, stateid: Stateid) -> Option<SeqOwner> {
        let key = StateKey::from(stateid);
        if let Some(open) = tables.opens.get(&key) {
            return Some(SeqOwner::Open(open.client, Arc::clone(&open.owner)));
        }
        if let Some(lock) = tables.locks.get(&key) {
            return Some(SeqOwner::Lock(lock.owner.client, Arc::clone(&lock.owner.name)));
        }
        let (client, name) = tables.last_closed.get(&key)?;
        let owner = tables.clients.get(client)?.open_owners.get(name)?;
        let last = owner.last_closed == Some(key);
        last.then(|| SeqOwner::Open(*client, Arc::clone(name)))
    }

    /// Checks the sequence number. For a replay, returns the failure that
    /// repeats the earlier reply; the current file handle is set as before.
    pub(crate) fn begin_sequenced(
        &self,
        cx: &mut Cx<'_>,
        owner: &SeqOwner,
        seqid: u32,
    ) -> Result<(), Failure> {
        let verdict = {
            let mut tables = self.lock();
            match Self::owner_seq(&mut tables, owner) {
                Some(seq) => seq.judge(seqid),
                None => Verdict::Run,
            }
        };
        match verdict {
            Verdict::Run => Ok(()),
            Verdict::Bad => Err(Status::BadSeqid.into()),
            // Another operation under the number of the last one is not a
            // retry, and could not decode its reply.
            Verdict::Replay(last) if last.op != cx.op => Err(Status::BadSeqid.into()),
            Verdict::Replay(last) => {
                if let Some(handle) = last.current {
                    cx.current = Some(cx.enter(handle)?);
                }
                Err(last.reply)
            }
        }
    }

    /// Stores the reply.
    pub(crate) fn end_sequenced<R: Encode>(
        &self,
        cx: &Cx<'_>,
        owner: &SeqOwner,
        seqid: u32,
        result: &Result<R, Failure>,
    ) {
        let reply = LastReply {
            op: cx.op,
            reply: answer_bytes(result),
            current: cx.current.as_ref().map(crate::v4::request::Current::handle),
        };
        let mut tables = self.lock();
        if let Some(seq) = Self::owner_seq(&mut tables, owner) {
            seq.record(seqid, reply);
        }
    }
}

/// Runs an operation on a stateid: in minor version 0 under its owner's
/// sequence number, in later ones directly.
pub(crate) async fn sequenced<R: Encode>(
    cx: &mut Cx<'_>,
    stateid: Stateid,
    seqid: u32,
    rule: impl AsyncFnOnce(&mut Cx<'_>) -> Result<R, Failure>,
) -> Result<R, Failure> {
    if cx.minor > 0 {
        return rule(cx).await;
    }
    let server = cx.server;
    let owner = {
        let tables = server.state.lock();
        match State::owner_of(&tables, stateid) {
            Some(owner) => owner,
            None => {
                let special = is_special(stateid);
                let why = server.state.why_unknown(&tables, cx.requester(), stateid);
                return Err(if special { Status::BadStateid } else { why }.into());
            }
        }
    };
    server.state.begin_sequenced(cx, &owner, seqid)?;
    let result = rule(cx).await;
    server.state.end_sequenced(cx, &owner, seqid, &result);
    result
}
