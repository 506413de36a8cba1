//! The pNFS operations (RFC 8881 §18.40-§18.44, RFC 7862 §15.6-§15.7): no file
//! system of this server offers a layout type, so they answer as the RFCs
//! require of such a server. Arguments are decoded only as far as necessary; no
//! operation of a COMPOUND runs after a refusal.

use crate::v4::Stateid;
use zgate_xdr::{Decode, Decoder, Encode, Encoder, XdrError};

/// The bytes after the operation's number, not decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unread;

impl Encode for Unread {
    fn encode(&self, _: &mut Encoder) {}
}

impl Decode for Unread {
    fn decode(_: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(Self)
    }
}

/// LAYOUTGET4args.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GetArgs {
    /// loga_layout_type.
    pub layout_type: u32,
    /// loga_stateid.
    pub stateid: Stateid,
}

impl Encode for GetArgs {
    fn encode(&self, e: &mut Encoder) {
        e.u32(0);
        e.u32(self.layout_type);
        e.u32(1);
        for _ in 0..3 {
            e.u64(0);
        }
        self.stateid.encode(e);
        e.u32(0);
    }
}

impl Decode for GetArgs {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        bool::decode(d)?;
        let layout_type = d.u32()?;
        d.u32()?;
        d.take(24)?;
        let stateid = Decode::decode(d)?;
        d.u32()?;
        Ok(Self { layout_type, stateid })
    }
}
