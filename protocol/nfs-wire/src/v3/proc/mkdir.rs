//! MKDIR (RFC 1813 §3.3.9), and code shared by all procedures that create
//! something other than a regular file.

use crate::v3::{DirOpArgs, SetAttributes};

zgate_xdr::xdr_struct! {
    /// MKDIR3args.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Args {
        /// Directory and name.
        pub dir_op: DirOpArgs,
        /// Initial attributes.
        pub attributes: SetAttributes,
    }
}
