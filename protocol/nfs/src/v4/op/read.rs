//! READ (RFC 8881 §18.22).

use super::{Failure, Operation};
use crate::limits::MAX_TRANSFER_BYTES;
use crate::v4::cx::{Cx, Object};
use crate::v4::state::io::{IoAccess, open_for_io};
use crate::v4::wire::{OpNum, Stateid, Status};
use zgate_store::file_store::ReadHow;
use zgate_store::{FileKind, Payload};
use zgate_xdr::{Decode, Decoder, Encode, Encoder, XdrError, xdr_struct};

/// Bytes of the reply around the data: status, eof, length, padding.
const FRAME_BYTES: usize = 32;

xdr_struct! {
    /// READ4args.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Args {
        /// An open, lock or delegation, or a special one.
        pub stateid: Stateid,
        /// First byte.
        pub offset: u64,
        /// Most bytes wanted.
        pub count: u32,
    }
}

/// READ4resok.
#[derive(Clone, Debug)]
pub struct Res {
    /// The data reach the end of the file.
    pub eof: bool,
    /// The data.
    pub data: Payload,
}

impl Encode for Res {
    fn encode(&self, e: &mut Encoder) {
        self.eof.encode(e);
        e.direct_bulk(self.data.clone());
    }
}

impl Decode for Res {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(Self { eof: Decode::decode(d)?, data: Payload::Bytes(d.bulk(MAX_TRANSFER_BYTES)?) })
    }
}

/// The operation.
pub struct Read;

impl Operation for Read {
    const NUM: OpNum = OpNum::Read;
    type Args = Args;
    type Res = Res;

    async fn run(cx: &mut Cx<'_>, args: Args) -> Result<Res, Failure> {
        let object = cx.object(Status::Isdir)?;
        let file = match open_for_io(cx, &object, args.stateid, IoAccess::Read).await {
            Ok(file) => file,
            Err(status) => return Err(kind_first(cx, &object, status).await.into()),
        };
        let count = (args.count.min(object.export.max_transfer_bytes) as usize)
            .min(cx.reply_room.saturating_sub(FRAME_BYTES));
        // A reply that is kept must not change with the file.
        let kept = cx.slot.as_ref().is_some_and(|slot| slot.cache_this);
        let how = ReadHow { span_allowed: cx.call.span_allowed && !kept };
        let read = object.export.store.read(&file, args.offset, count, how).await?;
        Ok(Res { eof: read.eof, data: read.data })
    }
}

/// What is no regular file is said before what is wrong with the stateid.
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
