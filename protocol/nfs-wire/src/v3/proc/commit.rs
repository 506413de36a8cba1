//! COMMIT (RFC 1813 §3.3.21). The whole file is committed, regardless of the
//! range.

use crate::v3::{Fh3, WccData};

zgate_xdr::xdr_struct! {
    /// COMMIT3args.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Args {
        /// The file.
        pub file: Fh3,
        /// First byte.
        pub offset: u64,
        /// Bytes; 0: to the end.
        pub count: u32,
    }
}

zgate_xdr::xdr_struct! {
    /// COMMIT3resok.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Committed {
        /// The file.
        pub wcc: WccData,
        /// Differs from the verifier of a WRITE whose data may have been lost.
        pub verifier: [u8; 8],
    }
}
