//! OPEN (RFC 8881 §18.16, RFC 7530 §16.16).

mod delegate;
mod target;

use super::Rule;
use crate::changes::ChangeGuard;
use crate::namespace::{FileKey, Object};
use crate::v4::failure::Failure;
use crate::v4::request::Cx;
use crate::v4::request::sequenced::SeqOwner;
use crate::v4::state::State;
use crate::v4::state::open::{Entered, NewOpen};
use crate::v4::state::shares::{ACCESS_READ, ACCESS_WRITE};
use crate::v4::tables::owner::{FileClient, OpenOwner, OwnerName};
use crate::v4::tables::quota::Quota;
use std::sync::Arc;
use target::Target;
use zgate_nfs_wire::v4::op::Open;
use zgate_nfs_wire::v4::op::open::{
    Args, Claim, Delegated, How, RESULT_CONFIRM, RESULT_LOCKTYPE_POSIX, RESULT_MAY_NOTIFY_LOCK,
    Res, WANT_CANCEL, WANT_MASK,
};
use zgate_nfs_wire::v4::{ClientId, Status};
use zgate_store::SetAttr;
use zgate_store::file_store::{OpenAccess, OpenFile};

/// Bits of share_access in minor version 1 and later: access, the WANT types,
/// the two signal bits, RFC 9754's WANT_DELEG_TIMESTAMPS and
/// WANT_OPEN_XOR_DELEGATION.
const KNOWN_ACCESS_BITS: u32 = 0x3 | 0xff00 | 0x1_0000 | 0x2_0000 | 0x10_0000 | 0x20_0000;

impl Rule for Open {
    async fn run(cx: &mut Cx<'_>, args: Args) -> Result<Res, Failure> {
        let server = cx.server;
        if cx.minor > 0 {
            let client = cx.session_client().ok_or(Status::OpNotInSession)?;
            let owner: OwnerName = Arc::from(args.owner.owner.0.as_slice());
            server.state.ensure_owner(client, &owner, true, cx.now.seconds())?;
            return open(cx, &args, client, &owner).await;
        }
        if is_of_later_minors(&args) {
            return Err(Status::Badxdr.into());
        }
        let client = args.owner.clientid;
        cx.open_client = Some(client);
        let owner: OwnerName = Arc::from(args.owner.owner.0.as_slice());
        let seq_owner = SeqOwner::Open(client, Arc::clone(&owner));
        let lease = {
            let mut tables = server.state.lock();
            let record = server.state.minor_zero_client(&mut tables, client, cx.now.seconds())?;
            Arc::clone(&record.lease)
        };
        cx.runs_for(&lease);
        let judged = server.state.begin_sequenced(cx, &seq_owner, args.seqid);
        if let Err(failure) = judged {
            // An unconfirmed owner may start again with any number (RFC 7530
            // §16.16.5); a repeated first OPEN is still a replay.
            let unconfirmed = !server.state.owner_confirmed(client, &owner);
            if failure.status != Status::BadSeqid || !unconfirmed {
                return Err(failure);
            }
        }
        server.state.restart_unconfirmed(client, &owner, cx.now.seconds());
        server.state.ensure_owner(client, &owner, false, cx.now.seconds())?;
        let result = open(cx, &args, client, &owner).await;
        server.state.end_sequenced(cx, &seq_owner, args.seqid, &result);
        result
    }
}

impl State {
    /// Creates the open owner if it does not exist. `confirmed`: it needs no
    /// OPEN_CONFIRM.
    fn ensure_owner(
        &self,
        client: ClientId,
        owner: &OwnerName,
        confirmed: bool,
        now_seconds: u64,
    ) -> Result<(), Status> {
        let mut tables = self.lock();
        let record = tables.clients.get_mut(&client).ok_or(Status::StaleClientid)?;
        if let Some(entry) = record.open_owners.get_mut(owner) {
            entry.idle = false;
            return Ok(());
        }
        record.room_for_owner()?;
        self.need_room(&mut tables, client, (Quota::Owners, 1), now_seconds)?;
        let record = tables.clients.get_mut(&client).ok_or(Status::StaleClientid)?;
        let charge = Some(record.take(self.bound(record), Quota::Owners)?);
        let fresh = OpenOwner { confirmed, charge, ..OpenOwner::default() };
        record.open_owners.insert(Arc::clone(owner), fresh);
        Ok(())
    }

    fn owner_confirmed(&self, client: ClientId, owner: &OwnerName) -> bool {
        let tables = self.lock();
        let record = tables.clients.get(&client);
        record.and_then(|c| c.open_owners.get(owner)).is_none_or(|o| o.confirmed)
    }

    /// Confirms an owner that reclaims: the server must not request
    /// OPEN_CONFIRM then (RFC 7530 §16.18.5), and earlier reclaimed opens stay.
    fn confirm_reclaiming(&self, client: ClientId, owner: &OwnerName) {
        let mut tables = self.lock();
        let record = tables.clients.get_mut(&client);
        if let Some(entry) = record.and_then(|record| record.open_owners.get_mut(owner)) {
            entry.confirmed = true;
        }
    }

    /// Removes the opens of an unconfirmed owner. An OPEN is the next request of its owner: a
    /// CLOSE before it is not repeated any more.
    fn restart_unconfirmed(&self, client: ClientId, owner: &OwnerName, now_seconds: u64) {
        let tables = &mut *self.lock();
        let Some(record) = tables.clients.get_mut(&client) else { return };
        let Some(entry) = record.open_owners.get_mut(owner) else { return };
        if let Some(closed) = entry.last_closed.take() {
            tables.last_closed.remove(&closed);
        }
        if entry.confirmed {
            return;
        }
        let opens = std::mem::take(&mut entry.opens);
        record.open_owners.remove(owner);
        for key in opens {
            self.remove_open(tables, key, now_seconds);
        }
    }
}

/// Returns whether the arguments have a claim, or a way to create, that minor version 0 does not
/// know: they do not decode there (RFC 7531, open_claim_type4 and createmode4).
fn is_of_later_minors(args: &Args) -> bool {
    let by_handle =
        matches!(args.claim, Claim::Fh | Claim::DelegateCurrentFh(_) | Claim::DelegatePreviousFh);
    by_handle || matches!(args.how, How::ExclusiveWithAttrs(..))
}

/// Checks the share bits of OPEN and OPEN_DOWNGRADE (RFC 8881 §18.16.4, §18.18.3).
///
/// # Errors
/// [`Status::Inval`].
pub(super) fn check_bits(minor: u8, access: u32, deny: u32) -> Result<(), Status> {
    let known = if minor == 0 { 3 } else { KNOWN_ACCESS_BITS };
    if access & 3 == 0 || access & !known != 0 || deny > 3 {
        return Err(Status::Inval);
    }
    Ok(())
}

/// Checks opens and reclaims during grace (RFC 8881 §8.4.2, RFC 7530 §9.6.2). The
/// first open of a client whose record was removed at the end of grace waits until
/// it is written again.
async fn check_grace(cx: &Cx<'_>, client: ClientId, claim: &Claim) -> Result<(), Status> {
    let state = &cx.server.state;
    // Looked at before the client: when grace is over, its clients without a record
    // are known.
    let is_grace = state.grace.delays(cx.now.seconds());
    let (complete, may_reclaim, unrecorded) = {
        let tables = state.lock();
        let record = tables.clients.get(&client).ok_or(Status::StaleClientid)?;
        (record.reclaim_complete, record.may_reclaim, record.unrecorded)
    };
    if claim.is_reclaim() {
        let open_to_it = is_grace && may_reclaim && !complete;
        if !open_to_it {
            return Err(Status::NoGrace);
        }
        state.grace.reclaiming(cx.now.seconds());
        return Ok(());
    }
    if is_grace || cx.minor > 0 && !complete {
        return Err(Status::Grace);
    }
    if unrecorded { state.record_again(client).await } else { Ok(()) }
}

async fn open(
    cx: &mut Cx<'_>,
    args: &Args,
    client: ClientId,
    owner: &OwnerName,
) -> Result<Res, Failure> {
    check_bits(cx.minor, args.access, args.deny)?;
    // The types end with it (RFC 8881 §18.16.1); the bits of RFC 9754 are none of them.
    if args.access & WANT_MASK > WANT_CANCEL {
        return Err(Status::Inval.into());
    }
    cx.current()?;
    check_grace(cx, client, &args.claim).await?;
    if !matches!(args.how, How::NoCreate) {
        // A created name stays, and the OPEN is retried: refusals that would
        // follow are checked before.
        room_to_create(cx, client)?;
    }
    let target = target::find(cx, args, client).await?;
    let object = &target.object;
    let access = args.access & 3;
    let (state, file, now) = (&cx.server.state, object.file_key(), cx.now.seconds());
    let by = Some(FileClient::of(client, &file).number());
    // The conflict check of an open for reading does not cover the truncation
    // of the file.
    let emptying = match target.truncate {
        true => state.changes.begin_under_state(&file.id, by),
        false => ChangeGuard::uncounted(),
    };
    if !target.created {
        let modifies = takes_from_others(args, &target);
        let attempt = || Ok(state.recall_conflicting(&file, modifies, Some(client), now)?);
        state.when_settled(&file, attempt).await?;
    }
    let opened = open_in_store(&target, args, access).await?;
    let attempt = || Ok(remember(cx, args, (client, owner), (&target, file), &opened)?);
    let entered = state.when_settled(&file, attempt).await?;
    let stateid = entered.stateid;
    if args.claim.is_reclaim() {
        cx.server.state.confirm_reclaiming(client, owner);
    }
    if target.truncate {
        // The truncation counts as a change under the open, which may be
        // removed in the meantime.
        let handle = cx.server.state.index.get(stateid.into());
        let Some(_guard) = handle.and_then(|handle| handle.core.begin_change()) else {
            let state = &cx.server.state;
            return Err(state.why_unknown(&state.lock(), cx.requester(), stateid).into());
        };
        if let Err(error) = emptying.in_store(truncate(object, &opened, access)).await {
            undo(cx, &entered);
            return Err(error);
        }
    }
    drop(emptying);
    let mut known = target.attr;
    // With sessions every owner is.
    let confirmed = cx.minor > 0 || cx.server.state.owner_confirmed(client, owner);
    let delegated = if confirmed {
        delegate::decide(cx, args, client, (&target, file), &mut known).await
    } else {
        // This OPEN may be an old one that is repeated: nobody would return what came with it
        // (RFC 7530 §9.1.11).
        Delegated::None
    };
    let mut flags = RESULT_LOCKTYPE_POSIX;
    if !confirmed {
        flags |= RESULT_CONFIRM;
    }
    if cx.minor > 0 {
        // Not OPEN4_RESULT_PRESERVE_UNLINKED: a removed file stays while this
        // process has it open, but not across a restart. Without the flag
        // clients rename such files instead, which survives a restart.
        flags |= RESULT_MAY_NOTIFY_LOCK;
    }
    let (object, node) = (target.object.clone(), target.object.node);
    cx.set_current_node(&object, node);
    cx.current_stateid = Some(stateid);
    cx.looked_up = known;
    Ok(Res { stateid, change: target.change, flags, attrs_set: target.attrs_set, delegated })
}

/// Checks that the client may have one more open of one more file.
fn room_to_create(cx: &Cx<'_>, client: ClientId) -> Result<(), Status> {
    let state = &cx.server.state;
    let mut tables = state.lock();
    let record = tables.clients.get(&client).ok_or(Status::StaleClientid)?;
    record.room_for_state()?;
    let now = cx.now.seconds();
    state.need_room(&mut tables, client, (Quota::Opens, 1), now)?;
    state.need_room(&mut tables, client, (Quota::Files, 1), now)
}

/// True if an OPEN also conflicts with read delegations of others, not only
/// write delegations. To deny writing alone does not: their holders open the file by
/// themselves for reading only (RFC 8881 §18.16.4, §10.4).
fn takes_from_others(args: &Args, target: &Target) -> bool {
    args.access & ACCESS_WRITE != 0 || args.deny & ACCESS_READ != 0 || target.truncate
}

/// Opens the file as the caller, with the requested access; a file just created
/// is already open, regardless of its mode.
async fn open_in_store(target: &Target, args: &Args, access: u32) -> Result<OpenFile, Failure> {
    if let Some(opened) = &target.opened {
        return Ok(Arc::clone(opened));
    }
    let object = &target.object;
    if access & 2 != 0 && !object.entry.writable {
        return Err(Status::Rofs.into());
    }
    // A reclaim, and an open under a delegation, were allowed before.
    let stateless = args.claim.is_reclaim()
        || matches!(args.claim, Claim::DelegateCurrent(..) | Claim::DelegateCurrentFh(_));
    let (read, write) = (access & 1 != 0, access & 2 != 0);
    // A client asks for reading to run a program, which needs execute permission
    // only. It checks itself what its program asked for.
    let read_by_execute = !write;
    let want = OpenAccess { read, write, stateless, read_by_execute };
    Ok(object.export.store.open(object.who(), &object.node, want).await?)
}

fn remember(
    cx: &Cx<'_>,
    args: &Args,
    (client, owner): (ClientId, &OwnerName),
    (target, file): (&Target, FileKey),
    opened: &OpenFile,
) -> Result<Entered, Status> {
    let state = &cx.server.state;
    let access = args.access & 3;
    let (in_effect, mut tables) = cx.lock_with_exports();
    // The exports may have changed during the calls to the backend. Who tries again learns it.
    if !cx.is_in_effect(&in_effect, &target.object) {
        return Err(Status::Delay);
    }
    // Grace may have ended during the calls to the backend: others may have used the
    // file since, and left no open that would conflict, or the client's record is
    // being removed.
    let may_reclaim = tables.clients.get(&client).is_some_and(|record| record.may_reclaim);
    if args.claim.is_reclaim() && !(may_reclaim && state.grace.active()) {
        return Err(Status::NoGrace);
    }
    let now = cx.now.seconds();
    // To empty the file is to write it, also where the open is for reading.
    let needed = if target.truncate { access | ACCESS_WRITE } else { access };
    state.check_shares(&mut tables, &file, needed, args.deny, now).map_err(|status| {
        let is_taken = args.claim.is_reclaim() && status == Status::ShareDenied;
        if is_taken { Status::ReclaimConflict } else { status }
    })?;
    // Another client may have got a delegation during the call to the backend.
    let modifies = takes_from_others(args, target);
    state.recall_standing(&mut tables, &file, modifies, Some(client), now)?;
    if State::open_of(&tables, client, owner, &file).is_none() {
        state.need_room(&mut tables, client, (Quota::Opens, 1), now)?;
    }
    if !tables.is_held(&file) {
        state.need_room(&mut tables, client, (Quota::Files, 1), now)?;
    }
    let new =
        NewOpen { client, owner, object: &target.object, file, access, deny: args.deny, opened };
    state.enter_open(&mut tables, &new)
}

async fn truncate(object: &Object, opened: &OpenFile, access: u32) -> Result<(), Failure> {
    let empty = SetAttr { size: Some(0), ..SetAttr::default() };
    let open = (access & 2 != 0).then_some(opened);
    object.export.store.setattr(object.who(), &object.node, &empty, open).await?;
    Ok(())
}

fn undo(cx: &Cx<'_>, entered: &Entered) {
    let mut tables = cx.server.state.lock();
    cx.server.state.undo_open(&mut tables, entered, cx.now.seconds());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v3::proc::rig::a_call;
    use crate::v4::callback::Silence;
    use crate::v4::state::grace::GracePeriod;
    use crate::v4::state::recovery::NoRecovery;

    /// Otherwise what a client opens and closes stays until the next sweep.
    #[test]
    fn what_is_kept_for_a_repeated_close_goes_with_the_next_open() {
        let grace = GracePeriod { seconds: 0, max_seconds: 0 };
        let state = State::new(1, 90, grace, Arc::new(NoRecovery), 0, Arc::new(Silence));
        let owner: OwnerName = Arc::from([7]);
        let client = state.add_client(&mut state.lock(), &a_call(), b"c", [0; 8], true, 0).unwrap();
        for confirmed in [false, true] {
            state.ensure_owner(client, &owner, confirmed, 0).unwrap();
            let closed = state.ids.state();
            {
                // As CLOSE leaves it.
                let tables = &mut *state.lock();
                let record = tables.clients.get_mut(&client).unwrap();
                record.open_owners.get_mut(&owner).unwrap().last_closed = Some(closed);
                tables.last_closed.insert(closed, (client, Arc::clone(&owner)));
            }
            state.restart_unconfirmed(client, &owner, 0);
            assert!(state.lock().last_closed.is_empty(), "confirmed: {confirmed}");
        }
    }
}
