//! LISTXATTRS (RFC 8276 §8.4.3).

use crate::v4::Component;
use zgate_xdr::{Decode, Decoder, Encode, Encoder, XdrError, xdr_struct};

xdr_struct! {
    /// LISTXATTRS4args.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Args {
        /// Position to continue at; 0: the beginning.
        pub cookie: u64,
        /// Most bytes of the result.
        pub maxcount: u32,
    }
}

/// LISTXATTRS4resok.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Res {
    /// Position after the last name.
    pub cookie: u64,
    /// Names without namespace.
    pub names: Vec<Component>,
    /// These are the last.
    pub eof: bool,
}

impl Encode for Res {
    fn encode(&self, e: &mut Encoder) {
        e.u64(self.cookie);
        e.array(&self.names);
        self.eof.encode(e);
    }
}

impl Decode for Res {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(Self { cookie: d.u64()?, names: d.array(65_536)?, eof: Decode::decode(d)? })
    }
}
