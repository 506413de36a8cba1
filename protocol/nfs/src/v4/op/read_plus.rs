//! READ_PLUS (RFC 7862 §15.10): data and holes. Linux clients of NFSv4.2 read files by it.

use super::Rule;
use super::read::kind_first;
use crate::v4::failure::Failure;
use crate::v4::request::Cx;
use crate::v4::request::io::open_for_io;
use crate::v4::state::shares::IoAccess;
use zgate_nfs_wire::v4::Status;
use zgate_nfs_wire::v4::op::ReadPlus;
use zgate_nfs_wire::v4::op::read_plus::{Args, Content, Res};
use zgate_store::file_store::{FileStore, OpenFile, ReadHow, SeekWhat};
use zgate_store::{NodeHandle, Payload, StoreError, StoreResult};

/// Most segments of one answer.
const MAX_SEGMENTS: usize = 8;
/// Bytes of the reply beside the data of one segment, at most.
const FRAME_BYTES: usize = 24;
/// Bytes of a hole in an answer: kind, offset, length.
const HOLE_BYTES: u64 = 20;
/// Fewest bytes of a request whose answer may have a hole. Linux 6.12 fails a read of one byte that
/// is answered by a hole.
const LEAST_WITH_HOLES: usize = 64;
/// Bytes of data in an answer beside the data: kind, offset, length.
const DATA_BYTES: u64 = 16;

impl Rule for ReadPlus {
    async fn run(cx: &mut Cx<'_>, args: Args) -> Result<Res, Failure> {
        let object = cx.object(Status::Isdir)?;
        let file = match open_for_io(cx, &object, args.stateid, IoAccess::Read).await {
            Ok(file) => file,
            Err(status) => return Err(kind_first(cx, &object, status).await.into()),
        };
        let store = &object.export.store;
        let room = cx.reply_room.saturating_sub(FRAME_BYTES * (MAX_SEGMENTS + 1));
        let count = (args.count.min(object.export.max_transfer_bytes) as usize).min(room);
        let how = ReadHow { span_allowed: cx.span_allowed() };
        if count >= LEAST_WITH_HOLES && store.traits().seeks_at_once {
            let attr = store.getattr(&object.node).await?;
            if attr.used_bytes < attr.size {
                let range = (args.offset, count as u64, attr.size);
                return Ok(with_holes(&**store, (&file, &object.node), range, how).await?);
            }
        }
        Ok(in_one(&**store, &file, (args.offset, count), how).await?)
    }
}

/// Reads a range of a file that has no holes, or whose holes cannot be asked for without a wait:
/// one segment. Zeros alone are told as a hole where they pass through memory: ZFS stores none if
/// it compresses, and clients read a hole as zeros.
async fn in_one(
    store: &dyn FileStore,
    file: &OpenFile,
    (offset, count): (u64, usize),
    how: ReadHow,
) -> StoreResult<Res> {
    let read = store.read(file, offset, count, how).await?;
    let contents = match read.data {
        data if data.is_empty() => Vec::new(),
        Payload::Bytes(bytes) if count >= LEAST_WITH_HOLES && are_zeros(&bytes) => {
            vec![Content::Hole(offset, bytes.len() as u64)]
        }
        data => vec![Content::Data(offset, data)],
    };
    Ok(Res { eof: read.eof, contents })
}

/// Returns whether there is no other byte than 0. Looks at a little of most data.
fn are_zeros(bytes: &[u8]) -> bool {
    bytes.chunks(256).all(|some| some.iter().fold(0, |all, byte| all | byte) == 0)
}

/// Reads a range of a file of this size, and asks for each hole in it. The answer takes no more
/// room than one segment with all bytes of the range: Linux receives into that much.
async fn with_holes(
    store: &dyn FileStore,
    (file, node): (&OpenFile, &NodeHandle),
    (offset, count, mut size): (u64, u64, u64),
    how: ReadHow,
) -> StoreResult<Res> {
    let asked_end = offset.saturating_add(count);
    let mut room = count.saturating_add(HOLE_BYTES);
    let mut res = Res { eof: false, contents: Vec::new() };
    let mut at = offset;
    while at < asked_end.min(size) && res.contents.len() < MAX_SEGMENTS {
        let data = match store.seek(file, at, SeekWhat::Data).await {
            Ok(data) => data,
            Err(StoreError::BeyondEnd) => {
                // A hole, or the file has been truncated meanwhile.
                size = store.getattr(node).await?.size.min(size);
                size
            }
            Err(error) => return Err(error),
        };
        let data = data.min(asked_end).min(size);
        if data > at {
            if room < HOLE_BYTES {
                break;
            }
            room -= HOLE_BYTES;
            res.contents.push(Content::Hole(at, data - at));
            at = data;
            continue;
        }
        if at >= size {
            break;
        }
        let end = asked_end.min(size);
        let hole = store.seek(file, at, SeekWhat::Hole).await.unwrap_or(end).min(end);
        // XDR pads the bytes to a multiple of four.
        let fits = room.saturating_sub(DATA_BYTES) & !3;
        let len = hole.saturating_sub(at).max(1).min(fits);
        if len == 0 {
            break;
        }
        let read = store.read(file, at, len as usize, how).await?;
        let got = read.data.len() as u64;
        if got > 0 {
            room = room.saturating_sub(DATA_BYTES + got.next_multiple_of(4));
            res.contents.push(Content::Data(at, read.data));
            at += got;
        }
        if read.eof || got == 0 {
            size = at;
        }
    }
    res.eof = at >= size;
    Ok(res)
}
