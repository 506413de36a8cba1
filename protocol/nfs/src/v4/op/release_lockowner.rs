//! RELEASE_LOCKOWNER (RFC 7530 §16.37), minor version 0 only.

use super::Rule;
use crate::v4::failure::Failure;
use crate::v4::request::Cx;
use crate::v4::tables::owner::OwnerName;
use std::sync::Arc;
use zgate_nfs_wire::v4::Status;
use zgate_nfs_wire::v4::op::ReleaseLockowner;
use zgate_nfs_wire::v4::op::release_lockowner::Args;

impl Rule for ReleaseLockowner {
    async fn run(cx: &mut Cx<'_>, args: Args) -> Result<(), Failure> {
        let state = &cx.server.state;
        let mut tables = state.lock();
        let client = state.minor_zero_client(&mut tables, args.owner.clientid, cx.now.seconds())?;
        let name: OwnerName = Arc::from(args.owner.owner.0.as_slice());
        let Some(owner) = client.lock_owners.get(&name) else { return Ok(()) };
        let (id, keys) = (client.id, owner.states.clone());
        let holds = keys.iter().filter_map(|key| tables.locks.get(key)).any(|lock| {
            tables.files.get(&lock.file.id).is_some_and(|file| file.ranges.holds(&lock.owner))
        });
        if holds {
            return Err(Status::LocksHeld.into());
        }
        for key in keys {
            state.remove_lock_state(&mut tables, key);
        }
        if let Some(client) = tables.clients.get_mut(&id) {
            client.lock_owners.remove(&name);
        }
        Ok(())
    }
}
