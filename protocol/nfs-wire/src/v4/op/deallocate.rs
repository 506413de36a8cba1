//! DEALLOCATE (RFC 7862 §15.4).

use crate::v4::Stateid;
use zgate_xdr::xdr_struct;

xdr_struct! {
    /// DEALLOCATE4args.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Args {
        /// A stateid that allows writing.
        pub stateid: Stateid,
        /// First byte.
        pub offset: u64,
        /// Bytes.
        pub length: u64,
    }
}
