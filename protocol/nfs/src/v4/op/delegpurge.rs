//! DELEGPURGE (RFC 8881 §18.5): delegations do not outlive their client here,
//! so there is nothing to purge.

use super::{Failure, Operation};
use crate::v4::cx::Cx;
use crate::v4::wire::{ClientId, OpNum, Status};
use zgate_xdr::xdr_struct;

xdr_struct! {
    /// DELEGPURGE4args.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Args {
        /// Whose.
        pub clientid: ClientId,
    }
}

/// The operation.
pub struct Delegpurge;

impl Operation for Delegpurge {
    const NUM: OpNum = OpNum::Delegpurge;
    type Args = Args;
    type Res = ();

    async fn run(_: &mut Cx<'_>, _: Args) -> Result<(), Failure> {
        // RFC 8881 §18.5.3: a server without CLAIM_DELEGATE_PREV answers so.
        Err(Status::Notsupp.into())
    }
}
