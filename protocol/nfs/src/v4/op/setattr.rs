//! SETATTR (RFC 8881 §18.30).

use super::{Failure, Operation};
use crate::v4::attrs::number::{TIME_DELEG_ACCESS, TIME_DELEG_MODIFY};
use crate::v4::attrs::settable::{self, Settable};
use crate::v4::cx::{Cx, Object};
use crate::v4::state::io::{IoAccess, open_for_change};
use crate::v4::wire::{Bitmap, Fattr, OpNum, Stateid, Status};
use zgate_store::StoreError::{NoSpace, QuotaExceeded};
use zgate_store::{FileKind, SetAttr, SetTime, Timestamp};
use zgate_xdr::xdr_struct;

xdr_struct! {
    /// SETATTR4args.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Args {
        /// Used when the size changes.
        pub stateid: Stateid,
        /// What to set.
        pub attrs: Fattr,
    }
}

/// The operation; it answers which attributes were set, also when it fails.
pub struct Setattr;

impl Operation for Setattr {
    const NUM: OpNum = OpNum::Setattr;
    type Args = Args;
    type Res = Bitmap;

    async fn run(cx: &mut Cx<'_>, args: Args) -> Result<Bitmap, Failure> {
        set(cx, &args).await.map_err(|status| Failure::with_body(status, &Bitmap::default()))
    }
}

/// Delegated time stamps may be set under the stateid of a delegation that
/// came with them, by its holder (RFC 9754 §5).
fn require_time_delegation(cx: &Cx<'_>, object: &Object, stateid: Stateid) -> Result<(), Status> {
    let stateid = cx.resolve_stateid(stateid)?;
    let tables = cx.server.state.lock();
    let file = object.file_key();
    let (key, _) = cx.server.state.find_state(&tables, cx, stateid, Some(&file))?;
    match tables.delegations.get(&key) {
        Some(delegation) if delegation.attrs => Ok(()),
        _ => Err(Status::BadStateid),
    }
}

/// The holder's clock may be ahead; a file's times are not.
fn not_in_the_future(settable: &mut Settable, now: Timestamp) {
    for time in [&mut settable.set.atime, &mut settable.set.mtime] {
        if let Some(SetTime::At(at)) = time {
            *at = (*at).min(now);
        }
    }
}

/// Whether nothing but times is to be set.
fn only_times(settable: &Settable) -> bool {
    let times =
        SetAttr { atime: settable.set.atime, mtime: settable.set.mtime, ..SetAttr::default() };
    settable.acl.is_none() && settable.set == times
}

async fn set(cx: &Cx<'_>, args: &Args) -> Result<Bitmap, Status> {
    let object = cx.writable_object()?;
    let mut settable = settable::parse(&args.attrs, cx.minor)?;
    let store = &object.export.store;
    let opened = if settable.set.size.is_some() {
        match store.getattr(&object.node).await?.kind {
            FileKind::Regular => {}
            FileKind::Directory => return Err(Status::Isdir),
            _ => return Err(Status::Inval),
        }
        Some(open_for_change(cx, &object, args.stateid, IoAccess::SetSize).await?)
    } else {
        None
    };
    let by_delegation = settable.applied.contains(TIME_DELEG_ACCESS)
        || settable.applied.contains(TIME_DELEG_MODIFY);
    let change = if by_delegation {
        require_time_delegation(cx, &object, args.stateid)?;
        not_in_the_future(&mut settable, cx.now.wall);
        let by = cx.session_client().map(|client| client.0);
        cx.server.state.changes.begin_under_state(&object.file_key(), by)
    } else {
        // In minor 0 the stateid alone says whose delegation need not come
        // back: its holder sets the length under it (RFC 7530 §10.4.4).
        let state = &cx.server.state;
        let named = || state.index.get(args.stateid.into()).map(|handle| handle.core.client);
        let caller = cx.calling_client().or_else(named);
        state.recall_before_change(cx, &object.file_key(), caller)?
    };
    if let Some((value, mask)) = settable.masked_mode {
        let now = store.getattr(&object.node).await?.mode;
        settable.set.mode = Some((now & !mask | value & mask) & 0o7777);
    }
    if !settable.set.is_empty() {
        let open = opened.as_ref().map(|(file, _)| &**file);
        let set = store.setattr(object.who(), &object.node, &settable.set, open);
        match change.in_store(set).await {
            Err(NoSpace | QuotaExceeded) if by_delegation && only_times(&settable) => {
                // docs/spec-exceptions/delegated-times-without-room.md
                return Ok(Bitmap::default());
            }
            set => set.map(drop)?,
        }
    } else if settable.acl.is_none() {
        // Nothing to set: the object must exist all the same.
        store.getattr(&object.node).await?;
    }
    change.in_store(settable::apply_acl(&object, &settable)).await?;
    Ok(settable.applied)
}
