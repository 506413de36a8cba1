//! READ_PLUS (RFC 7862 §15.10): data and holes.

use super::read::kind_first;
use super::{Failure, Operation};
use crate::limits::MAX_TRANSFER_BYTES;
use crate::v4::cx::Cx;
use crate::v4::state::io::{IoAccess, open_for_io};
use crate::v4::wire::{OpNum, Stateid, Status};
use zgate_store::file_store::{ReadHow, SeekWhat};
use zgate_store::{Payload, StoreError};
use zgate_xdr::{Decode, Decoder, Encode, Encoder, XdrError, xdr_struct};

/// Most segments of one answer.
const MAX_SEGMENTS: usize = 8;
/// Bytes around one segment.
const FRAME_BYTES: usize = 24;

xdr_struct! {
    /// READ_PLUS4args.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Args {
        /// A stateid that allows reading.
        pub stateid: Stateid,
        /// First byte.
        pub offset: u64,
        /// Most bytes wanted.
        pub count: u32,
    }
}

/// read_plus_content.
#[derive(Clone, Debug)]
pub enum Content {
    /// Bytes at an offset.
    Data(u64, Payload),
    /// Offset and length of a hole.
    Hole(u64, u64),
}

/// read_plus_res4.
#[derive(Clone, Debug)]
pub struct Res {
    /// The content reaches the end of the file.
    pub eof: bool,
    /// In order, without gaps.
    pub contents: Vec<Content>,
}

impl Encode for Res {
    fn encode(&self, e: &mut Encoder) {
        self.eof.encode(e);
        e.u32(self.contents.len() as u32);
        for content in &self.contents {
            match content {
                Content::Data(offset, data) => {
                    e.u32(0);
                    e.u64(*offset);
                    e.bulk(data.clone());
                }
                Content::Hole(offset, length) => {
                    e.u32(1);
                    e.u64(*offset);
                    e.u64(*length);
                }
            }
        }
    }
}

impl Decode for Res {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        let eof = Decode::decode(d)?;
        let mut contents = Vec::new();
        for _ in 0..d.length(1024)? {
            contents.push(match d.u32()? {
                0 => Content::Data(d.u64()?, Payload::Bytes(d.bulk(MAX_TRANSFER_BYTES)?)),
                1 => Content::Hole(d.u64()?, d.u64()?),
                _ => return Err(XdrError::BadValue),
            });
        }
        Ok(Self { eof, contents })
    }
}

/// The operation.
pub struct ReadPlus;

impl Operation for ReadPlus {
    const NUM: OpNum = OpNum::ReadPlus;
    type Args = Args;
    type Res = Res;

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
        // A reply that is kept must not change with the file.
        let kept = cx.slot.as_ref().is_some_and(|slot| slot.cache_this);
        let how = ReadHow { span_allowed: cx.call.span_allowed && !kept };
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
