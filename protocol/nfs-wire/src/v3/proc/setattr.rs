//! SETATTR (RFC 1813 §3.3.2).

use crate::v3::{Fh3, NfsTime, SetAttributes};

zgate_xdr::xdr_struct! {
    /// SETATTR3args.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Args {
        /// The object.
        pub object: Fh3,
        /// The changes.
        pub attributes: SetAttributes,
        /// Expected ctime; with another one nothing is changed.
        pub guard: Option<NfsTime>,
    }
}
