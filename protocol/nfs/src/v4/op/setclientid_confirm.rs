//! SETCLIENTID_CONFIRM (RFC 7530 §16.34), minor version 0 only.

use super::{Failure, Operation};
use crate::v4::cx::Cx;
use crate::v4::state::recovery::ClientRecord;
use crate::v4::state::tables::Principal;
use crate::v4::wire::{ClientId, OpNum, Status, Verifier};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use zgate_xdr::xdr_struct;

xdr_struct! {
    /// SETCLIENTID_CONFIRM4args.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Args {
        /// clientid.
        pub clientid: ClientId,
        /// setclientid_confirm.
        pub confirm: Verifier,
    }
}

/// The operation.
pub struct SetclientidConfirm;

impl Operation for SetclientidConfirm {
    const NUM: OpNum = OpNum::SetclientidConfirm;
    type Args = Args;
    type Res = ();

    async fn run(cx: &mut Cx<'_>, args: Args) -> Result<(), Failure> {
        let state = &cx.server.state;
        let now = cx.now.seconds();
        let mut tables = state.lock();
        let client = tables
            .clients
            .get(&args.clientid)
            .filter(|c| c.minor_zero && c.confirm_verifier == args.confirm)
            .ok_or(Status::StaleClientid)?;
        if client.principal != Principal::of(&cx.call.credential) {
            return Err(Status::ClidInuse.into());
        }
        if !client.confirmed {
            if let Some(old) = tables.by_name.get(&client.name).and_then(|slot| slot.confirmed)
                && let Some(old) = tables.clients.get(&old)
                && old.principal != client.principal
                && old.has_state()
                && !old.lease.expired(now, state.lease_seconds)
            {
                return Err(Status::ClidInuse.into());
            }
            let record = ClientRecord { name: client.name.clone(), minor_zero: true };
            if state.recovery.put(&record).is_err() {
                tracing::error!(
                    "a client record cannot be written to the state directory; new clients have to wait"
                );
                return Err(Status::Delay.into());
            }
            state.confirm_client(&mut tables, args.clientid, now);
        }
        if let Some(client) = tables.clients.get(&args.clientid) {
            client.lease.renew(now);
            if let Some(callback) = client.callback.clone() {
                let up = Arc::clone(&callback.up);
                let probe = state.back.probe(Arc::clone(&cx.server.runtime), callback);
                cx.server.runtime.spawn(Box::pin(async move {
                    up.store(probe.await, Ordering::Release);
                }));
            }
        }
        Ok(())
    }
}
