//! OFFLOAD_STATUS (RFC 7862 §15.9).

use super::{Failure, Operation};
use crate::v4::cx::Cx;
use crate::v4::wire::{OpNum, Stateid, Status};
use zgate_xdr::{Decode, Decoder, Encode, Encoder, XdrError, xdr_struct};

xdr_struct! {
    /// OFFLOAD_STATUS4args.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Args {
        /// The copy.
        pub stateid: Stateid,
    }
}

/// OFFLOAD_STATUS4resok.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Res {
    /// Bytes copied so far.
    pub count: u64,
    /// How it ended, when it did; an XDR array of at most one.
    pub complete: Option<Status>,
}

impl Encode for Res {
    fn encode(&self, e: &mut Encoder) {
        e.u64(self.count);
        self.complete.encode(e);
    }
}

impl Decode for Res {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(Self { count: d.u64()?, complete: Decode::decode(d)? })
    }
}

/// The operation.
pub struct OffloadStatus;

impl Operation for OffloadStatus {
    const NUM: OpNum = OpNum::OffloadStatus;
    type Args = Args;
    type Res = Res;

    async fn run(cx: &mut Cx<'_>, args: Args) -> Result<Res, Failure> {
        cx.current()?;
        let client = cx.session_client().ok_or(Status::OpNotInSession)?;
        let (count, complete) = cx.server.state.copies.status(client, args.stateid)?;
        Ok(Res { count, complete })
    }
}
