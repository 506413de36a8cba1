//! From a stateid to the open file for READ, WRITE and similar operations.

use super::Cx;
use crate::changes::ChangeGuard;
use crate::namespace::Object;
use crate::v4::state::shares::IoAccess;
use crate::v4::state::stateids::{check_seqid, is_special};
use crate::v4::tables::index::{IoCore, IoHandle};
use crate::v4::tables::owner::FileClient;
use crate::v4::tables::pending_work::WorkGuard;
use std::ops::Deref;
use std::sync::Arc;
use zgate_nfs_wire::v4::{Stateid, Status};
use zgate_store::file_store::{OpenAccess, OpenFile};

/// An open file for one operation. While it is held, a change under a stateid
/// counts as in progress: the state of the stateid is not granted to others.
///
/// Requests are not dropped during a call to the backend: they run to
/// completion even if the connection ends.
#[derive(Clone)]
pub struct IoFile {
    file: OpenFile,
    _guard: Option<WorkGuard>,
}

impl IoFile {
    fn new(file: OpenFile, guard: Option<WorkGuard>) -> Self {
        Self { file, _guard: guard }
    }
}

impl Deref for IoFile {
    type Target = OpenFile;

    fn deref(&self) -> &OpenFile {
        &self.file
    }
}

/// The open file for an I/O operation on `object` under `stateid`, to be held
/// until the backend has completed it.
///
/// # Errors
/// The errors of RFC 8881 §18.22.4 and §18.32.4 for the stateid, share, grace
/// and delegation rules, and the store's errors for anonymous access.
pub async fn open_for_io(
    cx: &Cx<'_>,
    object: &Object,
    stateid: Stateid,
    access: IoAccess,
) -> Result<IoFile, Status> {
    let stateid = cx.resolve_stateid(stateid)?;
    if stateid == Stateid::ANONYMOUS || stateid == Stateid::READ_BYPASS {
        let file = open_anonymous(cx, object, access).await?;
        return Ok(IoFile::new(file, None));
    }
    if is_special(stateid) {
        return Err(Status::BadStateid);
    }
    let handle = find(cx, object, stateid)?;
    if access.modifies() {
        return begin_change(cx, object, &handle.core, stateid, access).await;
    }
    open_for_read(object, &handle.core).await.map(|file| IoFile::new(file, None))
}

async fn begin_change(
    cx: &Cx<'_>,
    object: &Object,
    core: &IoCore,
    stateid: Stateid,
    access: IoAccess,
) -> Result<IoFile, Status> {
    let Some((granted, guard)) = core.begin_change() else {
        // It was revoked after the lookup.
        let state = &cx.server.state;
        return Err(state.why_unknown(&state.lock(), cx.requester(), stateid));
    };
    let Some(granted) = granted else { return Err(Status::Openmode) };
    if granted.uid == object.who().uid {
        return Ok(IoFile::new(granted.file, Some(guard)));
    }
    let stateless = access != IoAccess::SetSize;
    let want = OpenAccess { read: false, write: true, stateless, read_by_execute: false };
    let file = open_for_other(object, want).await?;
    Ok(IoFile::new(file, Some(guard)))
}

async fn open_for_read(object: &Object, core: &IoCore) -> Result<OpenFile, Status> {
    let granted = core.for_read();
    if granted.is_none() && core.writer().is_none() {
        return Err(Status::Openmode);
    }
    if let Some(own) = granted.filter(|granted| granted.uid == object.who().uid) {
        return Ok(own.file);
    }
    // Clients with an open for writing only read whole pages around their
    // writes; RFC 8881 §18.22.3 lets the server allow it.
    let want = OpenAccess { read: true, write: false, stateless: true, read_by_execute: false };
    open_for_other(object, want).await
}

/// Like [`open_for_io`], for an operation that changes the object; also returns
/// the change, which is counted from before the look for delegations until the
/// backend has completed it.
///
/// # Errors
/// As [`open_for_io`].
pub async fn open_for_change(
    cx: &Cx<'_>,
    object: &Object,
    stateid: Stateid,
    access: IoAccess,
) -> Result<(IoFile, ChangeGuard), Status> {
    let (state, file) = (&cx.server.state, object.file_key());
    let resolved = cx.resolve_stateid(stateid)?;
    // In minor version 0 only the stateid identifies the client of the change.
    let named = || state.index.get(resolved.into()).map(|handle| handle.core.client);
    let by = cx.session_client().or_else(named);
    let by = by.map(|client| FileClient::of(client, &file).number());
    let changing = if is_special(resolved) {
        state.changes.begin(&file.id, by, cx.now.seconds())
    } else {
        state.changes.begin_under_state(&file.id, by)
    };
    Ok((open_for_io(cx, object, stateid, access).await?, changing))
}

fn find(cx: &Cx<'_>, object: &Object, stateid: Stateid) -> Result<Arc<IoHandle>, Status> {
    let state = &cx.server.state;
    let Some(handle) = state.index.get(stateid.into()) else {
        return Err(state.why_unknown(&state.lock(), cx.requester(), stateid));
    };
    if handle.core.lease.revoked() {
        // A stateid of a removed client; these are removed in slices.
        return Err(state.why_unknown(&state.lock(), cx.requester(), stateid));
    }
    match cx.session_client() {
        Some(client) if client != handle.core.client => return Err(Status::BadStateid),
        Some(_) => {}
        None => cx.runs_for(&handle.core.lease),
    }
    if !handle.core.is_of(object) {
        return Err(Status::BadStateid);
    }
    check_seqid(cx.minor, stateid.seqid, handle.seqid())?;
    Ok(handle)
}

/// Opens for a stateid used by another user than the one who opened it: share
/// rules apply to the stateid, access rights to the user (RFC 8881 §8.2.5 warns
/// of stolen stateids; clients also write dirty pages back this way).
async fn open_for_other(object: &Object, want: OpenAccess) -> Result<OpenFile, Status> {
    Ok(object.export.store.open(object.who(), &object.node, want).await?)
}

async fn open_anonymous(
    cx: &Cx<'_>,
    object: &Object,
    access: IoAccess,
) -> Result<OpenFile, Status> {
    let state = &cx.server.state;
    if state.grace.delays(cx.now.seconds()) {
        return Err(Status::Grace);
    }
    let file = object.file_key();
    let caller = cx.session_client();
    let attempt = || {
        let (mut tables, now) = (state.lock(), cx.now.seconds());
        state.recall_standing(&mut tables, &file, access.modifies(), caller, now)?;
        Ok(state.check_anonymous(&mut tables, &file, access, now)?)
    };
    state.when_settled(&file, attempt).await.map_err(|no| no.status)?;
    let want = OpenAccess {
        read: !access.modifies(),
        write: access.modifies(),
        stateless: access != IoAccess::SetSize,
        read_by_execute: false,
    };
    Ok(object.export.store.open(object.who(), &object.node, want).await?)
}
