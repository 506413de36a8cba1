//! LINK (RFC 1813 §3.3.15).

use crate::v3::{Attributes, DirOpArgs, Fh3, WccData};

zgate_xdr::xdr_struct! {
    /// LINK3args.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Args {
        /// The existing object.
        pub file: Fh3,
        /// Its new name.
        pub link: DirOpArgs,
    }
}

zgate_xdr::xdr_struct! {
    /// LINK3resok and LINK3resfail.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct Linked {
        /// The object.
        pub attributes: Option<Attributes>,
        /// The directory of the new name.
        pub dir_wcc: WccData,
    }
}
