//! OFFLOAD_STATUS (RFC 7862 §15.9).

use crate::v4::{Stateid, Status};
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
    /// Final status, once ended; an XDR array of at most one.
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
