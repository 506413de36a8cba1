//! READ_PLUS (RFC 7862 §15.10): data and holes.

use super::Rule;
use super::read::kind_first;
use crate::v4::failure::Failure;
use crate::v4::request::Cx;
use crate::v4::request::io::open_for_io;
use crate::v4::state::shares::IoAccess;
use zgate_nfs_wire::v4::Status;
use zgate_nfs_wire::v4::op::ReadPlus;
use zgate_nfs_wire::v4::op::read_plus::{Args, Content, Res};
use zgate_store::StoreError;
use zgate_store::file_store::{ReadHow, SeekWhat};

/// Most segments of one answer.
const MAX_SEGMENTS: usize = 8;
/// Bytes of the reply beside the data of one segment.
const FRAME_BYTES: usize = 24;

impl Rule for ReadPlus {
    async fn run(cx: &mut Cx<'_>, args: Args) -> Result<Res, Failure> {
        let object = cx.object(Status::Isdir)?;
        let file = match open_for_io(cx, &object, args.stateid, IoAccess::Read).await {
            Ok(file) => file,
            Err(status) => return Err(kind_first(cx, &object, status).await.into()),
        };
        let store = &object.export.store;
        let size = store.getattr(&object.node).await?.size;
        let room = cx.reply_room.saturating_sub(FRAME_BYTES * (MAX_SEGMENTS + 1));
        let count = u64::from(args.count.min(object.export.max_transfer_bytes)).min(room as u64);
        let end = args.offset.saturating_add(count).min(size);
        let how = ReadHow { span_allowed: cx.span_allowed() };
        let mut res = Res { eof: args.offset >= size, contents: Vec::new() };
        let mut at = args.offset;
        while at < end && res.contents.len() < MAX_SEGMENTS {
            let data = match store.seek(&file, at, SeekWhat::Data).await {
                Ok(data) => data.min(end),
                Err(StoreError::BeyondEnd) => end,
                Err(error) => return Err(error.into()),
            };
            if data > at {
                res.contents.push(Content::Hole(at, data - at));
                at = data;
                continue;
            }
            let hole = store.seek(&file, at, SeekWhat::Hole).await.unwrap_or(end).min(end);
            let len = hole.saturating_sub(at).max(1) as usize;
            let read = store.read(&file, at, len, how).await?;
            let got = read.data.len() as u64;
            if got == 0 {
                break;
            }
            res.contents.push(Content::Data(at, read.data));
            at += got;
        }
        res.eof = at >= size;
        Ok(res)
    }
}
