//! DESTROY_CLIENTID (RFC 8881 §18.50).

use super::Rule;
use crate::v4::failure::Failure;
use crate::v4::request::Cx;
use zgate_nfs_wire::v4::Status;
use zgate_nfs_wire::v4::op::DestroyClientid;
use zgate_nfs_wire::v4::op::destroy_clientid::Args;

impl Rule for DestroyClientid {
    async fn run(cx: &mut Cx<'_>, args: Args) -> Result<(), Failure> {
        let state = &cx.server.state;
        let mut tables = state.lock();
        let client = tables.client_of_caller(args.clientid, cx.call, Status::StaleClientid)?;
        client.check_machine(cx.call)?;
        if !client.sessions.is_empty() || client.has_state() {
            return Err(Status::ClientidBusy.into());
        }
        let (name, confirmed) = (client.name.clone(), client.confirmed);
        state.drop_client(&mut tables, args.clientid, cx.now.seconds());
        if confirmed {
            // The removal need not be awaited: the client held no state.
            let _ = state.forget_record(&mut tables, &name);
        }
        Ok(())
    }
}
