//! SECINFO (RFC 8881 §18.29).

use zgate_xdr::{Decode, Decoder, Encode, Encoder, XdrError};

/// The flavours a client may use, preferred one first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Res {
    /// secinfo4 without GSS: flavour numbers.
    pub flavors: Vec<u32>,
}

impl Encode for Res {
    fn encode(&self, e: &mut Encoder) {
        e.array(&self.flavors);
    }
}

impl Decode for Res {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        d.array(16).map(|flavors| Self { flavors })
    }
}
