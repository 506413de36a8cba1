//! ACCESS (RFC 1813 §3.3.4).

use crate::v3::{Attributes, Fh3};

/// ACCESS3_READ.
pub const READ: u32 = 0x01;
/// ACCESS3_LOOKUP.
pub const LOOKUP: u32 = 0x02;
/// ACCESS3_MODIFY.
pub const MODIFY: u32 = 0x04;
/// ACCESS3_EXTEND.
pub const EXTEND: u32 = 0x08;
/// ACCESS3_DELETE.
pub const DELETE: u32 = 0x10;
/// ACCESS3_EXECUTE.
pub const EXECUTE: u32 = 0x20;

zgate_xdr::xdr_struct! {
    /// ACCESS3args.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Args {
        /// The object.
        pub object: Fh3,
        /// Requested rights.
        pub access: u32,
    }
}

zgate_xdr::xdr_struct! {
    /// ACCESS3resok.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Granted {
        /// Attributes of the object.
        pub attributes: Option<Attributes>,
        /// Granted rights among the requested ones.
        pub access: u32,
    }
}
