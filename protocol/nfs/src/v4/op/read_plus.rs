//! READ_PLUS (RFC 7862 §15.10): data and holes. Linux clients of NFSv4.2 read files by it.

use super::Rule;
use super::read::{kind_first, require_room};
use crate::v4::failure::Failure;
use crate::v4::request::Cx;
use crate::v4::request::io::open_for_io;
use crate::v4::state::shares::IoAccess;
use zgate_nfs_wire::v4::Status;
use zgate_nfs_wire::v4::op::ReadPlus;
use zgate_nfs_wire::v4::op::read_plus::{Args, Content, Res};
use zgate_store::file_store::{FileStore, OpenFile, ReadData, ReadHow, SeekWhat};
use zgate_store::{Payload, StoreError, StoreResult};

/// Most segments of one answer.
const MAX_SEGMENTS: usize = 8;
/// Bytes of a hole in an answer: kind, offset, length.
const HOLE_BYTES: u64 = 20;
/// Bytes of data in an answer beside the data: kind, offset, length.
const DATA_BYTES: u64 = 16;
/// Most bytes of the reply beside as many as were asked for: number of the operation, status, eof,
/// number of segments, and one hole or the frame and padding of data.
const FRAME_BYTES: usize = 4 * 4 + HOLE_BYTES as usize;
const _: () = assert!(DATA_BYTES + 3 <= HOLE_BYTES);
/// Fewest bytes of a request whose answer may have a hole. Linux 6.12 fails a read of one byte that
/// is answered by a hole.
const LEAST_WITH_HOLES: usize = 64;

impl Rule for ReadPlus {
    async fn run(cx: &mut Cx<'_>, args: Args) -> Result<Res, Failure> {
        let object = cx.object(Status::Isdir)?;
        let file = match open_for_io(cx, &object, args.stateid, IoAccess::Read).await {
            Ok(file) => file,
            Err(status) => return Err(kind_first(cx, &object, status).await.into()),
        };
        let store = &*object.export.store;
        let asked = args.count.min(object.export.max_transfer_bytes) as usize;
        let count = asked.min(cx.reply_room.saturating_sub(FRAME_BYTES));
        let tells_holes = count >= LEAST_WITH_HOLES;
        let how = ReadHow { span_allowed: cx.span_allowed(), tells_holes };
        let read = store.read(&file, args.offset, count, how).await?;
        let res = match read.size_with_holes {
            Some(size) => with_holes(store, &file, (args.offset, count as u64, size), how).await?,
            None => in_one(args.offset, read, tells_holes),
        };
        require_room(cx, (asked, count), res.eof)?;
        Ok(res)
    }
}

/// Returns what was read of a file that has no holes, or whose holes cannot be asked for without
/// a wait: one segment. Zeros alone are told as a hole where they pass through memory: ZFS stores
/// none if it compresses, and clients read a hole as zeros.
fn in_one(offset: u64, read: ReadData, tells_holes: bool) -> Res {
    let contents = match read.data {
        data if data.is_empty() => Vec::new(),
        Payload::Bytes(bytes) if tells_holes && are_zeros(&bytes) => {
            vec![Content::Hole(offset, bytes.len() as u64)]
        }
        data => vec![Content::Data(offset, data)],
    };
    Res { eof: read.eof, contents }
}

/// Returns whether there is no other byte than 0. Looks at a little of most data.
fn are_zeros(bytes: &[u8]) -> bool {
    bytes.chunks(256).all(|some| some.iter().fold(0, |all, byte| all | byte) == 0)
}

/// Reads a range of a file of this size, and asks for each hole in it. The answer takes no more
/// room than one segment with all bytes of the range: Linux receives into that much.
async fn with_holes(
    store: &dyn FileStore,
    file: &OpenFile,
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
                let (data, now) = last_hole(store, file, (at, size), how).await?;
                size = now;
                data
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
        let hole = match store.seek(file, at, SeekWhat::Hole).await {
            Ok(hole) if hole > at => hole.min(end),
            // Truncated, or punched meanwhile: a hole is read as zeros.
            _ => end,
        };
        // XDR pads the bytes to a multiple of four.
        let fits = room.saturating_sub(DATA_BYTES) & !3;
        let len = hole.saturating_sub(at).min(fits);
        if len == 0 {
            break;
        }
        let read =
            store.read(file, at, len as usize, ReadHow { tells_holes: false, ..how }).await?;
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

/// Returns where a hole at `at` ends behind which no data was found, and the size of the file:
/// it may have been truncated meanwhile. If it was truncated before and has grown since, what was
/// written is no hole: so data is looked for again once the size is known.
async fn last_hole(
    store: &dyn FileStore,
    file: &OpenFile,
    (at, size): (u64, u64),
    how: ReadHow,
) -> StoreResult<(u64, u64)> {
    let now = store.read(file, at, 0, how).await?;
    match now.size_with_holes {
        Some(size) if size > at => match store.seek(file, at, SeekWhat::Data).await {
            Err(StoreError::BeyondEnd) => Ok((size, size)),
            data => Ok((data?, size)),
        },
        // All of it is data now.
        None if !now.eof => Ok((at, size)),
        _ => Ok((at, at)),
    }
}
