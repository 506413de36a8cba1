//! READ (RFC 8881 §18.22).

use super::Rule;
use crate::namespace::Object;
use crate::v4::failure::Failure;
use crate::v4::request::Cx;
use crate::v4::request::io::open_for_io;
use crate::v4::state::shares::IoAccess;
use zgate_nfs_wire::v4::op::Read;
use zgate_nfs_wire::v4::op::read::{Args, Res};
use zgate_nfs_wire::v4::{Bitmap, OpNum, Status};
use zgate_store::FileKind;
use zgate_store::file_store::ReadHow;
use zgate_xdr::{Decode, Decoder};

/// Bytes of the reply beside the data: status, eof, length, padding.
const FRAME_BYTES: usize = 32;

impl Rule for Read {
    async fn run(cx: &mut Cx<'_>, args: Args) -> Result<Res, Failure> {
        let object = cx.object(Status::Isdir)?;
        let file = match open_for_io(cx, &object, args.stateid, IoAccess::Read).await {
            Ok(file) => file,
            Err(status) => return Err(kind_first(cx, &object, status).await.into()),
        };
        let count = (args.count.min(object.export.max_transfer_bytes) as usize)
            .min(cx.reply_room.saturating_sub(FRAME_BYTES));
        let how = ReadHow { span_allowed: cx.span_allowed() };
        let read = object.export.store.read(&file, args.offset, count, how).await?;
        Ok(Res { eof: read.eof, data: read.data })
    }
}

/// Returns whether the next `count` operations, at which `d` is, leave the data of all files
/// as it is: those that clients combine with a READ.
pub(super) fn leave_data(mut d: Decoder<'_>, count: usize) -> bool {
    (0..count).all(|_| match OpNum::decode(&mut d) {
        Ok(OpNum::Getattr) => Bitmap::decode(&mut d).is_ok(),
        Ok(OpNum::Read) => Args::decode(&mut d).is_ok(),
        _ => false,
    })
}

/// Returns the error for an object that is not a regular file, which precedes
/// an error of the stateid.
pub(super) async fn kind_first(cx: &Cx<'_>, object: &Object, status: Status) -> Status {
    match object.export.store.getattr(&object.node).await {
        Ok(attr) => match attr.kind {
            FileKind::Regular => status,
            FileKind::Directory => Status::Isdir,
            FileKind::Symlink if cx.minor > 0 => Status::Symlink,
            _ if cx.minor > 0 => Status::WrongType,
            _ => Status::Inval,
        },
        Err(error) => error.into(),
    }
}
