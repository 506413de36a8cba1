//! READ_PLUS (RFC 7862 §15.10): data and holes.

use crate::limits::MAX_TRANSFER_BYTES;
use crate::v4::Stateid;
use zgate_store::Payload;
use zgate_xdr::{Decode, Decoder, Encode, Encoder, XdrError, xdr_struct};

xdr_struct! {
    /// READ_PLUS4args.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Args {
        /// A stateid that allows reading.
        pub stateid: Stateid,
        /// First byte.
        pub offset: u64,
        /// Most bytes requested.
        pub count: u32,
    }
}

/// read_plus_content.
#[derive(Clone, Debug)]
pub enum Content {
    /// Bytes at an offset.
    Data(u64, Payload),
    /// Offset and length of a hole.
    Hole(u64, u64),
}

/// read_plus_res4.
#[derive(Clone, Debug)]
pub struct Res {
    /// The contents reach the end of the file.
    pub eof: bool,
    /// In order, without gaps.
    pub contents: Vec<Content>,
}

impl Encode for Res {
    fn encode(&self, e: &mut Encoder) {
        self.eof.encode(e);
        e.u32(self.contents.len() as u32);
        for content in &self.contents {
            match content {
                Content::Data(offset, data) => {
                    e.u32(0);
                    e.u64(*offset);
                    e.bulk(data.clone());
                }
                Content::Hole(offset, length) => {
                    e.u32(1);
                    e.u64(*offset);
                    e.u64(*length);
                }
            }
        }
    }
}

impl Decode for Res {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        let eof = Decode::decode(d)?;
        let mut contents = Vec::new();
        for _ in 0..d.length(1024)? {
            contents.push(match d.u32()? {
                0 => Content::Data(d.u64()?, Payload::Bytes(d.bulk(MAX_TRANSFER_BYTES)?)),
                1 => Content::Hole(d.u64()?, d.u64()?),
                _ => return Err(XdrError::BadValue),
            });
        }
        Ok(Self { eof, contents })
    }
}
