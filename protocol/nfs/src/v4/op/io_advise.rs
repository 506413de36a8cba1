//! IO_ADVISE (RFC 7862 §15.5).

use super::{Failure, Operation};
use crate::v4::cx::Cx;
use crate::v4::state::io::{IoAccess, open_for_io};
use crate::v4::wire::{Bitmap, OpNum, Stateid, Status};
use zgate_store::file_store::Advice;
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

/// io_advise_type4 numbers that mean something to a file system here.
const HINTS: [(u32, Advice); 6] = [
    (0, Advice::Normal),
    (1, Advice::Sequential),
    (3, Advice::Random),
    (4, Advice::WillNeed),
    (6, Advice::DontNeed),
    (7, Advice::NoReuse),
];

/// The operation; it answers which hints are followed.
pub struct IoAdvise;

impl Operation for IoAdvise {
    const NUM: OpNum = OpNum::IoAdvise;
    type Args = Args;
    type Res = Bitmap;

    async fn run(cx: &mut Cx<'_>, args: Args) -> Result<Bitmap, Failure> {
        let object = cx.object(Status::Isdir)?;
        let file = open_for_io(cx, &object, args.stateid, IoAccess::Read).await?;
        let mut followed = Bitmap::default();
        for (bit, advice) in HINTS {
            if args.hints.contains(bit) {
                object.export.store.advise(&file, args.offset, args.count, advice).await?;
                followed.set(bit);
            }
        }
        Ok(followed)
    }
}
