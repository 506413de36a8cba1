//! WRITE_SAME (RFC 7862 §15.12): optional, not offered.

use super::{Failure, Operation};
use crate::limits::MAX_TRANSFER_BYTES;
use crate::v4::cx::Cx;
use crate::v4::wire::{OpNum, StableHow, Stateid, Status};
use zgate_xdr::{Opaque, xdr_struct};

xdr_struct! {
    /// WRITE_SAME4args.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Args {
        /// Allows writing.
        pub stateid: Stateid,
        /// How stable before the answer.
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

/// The operation.
pub struct WriteSame;

impl Operation for WriteSame {
    const NUM: OpNum = OpNum::WriteSame;
    type Args = Args;
    type Res = ();

    async fn run(cx: &mut Cx<'_>, _: Args) -> Result<(), Failure> {
        cx.current()?;
        Err(Status::Notsupp.into())
    }
}
