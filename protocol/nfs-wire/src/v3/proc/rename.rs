//! RENAME (RFC 1813 §3.3.14).

use crate::v3::{DirOpArgs, WccData};

zgate_xdr::xdr_struct! {
    /// RENAME3args.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Args {
        /// Old directory and name.
        pub from: DirOpArgs,
        /// New directory and name.
        pub to: DirOpArgs,
    }
}

zgate_xdr::xdr_struct! {
    /// RENAME3resok and RENAME3resfail.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct Both {
        /// Old directory.
        pub from_wcc: WccData,
        /// New directory.
        pub to_wcc: WccData,
    }
}
