//! WRITE (RFC 8881 §18.32).

use crate::limits::MAX_TRANSFER_BYTES;
use crate::v4::{StableHow, Stateid, Verifier};
use bytes::Bytes;
use zgate_store::Payload;
use zgate_xdr::{Decode, Decoder, Encode, Encoder, XdrError, xdr_struct};

/// WRITE4args.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Args {
    /// An open, lock, delegation or anonymous stateid.
    pub stateid: Stateid,
    /// First byte.
    pub offset: u64,
    /// Requested stability.
    pub stable: StableHow,
    /// The data.
    pub data: Bytes,
}

impl Encode for Args {
    fn encode(&self, e: &mut Encoder) {
        self.stateid.encode(e);
        e.u64(self.offset);
        self.stable.encode(e);
        e.bulk(Payload::Bytes(self.data.clone()));
    }
}

impl Decode for Args {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(Self {
            stateid: Decode::decode(d)?,
            offset: d.u64()?,
            stable: Decode::decode(d)?,
            data: d.bulk(MAX_TRANSFER_BYTES)?,
        })
    }
}

xdr_struct! {
    /// WRITE4resok.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Res {
        /// Bytes written.
        pub count: u32,
        /// Stability of the data.
        pub committed: StableHow,
        /// Changes if unstable data may have been lost.
        pub verifier: Verifier,
    }
}
