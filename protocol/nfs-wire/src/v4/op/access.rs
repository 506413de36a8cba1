//! ACCESS (RFC 8881 §18.1, RFC 8276 §8.4.1).

use zgate_xdr::xdr_struct;

/// ACCESS4_READ.
pub const READ: u32 = 0x01;
/// ACCESS4_LOOKUP.
pub const LOOKUP: u32 = 0x02;
/// ACCESS4_MODIFY.
pub const MODIFY: u32 = 0x04;
/// ACCESS4_EXTEND.
pub const EXTEND: u32 = 0x08;
/// ACCESS4_DELETE.
pub const DELETE: u32 = 0x10;
/// ACCESS4_EXECUTE.
pub const EXECUTE: u32 = 0x20;
/// ACCESS4_XAREAD.
pub const XAREAD: u32 = 0x40;
/// ACCESS4_XAWRITE.
pub const XAWRITE: u32 = 0x80;
/// ACCESS4_XALIST.
pub const XALIST: u32 = 0x100;

xdr_struct! {
    /// ACCESS4args.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Args {
        /// Requested rights.
        pub access: u32,
    }
}

xdr_struct! {
    /// ACCESS4resok.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Res {
        /// Rights that the server can check.
        pub supported: u32,
        /// Granted rights.
        pub access: u32,
    }
}
