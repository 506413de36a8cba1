//! RELEASE_LOCKOWNER (RFC 7530 §16.37), minor version 0 only.
//!
//! An owner may have locked hundreds of thousands of files. They are looked at, and their
//! stateids removed, in slices; others are served in between.

use super::Rule;
use crate::limits::MAX_STATES_PER_SLICE;
use crate::v4::failure::Failure;
use crate::v4::request::Cx;
use crate::v4::state::State;
use crate::v4::tables::Tables;
use crate::v4::tables::ids::StateKey;
use crate::v4::tables::owner::OwnerName;
use std::ops::Bound;
use std::sync::Arc;
use zgate_nfs_wire::v4::op::ReleaseLockowner;
use zgate_nfs_wire::v4::op::release_lockowner::Args;
use zgate_nfs_wire::v4::{ClientId, Status};

/// Pause between two slices, in milliseconds.
const PAUSE_MILLISECONDS: u64 = 1;

impl Rule for ReleaseLockowner {
    async fn run(cx: &mut Cx<'_>, args: Args) -> Result<(), Failure> {
        let (state, id) = (&cx.server.state, args.owner.clientid);
        state.minor_zero_client(&mut state.lock(), id, cx.now.seconds())?;
        let name: OwnerName = Arc::from(args.owner.owner.0.as_slice());
        // Nothing is released of an owner that holds a lock.
        let mut seen = None;
        while let Some(last) = check_slice(state, id, &name, seen)? {
            seen = Some(last);
            state.runtime.sleep(PAUSE_MILLISECONDS).await;
        }
        while !release_slice(state, id, &name)? {
            state.runtime.sleep(PAUSE_MILLISECONDS).await;
        }
        Ok(())
    }
}

/// Checks one slice of the owner's lock stateids: those after `seen`. Returns the last of them;
/// `None` if there are no more.
///
/// # Errors
/// [`Status::LocksHeld`].
fn check_slice(
    state: &State,
    id: ClientId,
    name: &OwnerName,
    seen: Option<StateKey>,
) -> Result<Option<StateKey>, Status> {
    let tables = state.lock();
    let owner = tables.clients.get(&id).and_then(|client| client.lock_owners.get(name));
    let Some(owner) = owner else { return Ok(None) };
    let after: (Bound<StateKey>, Bound<StateKey>) =
        (seen.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
    let mut slice = owner.states.range(after).take(MAX_STATES_PER_SLICE);
    if slice.clone().any(|key| holds(&tables, *key)) {
        return Err(Status::LocksHeld);
    }
    Ok(slice.nth(MAX_STATES_PER_SLICE - 1).copied())
}

/// Releases one slice of the owner's lock stateids, and the owner after the last one. Returns
/// whether nothing is left of it.
///
/// # Errors
/// [`Status::LocksHeld`]: it has locked something since it was checked.
fn release_slice(state: &State, id: ClientId, name: &OwnerName) -> Result<bool, Status> {
    let mut tables = state.lock();
    for _ in 0..MAX_STATES_PER_SLICE {
        let Some(client) = tables.clients.get_mut(&id) else { return Ok(true) };
        let Some(owner) = client.lock_owners.get(name) else { return Ok(true) };
        let Some(key) = owner.states.first().copied() else {
            client.lock_owners.remove(name);
            return Ok(true);
        };
        if holds(&tables, key) {
            return Err(Status::LocksHeld);
        }
        state.remove_lock_state(&mut tables, key);
    }
    Ok(false)
}

/// Returns whether the owner of a lock stateid holds a lock in its file.
fn holds(tables: &Tables, key: StateKey) -> bool {
    tables.locks.get(&key).is_some_and(|lock| {
        tables.files.get(&lock.file.id).is_some_and(|file| file.ranges.holds(&lock.owner))
    })
}
