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
        let status = {
            let mut tables = state.lock();
            match state.find_state(&tables, cx.requester(), stateid, Some(&file)) {
                Ok((key, StateKind::Delegation)) => {
                    state.remove_delegation(&mut tables, key, cx.now.seconds());
                    return Ok(());
                }
                Ok(_) => return Err(Status::BadStateid.into()),
                Err(status) => status,
            }
        };
        if let Some(client) = cx.session_client() {
            // Returning a revoked delegation acknowledges the revocation.
            state.acknowledge(client, StateKey::from(stateid)).await;
        }
        Err(status.into())
    }
}
