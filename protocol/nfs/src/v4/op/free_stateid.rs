//! FREE_STATEID (RFC 8881 §18.38).

use super::Rule;
use crate::v4::failure::Failure;
use crate::v4::request::Cx;
use crate::v4::state::stateids::{check_seqid, is_special};
use crate::v4::tables::StateKind;
use crate::v4::tables::ids::StateKey;
use zgate_nfs_wire::v4::Status;
use zgate_nfs_wire::v4::op::FreeStateid;
use zgate_nfs_wire::v4::op::free_stateid::Args;

impl Rule for FreeStateid {
    async fn run(cx: &mut Cx<'_>, args: Args) -> Result<(), Failure> {
        let id = cx.session_client().ok_or(Status::OpNotInSession)?;
        let stateid = cx.resolve_stateid(args.stateid)?;
        if is_special(stateid) {
            return Err(Status::BadStateid.into());
        }
        let key = StateKey::from(stateid);
        let state = &cx.server.state;
        if state.acknowledge(id, key).await {
            return Ok(());
        }
        let mut tables = state.lock();
        let (kind, owner, seqid) = tables.find(key).ok_or(Status::BadStateid)?;
        if owner != id {
            return Err(Status::BadStateid.into());
        }
        check_seqid(cx.minor, stateid.seqid, seqid)?;
        let held = match kind {
            StateKind::Lock => tables.locks.get(&key).is_some_and(|lock| {
                tables.files.get(&lock.file.id).is_some_and(|f| f.ranges.holds(&lock.owner))
            }),
            StateKind::Open | StateKind::Delegation => true,
        };
        if held {
            return Err(Status::LocksHeld.into());
        }
        state.remove_lock_state(&mut tables, key);
        Ok(())
    }
}
