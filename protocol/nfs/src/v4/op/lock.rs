//! LOCK (RFC 8881 §18.10).

use super::Rule;
use crate::limits::{MAX_LOCK_STATES_PER_OPEN, MAX_RANGES_PER_FILE};
use crate::namespace::FileKey;
use crate::v4::failure::Failure;
use crate::v4::request::Cx;
use crate::v4::request::sequenced::sequenced;
use crate::v4::state::State;
use crate::v4::state::open::next_seqid;
use crate::v4::state::shares::{ACCESS_READ, ACCESS_WRITE};
use crate::v4::tables::ids::StateKey;
use crate::v4::tables::open::LockState;
use crate::v4::tables::owner::{LockOwner, LockOwnerId, OwnerName};
use crate::v4::tables::owner_seq::{LastReply, Verdict, answer_bytes};
use crate::v4::tables::quota::Quota;
use crate::v4::tables::ranges::{Held, Range};
use crate::v4::tables::{StateKind, Tables};
use std::sync::Arc;
use zgate_nfs_wire::v4::op::Lock;
use zgate_nfs_wire::v4::op::lock::{Args, Denied, Locker, Res};
use zgate_nfs_wire::v4::{LockType, OwnerBytes, StateOwner, Stateid, Status};

/// LOCK4denied with the conflicting lock.
pub(super) fn denied(held: &Held<LockOwnerId>) -> Failure {
    let denied = Denied {
        offset: held.range.start,
        length: held.range.length(),
        kind: if held.write { LockType::Write } else { LockType::Read },
        owner: StateOwner {
            clientid: held.owner.client,
            owner: OwnerBytes::from(&*held.owner.name),
        },
    };
    Failure::with_body(Status::Denied, &denied)
}

impl Rule for Lock {
    async fn run(cx: &mut Cx<'_>, args: Args) -> Result<Res, Failure> {
        cx.current()?;
        // In minor version 0 its error advances the owner's number, too (RFC 7530 §9.1.7).
        let kind = super::lockt::check_kind(cx).await;
        let result = match args.locker.clone() {
            Locker::New { open_seqid, open, lock_seqid, owner } => {
                let open = cx.resolve_stateid(open)?;
                sequenced(cx, open, open_seqid, async |cx: &mut Cx<'_>| {
                    let result = match kind {
                        Ok(()) => {
                            let attempt = || first_lock(cx, &args, open, lock_seqid, &owner);
                            when_free(cx, attempt).await
                        }
                        Err(failure) => Err(failure),
                    };
                    if let Err(failure) = &result {
                        count_refusal(cx, open, (&owner, lock_seqid), failure);
                    }
                    result
                })
                .await
            }
            Locker::Existing { stateid, seqid } => {
                let stateid = cx.resolve_stateid(stateid)?;
                sequenced(cx, stateid, seqid, async |cx: &mut Cx<'_>| {
                    kind?;
                    when_free(cx, || next_lock(cx, &args, stateid)).await
                })
                .await
            }
        }?;
        cx.current_stateid = Some(result.stateid);
        Ok(result)
    }
}

/// Locks the current file once state being taken from other clients is
/// released.
async fn when_free(
    cx: &Cx<'_>,
    attempt: impl FnMut() -> Result<Res, Failure>,
) -> Result<Res, Failure> {
    let file = cx.object(Status::BadStateid)?.file_key();
    cx.server.state.when_settled(&file, attempt).await
}

/// Checks all conditions that do not depend on other locks.
fn check(cx: &Cx<'_>, args: &Args, tables: &Tables, open: StateKey) -> Result<Range, Status> {
    let range = Range::new(args.offset, args.length).ok_or(Status::Inval)?;
    let open = tables.opens.get(&open).ok_or(Status::BadStateid)?;
    let needed = if args.kind.is_write() { ACCESS_WRITE } else { ACCESS_READ };
    if open.access & needed == 0 {
        return Err(Status::Openmode);
    }
    let client = tables.clients.get(&open.client).ok_or(Status::Expired)?;
    let grace = cx.server.state.grace.active();
    if args.reclaim {
        let open_to_it = grace && client.may_reclaim && !client.reclaim_complete;
        if !open_to_it {
            return Err(Status::NoGrace);
        }
        cx.server.state.grace.reclaiming(cx.now.seconds());
        return Ok(range);
    }
    // RFC 8881 §18.51.3: it may still have something to take back.
    let may_reclaim = cx.minor > 0 && !client.reclaim_complete;
    if grace || may_reclaim { Err(Status::Grace) } else { Ok(range) }
}

fn first_lock(
    cx: &Cx<'_>,
    args: &Args,
    open: Stateid,
    lock_seqid: u32,
    owner: &StateOwner,
) -> Result<Res, Failure> {
    let file = cx.object(Status::BadStateid)?.file_key();
    let state = &cx.server.state;
    let mut tables = state.lock();
    let (open_key, kind) = state.find_state(&tables, cx.requester(), open, Some(&file))?;
    if kind != StateKind::Open {
        return Err(Status::BadStateid.into());
    }
    let client = tables.opens.get(&open_key).map(|o| o.client).ok_or(Status::BadStateid)?;
    if cx.minor == 0 && owner.clientid != client {
        return Err(Status::BadStateid.into());
    }
    let name: OwnerName = Arc::from(owner.owner.0.as_slice());
    let id = LockOwnerId { client, export: file.export, name };
    if cx.minor == 0 {
        check_first_seqid(&tables, &id, lock_seqid)?;
    }
    let range = check(cx, args, &tables, open_key)?;
    check_room(cx, &mut tables, &id, open_key, &file)?;
    grant(cx, args, &mut tables, &file, &id, range)?;
    let key = enter_lock_state(state, &mut tables, open_key, &id, &file)?;
    tables.count_ranges(key);
    if cx.minor == 0 {
        record_first_seqid(cx, &mut tables, &id, key, lock_seqid);
    }
    let lock = tables.locks.get(&key).ok_or(Status::BadStateid)?;
    Ok(Res { stateid: key.stateid(lock.seqid) })
}

/// Checks that the client may have one more lock stateid, and one more owner if
/// it is new.
fn check_room(
    cx: &Cx<'_>,
    tables: &mut Tables,
    id: &LockOwnerId,
    open: StateKey,
    file: &FileKey,
) -> Result<(), Status> {
    let client = tables.clients.get(&id.client).ok_or(Status::StaleClientid)?;
    let is_new = !client.lock_owners.contains_key(&id.name);
    if is_new {
        client.room_for_owner()?;
    }
    let of_open = (id.clone(), open);
    let states = tables.files.get(&file.id).map(|file| &file.lock_states);
    let known = states.is_some_and(|states| states.contains_key(&of_open));
    let made = tables.opens.get(&open).map_or(0, |open| open.locks.len());
    if !known && made >= MAX_LOCK_STATES_PER_OPEN {
        return Err(client.too_much());
    }
    client.room_for_state()?;
    let (state, now) = (&cx.server.state, cx.now.seconds());
    if is_new {
        state.need_room(tables, id.client, (Quota::Owners, 1), now)?;
    }
    state.need_room(tables, id.client, (Quota::LockStates, 1), now)
}

/// A known lock owner may not start again with another number (RFC 7530
/// §16.10.5).
fn check_first_seqid(tables: &Tables, id: &LockOwnerId, seqid: u32) -> Result<(), Status> {
    let client = tables.clients.get(&id.client).ok_or(Status::StaleClientid)?;
    let Some(owner) = client.lock_owners.get(&id.name) else { return Ok(()) };
    match owner.seq.judge(seqid) {
        Verdict::Run => Ok(()),
        _ => Err(Status::BadSeqid),
    }
}

fn record_first_seqid(
    cx: &Cx<'_>,
    tables: &mut Tables,
    id: &LockOwnerId,
    key: StateKey,
    seqid: u32,
) {
    let version = tables.locks.get(&key).map_or(1, |lock| lock.seqid);
    let reply = answer_bytes(&Ok(Res { stateid: key.stateid(version) }));
    let current = cx.current.as_ref().map(crate::v4::request::Current::handle);
    if let Some(client) = tables.clients.get_mut(&id.client)
        && let Some(owner) = client.lock_owners.get_mut(&id.name)
    {
        owner.seq.record(seqid, LastReply { op: cx.op, reply, current });
    }
}

/// Counts the refusal of an owner's first lock of a file. In minor version 0 the number of a lock
/// owner that is known by other locks advances with that of the open's owner (RFC 7530 §9.1.7).
fn count_refusal(
    cx: &Cx<'_>,
    open: Stateid,
    (owner, seqid): (&StateOwner, u32),
    failure: &Failure,
) {
    if cx.minor > 0 {
        return;
    }
    let tables = &mut *cx.server.state.lock();
    // It is the owner's own client that counts.
    let Some(open) = tables.opens.get(&StateKey::from(open)) else { return };
    let Some(client) = tables.clients.get_mut(&open.client) else { return };
    if client.id != owner.clientid {
        return;
    }
    if let Some(known) = client.lock_owners.get_mut(owner.owner.0.as_slice())
        && known.seq.judge(seqid) == Verdict::Run
    {
        let current = cx.current.as_ref().map(crate::v4::request::Current::handle);
        known.seq.record(seqid, LastReply { op: cx.op, reply: failure.clone(), current });
    }
}

fn next_lock(cx: &Cx<'_>, args: &Args, stateid: Stateid) -> Result<Res, Failure> {
    let file = cx.object(Status::BadStateid)?.file_key();
    let state = &cx.server.state;
    let mut tables = state.lock();
    let (key, kind) = state.find_state(&tables, cx.requester(), stateid, Some(&file))?;
    if kind != StateKind::Lock {
        return Err(Status::BadStateid.into());
    }
    let lock = tables.locks.get(&key).ok_or(Status::BadStateid)?;
    let (open, owner) = (lock.open, lock.owner.clone());
    let range = check(cx, args, &tables, open)?;
    grant(cx, args, &mut tables, &file, &owner, range)?;
    tables.count_ranges(key);
    bump(state, &mut tables, key).map(|stateid| Res { stateid }).map_err(Failure::from)
}

/// Increments the seqid of a lock stateid.
pub(super) fn bump(state: &State, tables: &mut Tables, key: StateKey) -> Result<Stateid, Status> {
    let lock = tables.locks.get_mut(&key).ok_or(Status::BadStateid)?;
    lock.seqid = next_seqid(lock.seqid);
    let core = &tables.opens.get(&lock.open).ok_or(Status::BadStateid)?.core;
    state.index.publish(key, lock.seqid, core);
    Ok(key.stateid(lock.seqid))
}

/// Most ranges that a lock adds: it may split one in two and lie between them.
const RANGES_PER_LOCK: usize = 2;

fn grant(
    cx: &Cx<'_>,
    args: &Args,
    tables: &mut Tables,
    file: &FileKey,
    owner: &LockOwnerId,
    range: Range,
) -> Result<(), Failure> {
    let write = args.kind.is_write();
    let client = tables.clients.get(&owner.client).ok_or(Status::StaleClientid)?;
    client.may_hold_state()?;
    let (state, now) = (&cx.server.state, cx.now.seconds());
    state.need_room(tables, owner.client, (Quota::Ranges, RANGES_PER_LOCK), now)?;
    let mut given_up = None;
    loop {
        let ranges = &mut tables.files.entry(file.id).or_default().ranges;
        let Some(held) = ranges.conflict(&range, write, owner).cloned() else {
            if ranges.len() >= MAX_RANGES_PER_FILE {
                let status = if cx.minor == 0 { Status::Resource } else { Status::Delay };
                return Err(status.into());
            }
            State::check_settled(tables, file)?;
            let ranges = &mut tables.files.entry(file.id).or_default().ranges;
            ranges.set(range, write, owner);
            return Ok(());
        };
        if state.give_up_if_expired(tables, held.owner.client, now) {
            State::check_removed(tables, held.owner.client)?;
            // The tables are locked: a client is looked at once.
            if given_up.replace(held.owner.client) == Some(held.owner.client) {
                return Err(Status::Delay.into());
            }
            continue;
        }
        if args.reclaim {
            return Err(Status::ReclaimConflict.into());
        }
        if args.kind.waits() && cx.minor > 0 {
            let fh = cx.current()?.handle().to_fh();
            State::add_waiter(tables, (file.id, fh), owner, (range, args.kind), now);
        }
        return Err(denied(&held));
    }
}

/// The lock owner's stateid for the open; created if there is none.
fn enter_lock_state(
    state: &State,
    tables: &mut Tables,
    open: StateKey,
    id: &LockOwnerId,
    file: &FileKey,
) -> Result<StateKey, Status> {
    let of_open = (id.clone(), open);
    let known = tables.files.get(&file.id).and_then(|file| file.lock_states.get(&of_open)).copied();
    let client = tables.clients.get_mut(&id.client).ok_or(Status::StaleClientid)?;
    let owner = client.lock_owners.entry(Arc::clone(&id.name)).or_insert_with(|| LockOwner {
        charge: Some(client.host.charge(Quota::Owners, 1)),
        ..LockOwner::default()
    });
    owner.idle = false;
    if let Some(key) = known {
        bump(state, tables, key)?;
        return Ok(key);
    }
    let key = state.ids.state();
    owner.states.insert(key);
    client.held.locks += 1;
    let charge = client.host.charge(Quota::LockStates, 1);
    let ranges = client.host.charge(Quota::Ranges, 0);
    let record = tables.opens.get_mut(&open).ok_or(Status::BadStateid)?;
    record.locks.insert(key);
    state.index.publish(key, 1, &record.core);
    tables.files.entry(file.id).or_default().lock_states.insert(of_open, key);
    let lock = LockState { key, seqid: 1, owner: id.clone(), open, file: *file, charge, ranges };
    tables.locks.insert(key, lock);
    Ok(key)
}
