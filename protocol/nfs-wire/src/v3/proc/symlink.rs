//! SYMLINK (RFC 1813 §3.3.10).

use crate::v3::{DirOpArgs, Path3, SetAttributes};

zgate_xdr::xdr_struct! {
    /// SYMLINK3args.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Args {
        /// Directory and name.
        pub dir_op: DirOpArgs,
        /// Initial attributes.
        pub attributes: SetAttributes,
        /// Path in the link.
        pub target: Path3,
    }
}
