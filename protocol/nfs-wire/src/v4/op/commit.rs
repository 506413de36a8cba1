//! COMMIT (RFC 8881 §18.3).

use zgate_xdr::xdr_struct;

xdr_struct! {
    /// COMMIT4args.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Args {
        /// First byte.
        pub offset: u64,
        /// Bytes; 0: to the end.
        pub count: u32,
    }
}
