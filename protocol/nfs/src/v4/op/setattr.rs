//! SETATTR (RFC 8881 §18.30).

use super::Rule;
use crate::namespace::Object;
use crate::v4::attrs::delegated_times::ReferenceTimes;
use crate::v4::attrs::settable::{self, AclOf, Settable, Subject};
use crate::v4::failure::Failure;
use crate::v4::request::Cx;
use crate::v4::request::io::open_for_change;
use crate::v4::state::shares::IoAccess;
use crate::v4::tables::delegation::GrantTimes;
use crate::v4::tables::owner::FileClient;
use zgate_nfs_wire::v4::attr::{ACL, SIZE, TIME_DELEG_ACCESS, TIME_DELEG_MODIFY};
use zgate_nfs_wire::v4::op::Setattr;
use zgate_nfs_wire::v4::op::setattr::Args;
use zgate_nfs_wire::v4::{Bitmap, Stateid, Status};
use zgate_store::StoreError::{AccessDenied, NoSpace, NotPermitted, QuotaExceeded};
use zgate_store::{Attr, Caller, FileKind, SetAttr};

impl Rule for Setattr {
    async fn run(cx: &mut Cx<'_>, args: Args) -> Result<Bitmap, Failure> {
        let mut done = Bitmap::default();
        let set = set(cx, &args, &mut done).await;
        let (applied, attr) = set.map_err(|status| Failure::with_body(status, &done))?;
        cx.looked_up = attr;
        Ok(applied)
    }
}

/// Delegated time stamps may be set under the stateid of a delegation that
/// includes them, by its holder (RFC 9754 §5). Returns the times at which it
/// was granted, and whether it was granted to this user for writing.
fn time_delegation(
    cx: &Cx<'_>,
    object: &Object,
    stateid: Stateid,
) -> Result<(GrantTimes, bool), Status> {
    let stateid = cx.resolve_stateid(stateid)?;
    let tables = cx.server.state.lock();
    let file = object.file_key();
    let (key, _) = cx.server.state.find_state(&tables, cx.requester(), stateid, Some(&file))?;
    match tables.delegations.get(&key) {
        // A delegation granted before the export's option was turned off is
        // valid.
        Some(held) if held.attrs => Ok((held.times, held.core.writer() == Some(object.who().uid))),
        _ if !object.export.gives_delegated_times() => Err(Status::Attrnotsupp),
        _ => Err(Status::BadStateid),
    }
}

/// Reduces delegated times to those that must be written, and returns the
/// identity for writing them.
async fn settle_times(
    cx: &Cx<'_>,
    object: &Object,
    stateid: Stateid,
    settable: &mut Settable,
) -> Result<Caller, Status> {
    let (given, writer) = time_delegation(cx, object, stateid)?;
    let present = object.export.store.getattr(&object.node).await?;
    let reference = ReferenceTimes { present: &present, given, now: cx.now.wall };
    reference.reduce(object.who(), &mut settable.set);
    // A writer changes a file's times without the right to set them.
    let moves = writer && !reference.is_owner(object.who()) && only_times(settable);
    Ok(if moves { Caller::root() } else { object.who().clone() })
}

/// True if only times are to be set.
fn only_times(settable: &Settable) -> bool {
    let times =
        SetAttr { atime: settable.set.atime, mtime: settable.set.mtime, ..SetAttr::default() };
    settable.acl.is_none() && settable.set == times
}

/// Returns the attributes that were set, and those of the object afterwards, if they are known.
/// After an error, those in `done` were set nevertheless (RFC 8881 §18.30.3).
async fn set(
    cx: &Cx<'_>,
    args: &Args,
    done: &mut Bitmap,
) -> Result<(Bitmap, Option<Attr>), Status> {
    let object = cx.writable_object()?;
    let store = &object.export.store;
    let kind = if args.attrs.mask.contains(ACL) || args.attrs.mask.contains(SIZE) {
        Some(store.getattr(&object.node).await?.kind)
    } else {
        None
    };
    let acl = match kind {
        Some(FileKind::Directory) => AclOf::Directory,
        Some(FileKind::Symlink) => AclOf::Link,
        _ => AclOf::Other,
    };
    let subject = Subject::Existing(acl);
    let mut settable = settable::read(cx, &object, &args.attrs, subject).await?;
    let opened = if settable.set.size.is_some() {
        match kind {
            Some(FileKind::Regular) => {}
            Some(FileKind::Directory) => return Err(Status::Isdir),
            _ => return Err(Status::Inval),
        }
        Some(open_for_change(cx, &object, args.stateid, IoAccess::SetSize).await?)
    } else {
        None
    };
    let by_delegation = settable.applied.contains(TIME_DELEG_ACCESS)
        || settable.applied.contains(TIME_DELEG_MODIFY);
    let mut who = object.who().clone();
    let change = if by_delegation {
        let file = object.file_key();
        let by = cx.session_client().map(|client| FileClient::of(client, &file).number());
        let change = cx.server.state.changes.begin_under_state(&file.id, by);
        who = settle_times(cx, &object, args.stateid, &mut settable).await?;
        change
    } else {
        // In minor version 0 only the stateid identifies the delegation that
        // need not be recalled: its holder sets the size under it (RFC 7530
        // §10.4.4).
        let state = &cx.server.state;
        let named = || state.index.get(args.stateid.into()).map(|handle| handle.core.client);
        let caller = cx.calling_client().or_else(named);
        state.recall_before_change(&object.file_key(), caller, cx.now.seconds())?
    };
    if let Some((value, mask)) = settable.masked_mode {
        let now = store.getattr(&object.node).await?.mode;
        settable.set.mode = Some((now & !mask | value & mask) & 0o7777);
    }
    let mut attr = None;
    if !settable.set.is_empty() {
        let open = opened.as_ref().map(|(file, _)| &**file);
        let set = store.setattr(&who, &object.node, &settable.set, open);
        match change.in_store(set).await {
            Err(NoSpace | QuotaExceeded | NotPermitted | AccessDenied)
                if by_delegation && only_times(&settable) =>
            {
                // See docs/spec-exceptions/delegated-times.md.
                return Ok((Bitmap::default(), None));
            }
            set => attr = Some(set?),
        }
    } else if settable.acl.is_none() {
        // Nothing to set: the object must exist nevertheless.
        attr = Some(store.getattr(&object.node).await?);
    }
    *done = settable.applied.clone();
    done.clear(ACL);
    change.in_store(settable::apply_acl(&object, &settable)).await?;
    // An ACL changes the mode.
    Ok((settable.applied, attr.filter(|_| settable.acl.is_none())))
}
