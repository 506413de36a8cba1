//! WRITE (RFC 1813 §3.3.7).

use crate::limits::MAX_TRANSFER_BYTES;
use crate::v3::{Fh3, StableHow, WccData};
use bytes::Bytes;
use zgate_store::Payload;
use zgate_xdr::{Decode, Decoder, Encode, Encoder, XdrError};

/// WRITE3args.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Args {
    /// The file.
    pub file: Fh3,
    /// First byte.
    pub offset: u64,
    /// Bytes to write.
    pub count: u32,
    /// Requested stability.
    pub stable: StableHow,
    /// The data.
    pub data: Bytes,
}

impl Encode for Args {
    fn encode(&self, e: &mut Encoder) {
        self.file.encode(e);
        e.u64(self.offset);
        e.u32(self.count);
        self.stable.encode(e);
        e.bulk(Payload::Bytes(self.data.clone()));
    }
}

impl Decode for Args {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(Self {
            file: Fh3::decode(d)?,
            offset: d.u64()?,
            count: d.u32()?,
            stable: StableHow::decode(d)?,
            data: d.bulk(MAX_TRANSFER_BYTES)?,
        })
    }
}

zgate_xdr::xdr_struct! {
    /// WRITE3resok.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Written {
        /// The file.
        pub wcc: WccData,
        /// Bytes written.
        pub count: u32,
        /// Stability of the data.
        pub committed: StableHow,
        /// Changes if unstable data may have been lost.
        pub verifier: [u8; 8],
    }
}
