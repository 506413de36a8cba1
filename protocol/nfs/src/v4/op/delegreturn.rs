//! DELEGRETURN (RFC 8881 §18.6, RFC 7530 §16.8).

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
        // Returning a revoked delegation acknowledges the revocation: its client has given up
        // what it had under it, whatever the answer. In minor version 0 nothing else shows
        // that: the error of a READ or WRITE may be lost with the server.
        let key = StateKey::from(stateid);
        let host = cx.call.peer.address;
        let loser = cx.session_client().or_else(|| state.client_of_revoked(key, host));
        if let Some(client) = loser {
            state.acknowledge(client, key).await;
        }
        Err(status.into())
    }
}
