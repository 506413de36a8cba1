//! RENAME (RFC 8881 §18.26).

use crate::v4::{ChangeInfo, Component};
use zgate_xdr::xdr_struct;

xdr_struct! {
    /// RENAME4args.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Args {
        /// Name in the saved directory.
        pub old: Component,
        /// Name in the current directory.
        pub new: Component,
    }
}

xdr_struct! {
    /// RENAME4resok.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Res {
        /// Change of the saved directory.
        pub source: ChangeInfo,
        /// Change of the current directory.
        pub target: ChangeInfo,
    }
}
