//! OFFLOAD_CANCEL (RFC 7862 §15.8).

use super::{Failure, Operation};
use crate::v4::cx::Cx;
use crate::v4::wire::{OpNum, Stateid, Status};
use zgate_xdr::xdr_struct;

xdr_struct! {
    /// OFFLOAD_CANCEL4args.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Args {
        /// The copy.
        pub stateid: Stateid,
    }
}

/// The operation.
pub struct OffloadCancel;

impl Operation for OffloadCancel {
    const NUM: OpNum = OpNum::OffloadCancel;
    type Args = Args;
    type Res = ();

    async fn run(cx: &mut Cx<'_>, args: Args) -> Result<(), Failure> {
        cx.current()?;
        let client = cx.session_client().ok_or(Status::OpNotInSession)?;
        Ok(cx.server.state.copies.cancel(client, args.stateid)?)
    }
}
