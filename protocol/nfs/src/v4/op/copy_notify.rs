//! COPY_NOTIFY (RFC 7862 §15.3): copies between servers are not offered.

use super::copy::NetLocation;
use super::{Failure, Operation};
use crate::v4::cx::Cx;
use crate::v4::wire::{OpNum, Stateid, Status};
use zgate_xdr::xdr_struct;

xdr_struct! {
    /// COPY_NOTIFY4args.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Args {
        /// Allows reading the current file.
        pub stateid: Stateid,
        /// Who will copy.
        pub destination: NetLocation,
    }
}

/// The operation.
pub struct CopyNotify;

impl Operation for CopyNotify {
    const NUM: OpNum = OpNum::CopyNotify;
    type Args = Args;
    type Res = ();

    async fn run(cx: &mut Cx<'_>, _: Args) -> Result<(), Failure> {
        cx.current()?;
        Err(Status::Notsupp.into())
    }
}
