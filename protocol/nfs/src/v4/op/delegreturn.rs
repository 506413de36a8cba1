//! DELEGRETURN (RFC 8881 §18.6).

use super::Rule;
use crate::v4::failure::Failure;
use crate::v4::request::Cx;
use crate::v4::tables::StateKind;
use crate::v4::tables::ids::StateKey;
use zgate_nfs_wire::v4::Status;
use zgate_nfs_wire::v4::op::Delegreturn;
use zgate_nfs_wire::v4::op::delegreturn::Args;

impl Rule for Delegreturn {
    async fn run(cx: &mut Cx<'_>, args: Args) -> Result<(), Failure> {
        let file = cx.object(Status::BadStateid)?.file_key();
        let stateid = cx.resolve_stateid(args.stateid)?;
        let state = &cx.server.state;
        let mut tables = state.lock();
        let (key, kind) = match state.find_state(&tables, cx.requester(), stateid, Some(&file)) {
            Ok(found) => found,
            Err(status @ (Status::DelegRevoked | Status::Expired)) => {
                // Returning a revoked delegation acknowledges the revocation.
                let key = StateKey::from(stateid);
                for client in tables.clients.values_mut() {
                    client.revoked.remove(&key);
                }
                return Err(status.into());
            }
            Err(status) => return Err(status.into()),
        };
        if kind != StateKind::Delegation {
            return Err(Status::BadStateid.into());
        }
        state.remove_delegation(&mut tables, key, cx.now.seconds());
        Ok(())
    }
}
