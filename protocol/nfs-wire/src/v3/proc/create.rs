//! CREATE (RFC 1813 §3.3.8).

use crate::v3::{DirOpArgs, SetAttributes};
use zgate_xdr::{Decode, Decoder, Encode, Encoder, XdrError};

/// createhow3: creation mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum How {
    /// UNCHECKED: an existing file is accepted.
    Unchecked(SetAttributes),
    /// GUARDED: the name must be new.
    Guarded(SetAttributes),
    /// EXCLUSIVE: new, or created by the same call before.
    Exclusive([u8; 8]),
}

impl Encode for How {
    fn encode(&self, e: &mut Encoder) {
        match self {
            Self::Unchecked(attributes) => {
                e.u32(0);
                attributes.encode(e);
            }
            Self::Guarded(attributes) => {
                e.u32(1);
                attributes.encode(e);
            }
            Self::Exclusive(verifier) => {
                e.u32(2);
                verifier.encode(e);
            }
        }
    }
}

impl Decode for How {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        match d.u32()? {
            0 => SetAttributes::decode(d).map(Self::Unchecked),
            1 => SetAttributes::decode(d).map(Self::Guarded),
            2 => Decode::decode(d).map(Self::Exclusive),
            _ => Err(XdrError::BadValue),
        }
    }
}

zgate_xdr::xdr_struct! {
    /// CREATE3args.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Args {
        /// Directory and name.
        pub dir_op: DirOpArgs,
        /// Creation mode.
        pub how: How,
    }
}
