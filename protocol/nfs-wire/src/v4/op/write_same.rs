//! WRITE_SAME (RFC 7862 §15.12): optional, not supported.

use crate::limits::MAX_TRANSFER_BYTES;
use crate::v4::{StableHow, Stateid};
use zgate_xdr::{Opaque, xdr_struct};

xdr_struct! {
    /// WRITE_SAME4args.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Args {
        /// A stateid that allows writing.
        pub stateid: Stateid,
        /// Requested stability.
        pub stable: StableHow,
        /// adb_offset.
        pub offset: u64,
        /// adb_block_size.
        pub block_bytes: u64,
        /// adb_block_count.
        pub block_count: u64,
        /// adb_reloff_blocknum.
        pub number_offset: u64,
        /// adb_block_num.
        pub block_number: u32,
        /// adb_reloff_pattern.
        pub pattern_offset: u64,
        /// adb_pattern.
        pub pattern: Opaque<MAX_TRANSFER_BYTES>,
    }
}
