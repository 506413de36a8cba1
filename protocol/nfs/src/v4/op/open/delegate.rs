//! Decides whether an OPEN grants a delegation (RFC 8881 §10.4, §18.16.3).

use super::target::Target;
use crate::namespace::FileKey;
use crate::v4::request::Cx;
use crate::v4::state::delegation::NewDelegation;
use crate::v4::tables::delegation::GrantTimes;
use crate::v4::tables::ids::StateKey;
use crate::v4::tables::session::SlotUse;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use zgate_nfs_wire::v4::ClientId;
use zgate_nfs_wire::v4::op::open::{
    Args, CANCELLED, CONTENTION, Claim, Delegated, NOT_SUPP_DOWNGRADE, NOT_SUPP_UPGRADE,
    NOT_WANTED, RESOURCE, WANT_CANCEL, WANT_MASK, WANT_NO_DELEGATION, WANT_READ, WANT_TIMESTAMPS,
    WANT_WRITE,
};
use zgate_store::Attr;
use zgate_store::file_store::{OpenAccess, OpenFile};

/// Size to which a file may grow under a write delegation before the client
/// must ask: unlimited, as WRITE reports missing space.
const LIMIT_BYTES: u64 = u64::MAX;

/// Bits of a mode that let the owner read and write.
const OWNER_READS: u32 = 0o400;
const OWNER_WRITES: u32 = 0o200;

/// Decides, and grants the delegation. `known` becomes the attributes of the file if they are
/// read here: after the grant, if there is one. It becomes `None` if the grant fails because of
/// others, who may have changed the file.
pub(super) async fn decide(
    cx: &Cx<'_>,
    args: &Args,
    client: ClientId,
    (target, file): (&Target, FileKey),
    known: &mut Option<Attr>,
) -> Delegated {
    let want = args.access & WANT_MASK;
    // Who asks is told why there is none, whatever the claim (RFC 8881 §18.16.3).
    let none = |why: u32| {
        if cx.minor > 0 && want != 0 { Delegated::NoneBecause(why) } else { Delegated::None }
    };
    match want {
        WANT_NO_DELEGATION => return none(NOT_WANTED),
        WANT_CANCEL => return none(CANCELLED),
        _ => {}
    }
    let reclaimed = match args.claim {
        Claim::Previous(kind) => Some(kind),
        Claim::Null(_) | Claim::Fh => None,
        // It opens under one that it has.
        _ => return none(why_used(cx, &file, client, want)),
    };
    let write = match (reclaimed, want) {
        // It claims none.
        (Some(0 | 3), _) => return none(RESOURCE),
        (Some(kind), _) => matches!(kind, 2 | 5),
        (None, WANT_READ) => false,
        (None, WANT_WRITE) => true,
        (None, _) => args.access & 2 != 0,
    };
    if !target.object.export.delegations {
        return none(RESOURCE);
    }
    // What a client reports as held it gets, if only to return it: it may have written under
    // it. It is called when it has shown that it can be (RFC 7530 §10.2.1, RFC 8881 §10.2.1).
    let may_stay = callback_path_up(cx, client);
    if !may_stay && reclaimed.is_none() {
        return none(RESOURCE);
    }
    let now = cx.now.seconds();
    let changes = &cx.server.state.changes;
    let begun = changes.begun(&file.id);
    if !cx.server.state.may_delegate(&cx.server.state.lock(), &file, client, write, now) {
        return none(why_used(cx, &file, client, want));
    }
    let object = &target.object;
    if write && !object.entry.writable {
        return none(RESOURCE);
    }
    // The client will decide about later opens itself: it must have all the
    // rights of the delegation.
    let rights = OpenAccess { read: true, write, stateless: false, read_by_execute: false };
    let opened = match opened_at_creation(target, write) {
        Some(opened) => Ok(opened),
        None => object.export.store.open(object.who(), &object.node, rights).await,
    };
    let Ok(opened) = opened else { return none(RESOURCE) };
    // Attributes read before may precede a change that has ended in the
    // meantime. Those of a new file stand until it is read after the grant.
    let read = match target.attr {
        Some(attr) => Ok(attr),
        None => object.export.store.getattr(&object.node).await,
    };
    let Ok(attr) = read else { return none(RESOURCE) };
    *known = Some(attr);
    let wanted = cx.minor > 0 && args.access & WANT_TIMESTAMPS != 0;
    let attrs = wanted && object.export.gives_delegated_times();
    let new = NewDelegation {
        client,
        object,
        file,
        write,
        attrs,
        times: GrantTimes { now: cx.now.wall, mtime: attr.mtime },
        change: attr.change,
        opened: &opened,
        granted_by: cx.slot.as_ref().map(SlotUse::request),
    };
    let (key, recall) = match grant(cx, &new, begun, (reclaimed.is_some(), may_stay)) {
        Ok(granted) => granted,
        Err(why) => {
            if why == CONTENTION {
                *known = None;
            }
            return none(why);
        }
    };
    // A change under an open that was closed meanwhile is none of those that `begun` counts, and
    // `attr` may precede it. The client trusts what it is told from now on.
    *known = object.export.store.getattr(&object.node).await.ok();
    if let Some(attr) = known {
        cx.server.state.note_attributes(key, attr);
    }
    let stateid = key.stateid(1);
    if write {
        Delegated::Write { stateid, recall, limit_bytes: LIMIT_BYTES, attrs }
    } else {
        Delegated::Read { stateid, recall, attrs }
    }
}

/// The reason for no delegation of a file that is used already: by others, or under a delegation
/// of the client itself, whose kind does not change (RFC 8881 §18.16.3).
fn why_used(cx: &Cx<'_>, file: &FileKey, client: ClientId, want: u32) -> u32 {
    match (cx.server.state.own_delegation_writes(file, client), want) {
        (Some(false), WANT_WRITE) => NOT_SUPP_UPGRADE,
        (Some(true), WANT_READ) => NOT_SUPP_DOWNGRADE,
        _ => CONTENTION,
    }
}

/// Grants the delegation, unless the file is used or has been changed since `begun` was read.
/// `may_stay`: its client can be called. Returns its key, and whether it is recalled at once; or
/// why there is none.
fn grant(
    cx: &Cx<'_>,
    new: &NewDelegation<'_>,
    begun: u64,
    (is_reclaimed, may_stay): (bool, bool),
) -> Result<(StateKey, bool), u32> {
    let (state, now) = (&cx.server.state, cx.now.seconds());
    let (file, client) = (new.file, new.client);
    let (in_effect, mut tables) = cx.lock_with_exports();
    if !cx.is_in_effect(&in_effect, new.object) {
        return Err(RESOURCE);
    }
    // A delegation that is reclaimed too late may have been in the way of others.
    let too_late = is_reclaimed && !state.grace.active();
    let unchanged = state.changes.begun(&file.id) == begun;
    if too_late || !unchanged || !state.may_delegate(&tables, &file, client, new.write, now) {
        return Err(CONTENTION);
    }
    let key = state.enter_delegation(&mut tables, new).ok_or(RESOURCE)?;
    // Its client may have cached what was there before, or cannot be called. It returns it as one
    // that is recalled: what it has written under it, and its opens and locks, are not lost.
    let is_replaced = is_reclaimed && tables.replaced_in_grace.contains(&new.object.export.id);
    let recall = is_replaced || is_reclaimed && !may_stay;
    if recall {
        state.begin_recall(&mut tables, key, now);
    }
    if recall
        && !is_replaced
        && let Some(delegation) = tables.delegations.get_mut(&key)
    {
        delegation.returns_after_grace = true;
    }
    Ok((key, recall))
}

/// The file as this OPEN has created it, if its mode gives its creator the rights of the
/// delegation: the owner's bits are the owner's rights, also beside an ACL. A creator without
/// them has the file open nevertheless.
fn opened_at_creation(target: &Target, write: bool) -> Option<OpenFile> {
    let (opened, attr) = (target.opened.as_ref()?, target.attr.as_ref()?);
    let needed = if write { OWNER_READS | OWNER_WRITES } else { OWNER_READS };
    let is_theirs = attr.uid == target.object.who().uid && attr.mode & needed == needed;
    is_theirs.then(|| Arc::clone(opened))
}

fn callback_path_up(cx: &Cx<'_>, client: ClientId) -> bool {
    let tables = cx.server.state.lock();
    let Some(record) = tables.clients.get(&client) else { return false };
    if cx.minor == 0 {
        let Some(callback) = &record.callback else { return false };
        let is_up = callback.up.load(Ordering::Acquire);
        if !is_up {
            cx.server.state.back.probe_again(&record.probe, callback, cx.now.seconds());
        }
        return is_up;
    }
    let mut paths = record.sessions.iter().flat_map(|session| session.back_paths());
    paths.any(|connection| cx.server.runtime.connected(connection))
}
