//! DESTROY_CLIENTID (RFC 8881 §18.50).

use super::{Failure, Operation};
use crate::v4::cx::Cx;
use crate::v4::wire::{ClientId, OpNum, Status};
use zgate_xdr::xdr_struct;

xdr_struct! {
    /// DESTROY_CLIENTID4args.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Args {
        /// dca_clientid.
        pub clientid: ClientId,
    }
}

/// The operation.
pub struct DestroyClientid;

impl Operation for DestroyClientid {
    const NUM: OpNum = OpNum::DestroyClientid;
    type Args = Args;
    type Res = ();

    async fn run(cx: &mut Cx<'_>, args: Args) -> Result<(), Failure> {
        let state = &cx.server.state;
        let mut tables = state.lock();
        let client = tables
            .clients
            .get_mut(&args.clientid)
            .filter(|client| !client.minor_zero)
            .ok_or(Status::StaleClientid)?;
        if !client.admits(cx.call) {
            return Err(Status::StaleClientid.into());
        }
        if !client.sessions.is_empty() || client.has_state() {
            return Err(Status::ClientidBusy.into());
        }
        let (name, confirmed) = (client.name.clone(), client.confirmed);
        state.drop_client(&mut tables, args.clientid, cx.now.seconds());
        if confirmed {
            // Nothing waits for the end of it: the client held nothing.
            let _ = state.forget_record(&mut tables, &name);
        }
        Ok(())
    }
}
