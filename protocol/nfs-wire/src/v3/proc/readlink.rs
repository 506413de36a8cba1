//! READLINK (RFC 1813 §3.3.5).

use crate::limits::MAX_LINK_BYTES;
use crate::v3::Attributes;
use zgate_xdr::DirectOpaque;

zgate_xdr::xdr_struct! {
    /// READLINK3resok.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Target {
        /// Attributes of the link.
        pub attributes: Option<Attributes>,
        /// Path in the link.
        pub path: DirectOpaque<MAX_LINK_BYTES>,
    }
}
