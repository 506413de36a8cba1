//! IO_ADVISE (RFC 7862 §15.5).

use super::Rule;
use crate::v4::failure::Failure;
use crate::v4::request::Cx;
use crate::v4::request::io::open_for_io;
use crate::v4::state::shares::IoAccess;
use zgate_nfs_wire::v4::op::IoAdvise;
use zgate_nfs_wire::v4::op::io_advise::Args;
use zgate_nfs_wire::v4::{Bitmap, Status};
use zgate_store::file_store::Advice;

/// io_advise_type4 numbers with an equivalent in the store.
const HINTS: [(u32, Advice); 6] = [
    (0, Advice::Normal),
    (1, Advice::Sequential),
    (3, Advice::Random),
    (4, Advice::WillNeed),
    (6, Advice::DontNeed),
    (7, Advice::NoReuse),
];

impl Rule for IoAdvise {
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
