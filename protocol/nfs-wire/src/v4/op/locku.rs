//! LOCKU (RFC 8881 §18.12).

use crate::v4::{LockType, Stateid};
use zgate_xdr::xdr_struct;

xdr_struct! {
    /// LOCKU4args.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Args {
        /// Ignored, but must be valid.
        pub kind: LockType,
        /// Lock owner's sequence number (minor version 0).
        pub seqid: u32,
        /// The lock stateid.
        pub stateid: Stateid,
        /// First byte.
        pub offset: u64,
        /// Bytes; all ones: to the end.
        pub length: u64,
    }
}

xdr_struct! {
    /// LOCKU4resok.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Res {
        /// Its new version.
        pub stateid: Stateid,
    }
}
