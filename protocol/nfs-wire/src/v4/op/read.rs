//! READ (RFC 8881 §18.22).

use crate::limits::MAX_TRANSFER_BYTES;
use crate::v4::Stateid;
use zgate_store::Payload;
use zgate_xdr::{Decode, Decoder, Encode, Encoder, XdrError, xdr_struct};

xdr_struct! {
    /// READ4args.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Args {
        /// An open, lock, delegation or special stateid.
        pub stateid: Stateid,
        /// First byte.
        pub offset: u64,
        /// Most bytes requested.
        pub count: u32,
    }
}

/// READ4resok.
#[derive(Clone, Debug)]
pub struct Res {
    /// The data reaches the end of the file.
    pub eof: bool,
    /// The data.
    pub data: Payload,
}

impl Encode for Res {
    fn encode(&self, e: &mut Encoder) {
        self.eof.encode(e);
        e.direct_bulk(self.data.clone());
    }
}

impl Decode for Res {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(Self { eof: Decode::decode(d)?, data: Payload::Bytes(d.bulk(MAX_TRANSFER_BYTES)?) })
    }
}
