//! RENEW (RFC 7530 §16.28), minor version 0 only.

use super::{Failure, Operation};
use crate::v4::cx::Cx;
use crate::v4::wire::{ClientId, OpNum, Status};
use std::sync::atomic::Ordering;
use zgate_xdr::xdr_struct;

xdr_struct! {
    /// RENEW4args.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Args {
        /// clientid.
        pub clientid: ClientId,
    }
}

/// The operation.
pub struct Renew;

impl Operation for Renew {
    const NUM: OpNum = OpNum::Renew;
    type Args = Args;
    type Res = ();

    async fn run(cx: &mut Cx<'_>, args: Args) -> Result<(), Failure> {
        let state = &cx.server.state;
        let mut tables = state.lock();
        let client = state.minor_zero_client(&mut tables, args.clientid, cx.now.seconds())?;
        let path_down =
            client.callback.as_ref().is_none_or(|callback| !callback.up.load(Ordering::Acquire));
        if path_down && !client.delegations.is_empty() {
            return Err(Status::CbPathDown.into());
        }
        Ok(())
    }
}
