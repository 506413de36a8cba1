//! CLONE (RFC 7862 §15.13): shares blocks, atomically.

use crate::v4::Stateid;
use zgate_xdr::xdr_struct;

xdr_struct! {
    /// CLONE4args.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Args {
        /// Stateid for reading the saved file.
        pub from: Stateid,
        /// Stateid for writing the current file.
        pub to: Stateid,
        /// First byte to share.
        pub from_offset: u64,
        /// Target offset.
        pub to_offset: u64,
        /// Bytes; 0: to the source's end.
        pub count: u64,
    }
}
