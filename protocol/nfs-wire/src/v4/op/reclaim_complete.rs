//! RECLAIM_COMPLETE (RFC 8881 §18.51).

use zgate_xdr::xdr_struct;

xdr_struct! {
    /// RECLAIM_COMPLETE4args.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Args {
        /// rca_one_fs: applies to the file system of the current file handle
        /// only.
        pub one_fs: bool,
    }
}
