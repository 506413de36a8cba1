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

/// Bytes of the reply beside the data: number of the operation, status, eof, length, padding.
const FRAME_BYTES: usize = 4 * 4 + 3;

impl Rule for Read {
    async fn run(cx: &mut Cx<'_>, args: Args) -> Result<Res, Failure> {
        let object = cx.object(Status::Isdir)?;
        let file = match open_for_io(cx, &object, args.stateid, IoAccess::Read).await {
            Ok(file) => file,
            Err(status) => return Err(kind_first(cx, &object, status).await.into()),
        };
        let asked = args.count.min(object.export.max_transfer_bytes) as usize;
        let count = asked.min(cx.reply_room.saturating_sub(FRAME_BYTES));
        let how = ReadHow { span_allowed: cx.span_allowed(), tells_holes: false };
        let read = object.export.store.read(&file, args.offset, count, how).await?;
        require_room(cx, (asked, count), read.eof)?;
        Ok(Res { eof: read.eof, data: read.data })
    }
}

/// Refuses an answer with none of the bytes that were asked for, because there is room for `count`
/// = 0: a client would ask for the rest of such a short read for ever. The end of the file needs
/// no room.
///
/// # Errors
/// The status for an answer that is too big (RFC 8881 §2.10.6.4).
pub(super) fn require_room(
    cx: &Cx<'_>,
    (asked, count): (usize, usize),
    eof: bool,
) -> Result<(), Status> {
    if asked > 0 && count == 0 && !eof { Err(cx.reply_limit().1) } else { Ok(()) }
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
