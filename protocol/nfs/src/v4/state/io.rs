//! From a stateid to the open file that READ, WRITE and their kin use.

use super::State;
use super::file::{ACCESS_READ, ACCESS_WRITE, check_seqid, is_special};
use super::index::{IoCore, IoHandle};
use crate::v4::cx::{Cx, Object};
use crate::v4::wire::{Stateid, Status};
use std::sync::Arc;
use zgate_store::file_store::{OpenAccess, OpenFile};

/// What the open file is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoAccess {
    /// Reading data.
    Read,
    /// Writing data.
    Write,
    /// Setting the length.
    SetSize,
}

impl IoAccess {
    fn modifies(self) -> bool {
        self != Self::Read
    }
}

/// The open file for an I/O operation on `object` under `stateid`.
///
/// # Errors
/// What RFC 8881 §18.22.4 and §18.32.4 list for the stateid, share, grace and
/// delegation rules, and the store's errors for anonymous access.
pub async fn open_for_io(
    cx: &Cx<'_>,
    object: &Object,
    stateid: Stateid,
    access: IoAccess,
) -> Result<OpenFile, Status> {
    let stateid = cx.resolve_stateid(stateid)?;
    if stateid == Stateid::ANONYMOUS || stateid == Stateid::READ_BYPASS {
        return open_anonymous(cx, object, access).await;
    }
    if is_special(stateid) {
        return Err(Status::BadStateid);
    }
    let handle = find(cx, object, stateid)?;
    let core = &handle.core;
    if core.uid != object.who().uid {
        return open_for_other(object, core, access).await;
    }
    let file = if access.modifies() { core.for_write() } else { core.for_read() };
    if let Some(file) = file {
        return Ok(file);
    }
    if access == IoAccess::Read && core.for_write().is_some() {
        // Clients that opened for writing only read whole pages around what
        // they write; RFC 8881 §18.22.3 lets the server allow it.
        let read = OpenAccess { read: true, write: false, stateless: true };
        return Ok(object.export.store.open(object.who(), &object.node, read).await?);
    }
    Err(Status::Openmode)
}

fn find(cx: &Cx<'_>, object: &Object, stateid: Stateid) -> Result<Arc<IoHandle>, Status> {
    let state = &cx.server.state;
    let Some(handle) = state.index.get(stateid.into()) else {
        return Err(state.why_unknown(&state.lock(), cx, stateid));
    };
    match cx.session_client() {
        Some(client) if client != handle.core.client => return Err(Status::BadStateid),
        Some(_) => {}
        None => handle.core.lease.renew(cx.now.seconds()),
    }
    if handle.core.file != object.file_key() {
        return Err(Status::BadStateid);
    }
    check_seqid(cx.minor, stateid.seqid, handle.seqid())?;
    Ok(handle)
}

/// A stateid in the hands of another user than the one who opened: the share
/// rules are the stateid's, the rights are the user's own (RFC 8881 §8.2.5
/// warns of stolen stateids; clients also write dirty pages back this way).
async fn open_for_other(
    object: &Object,
    core: &IoCore,
    access: IoAccess,
) -> Result<OpenFile, Status> {
    let granted = if access.modifies() { core.for_write() } else { core.for_read() };
    if granted.is_none() && (access.modifies() || core.for_write().is_none()) {
        return Err(Status::Openmode);
    }
    let (read, write) = (!access.modifies(), access.modifies());
    let want = OpenAccess { read, write, stateless: access != IoAccess::SetSize };
    Ok(object.export.store.open(object.who(), &object.node, want).await?)
}

async fn open_anonymous(
    cx: &Cx<'_>,
    object: &Object,
    access: IoAccess,
) -> Result<OpenFile, Status> {
    let state = &cx.server.state;
    if state.grace.active() {
        return Err(Status::Grace);
    }
    let file = object.file_key();
    let caller = cx.session_client();
    let attempt = || {
        if access.modifies() {
            state.recall_before_change(cx, &file, caller)?;
        } else {
            state.recall_conflicting(cx, &file, false, caller)?;
        }
        Ok(state.check_anonymous(&file, access, cx.now.seconds())?)
    };
    state.when_settled(&*cx.server.runtime, &file, attempt).await.map_err(|no| no.status)?;
    let want = OpenAccess {
        read: !access.modifies(),
        write: access.modifies(),
        stateless: access != IoAccess::SetSize,
    };
    Ok(object.export.store.open(object.who(), &object.node, want).await?)
}

impl State {
    /// Whether an access without an open collides with someone's share
    /// reservation (RFC 8881 §9.1.2).
    pub(crate) fn check_anonymous(
        &self,
        file: &crate::v4::cx::FileKey,
        access: IoAccess,
        now_seconds: u64,
    ) -> Result<(), Status> {
        let mut tables = self.lock();
        let wanted = if access.modifies() { ACCESS_WRITE } else { ACCESS_READ };
        self.check_shares(&mut tables, file, wanted, 0, now_seconds).map_err(
            |status| match status {
                Status::ShareDenied => Status::Locked,
                other => other,
            },
        )
    }
}
