//! SETATTR (RFC 8881 §18.30).

use super::{Failure, Operation};
use crate::v4::attrs::delegated_times::{Measure, TimesGiven};
use crate::v4::attrs::number::{TIME_DELEG_ACCESS, TIME_DELEG_MODIFY};
use crate::v4::attrs::settable::{self, Settable};
use crate::v4::cx::{Cx, Object};
use crate::v4::state::io::{IoAccess, open_for_change};
use crate::v4::wire::{Bitmap, Fattr, OpNum, Stateid, Status};
use zgate_store::StoreError::{AccessDenied, NoSpace, NotPermitted, QuotaExceeded};
use zgate_store::{Caller, FileKind, SetAttr};
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
/// came with them, by its holder (RFC 9754 §5). Returns where times stood when
/// it was given, and whether this user was given it for writing.
fn time_delegation(
    cx: &Cx<'_>,
    object: &Object,
    stateid: Stateid,
) -> Result<(TimesGiven, bool), Status> {
    let stateid = cx.resolve_stateid(stateid)?;
    let tables = cx.server.state.lock();
    let file = object.file_key();
    let (key, _) = cx.server.state.find_state(&tables, cx, stateid, Some(&file))?;
    match tables.delegations.get(&key) {
        // One given before the export's switch was turned off counts.
        Some(held) if held.attrs => {
            Ok((held.times, held.write && held.core.uid == object.who().uid))
        }
        _ if !object.export.gives_delegated_times() => Err(Status::Attrnotsupp),
        _ => Err(Status::BadStateid),
    }
}

/// Reduces delegated times to those that are to be written, and says as whom.
async fn settle_times(
    cx: &Cx<'_>,
    object: &Object,
    stateid: Stateid,
    settable: &mut Settable,
) -> Result<Caller, Status> {
    let (given, writer) = time_delegation(cx, object, stateid)?;
    let present = object.export.store.getattr(&object.node).await?;
    let measure = Measure { present: &present, given, now: cx.now.wall };
    measure.reduce(object.who(), &mut settable.set);
    // Who writes moves a file's times, without a right to set them.
    let moves = writer && !measure.is_owner(object.who()) && only_times(settable);
    Ok(if moves { Caller::root() } else { object.who().clone() })
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
    let mut who = object.who().clone();
    let change = if by_delegation {
        let by = cx.session_client().map(|client| client.0);
        let change = cx.server.state.changes.begin_under_state(&object.file_key(), by);
        who = settle_times(cx, &object, args.stateid, &mut settable).await?;
        change
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
        let set = store.setattr(&who, &object.node, &settable.set, open);
        match change.in_store(set).await {
            Err(NoSpace | QuotaExceeded | NotPermitted | AccessDenied)
                if by_delegation && only_times(&settable) =>
            {
                // docs/spec-exceptions/delegated-times.md
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
