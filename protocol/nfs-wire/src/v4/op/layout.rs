//! The pNFS operations (RFC 8881 §18.40-§18.44, RFC 7862 §15.6-§15.7): no file
//! system of this server offers a layout type, so they answer as the RFCs
//! require of such a server. Arguments are decoded only as far as necessary; no
//! operation of a COMPOUND runs after a refusal.

use crate::v4::Stateid;
use zgate_xdr::{Decode, Decoder, Encode, Encoder, XdrError, xdr_struct};

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

xdr_struct! {
    /// LAYOUTGET4args.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct GetArgs {
        /// loga_signal_layout_avail.
        pub signal: bool,
        /// loga_layout_type.
        pub layout_type: u32,
        /// loga_iomode.
        pub io_mode: u32,
        /// loga_offset.
        pub offset: u64,
        /// loga_length.
        pub length: u64,
        /// loga_minlength.
        pub min_length: u64,
        /// loga_stateid.
        pub stateid: Stateid,
        /// loga_maxcount.
        pub max_bytes: u32,
    }
}
