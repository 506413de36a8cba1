//! LOOKUP (RFC 1813 §3.3.3).

use crate::v3::{Attributes, Fh3};

zgate_xdr::xdr_struct! {
    /// LOOKUP3resok.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Found {
        /// Handle of the object.
        pub fh: Fh3,
        /// Its attributes.
        pub attributes: Option<Attributes>,
        /// The directory's attributes.
        pub dir_attributes: Option<Attributes>,
    }
}
