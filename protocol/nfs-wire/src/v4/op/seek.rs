//! SEEK (RFC 7862 §15.11).

use crate::v4::Stateid;
use zgate_xdr::xdr_struct;

xdr_struct! {
    /// SEEK4args.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Args {
        /// A stateid that allows reading.
        pub stateid: Stateid,
        /// First byte of the search.
        pub offset: u64,
        /// NFS4_CONTENT_DATA 0 or NFS4_CONTENT_HOLE 1.
        pub what: u32,
    }
}

xdr_struct! {
    /// seek_res4.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Res {
        /// No data or hole of that kind before the end.
        pub eof: bool,
        /// Offset of the data or hole.
        pub offset: u64,
    }
}
