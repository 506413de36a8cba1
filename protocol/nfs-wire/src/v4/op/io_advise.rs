//! IO_ADVISE (RFC 7862 §15.5).

use crate::v4::{Bitmap, Stateid};
use zgate_xdr::xdr_struct;

xdr_struct! {
    /// IO_ADVISE4args.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Args {
        /// A stateid of the file.
        pub stateid: Stateid,
        /// First byte.
        pub offset: u64,
        /// Bytes; 0: to the end.
        pub count: u64,
        /// io_advise_type4 bits.
        pub hints: Bitmap,
    }
}
