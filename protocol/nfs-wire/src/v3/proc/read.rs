//! READ (RFC 1813 §3.3.6).

use crate::limits::MAX_TRANSFER_BYTES;
use crate::v3::{Attributes, Fh3};
use zgate_store::Payload;
use zgate_xdr::{Decode, Decoder, Encode, Encoder, XdrError};

zgate_xdr::xdr_struct! {
    /// READ3args.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Args {
        /// The file.
        pub file: Fh3,
        /// First byte.
        pub offset: u64,
        /// Most bytes.
        pub count: u32,
    }
}

/// READ3resok.
#[derive(Clone, Debug)]
pub struct Data {
    /// Attributes of the file.
    pub attributes: Option<Attributes>,
    /// True if the data reaches the end of the file.
    pub eof: bool,
    /// The data.
    pub data: Payload,
}

impl Encode for Data {
    fn encode(&self, e: &mut Encoder) {
        self.attributes.encode(e);
        e.u32(self.data.len() as u32);
        self.eof.encode(e);
        e.direct_bulk(self.data.clone());
    }
}

impl Decode for Data {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        let attributes = Decode::decode(d)?;
        let count = d.u32()? as usize;
        let eof = bool::decode(d)?;
        let data = d.bulk(MAX_TRANSFER_BYTES)?;
        if data.len() != count {
            return Err(XdrError::BadValue);
        }
        Ok(Self { attributes, eof, data: Payload::Bytes(data) })
    }
}
