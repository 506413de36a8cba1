//! Framing a call (RFC 8166 §3.5): inline, with its data in a read chunk, or
//! as a whole in a chunk at position zero.

use crate::header::{Body, Header, Xid};
use crate::segment::{Chunks, ReadSegment, Segment, WriteChunk};
use std::ops::Range;
use thiserror::Error;

/// A call and the memory registered for it.
#[derive(Clone, Debug, Default)]
pub struct CallParts<'a> {
    /// Length of the RPC message in bytes, bulk data and padding included.
    pub len: usize,
    /// Data item in a read chunk: its position and length in the message, and
    /// its registered memory.
    pub bulk: Option<(usize, usize, &'a [Segment])>,
    /// Registered memory that holds the whole message, if it is too long to be
    /// sent inline.
    pub whole: &'a [Segment],
    /// Memory for results.
    pub writes: Vec<WriteChunk>,
    /// Memory for a long reply.
    pub reply: Option<WriteChunk>,
}

/// The call is longer than the inline threshold, and no memory holds it as a
/// whole.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("a call of {0} bytes needs a chunk at position zero")]
pub struct CallTooLong(pub usize);

/// Frame of a call: one Send of the header and the inline ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallFrame {
    /// The transport header.
    pub header: Vec<u8>,
    /// Ranges of the message sent behind the header.
    pub inline: Vec<Range<usize>>,
    /// Chunk lists as sent; the reply is checked against them.
    pub offered: Chunks,
}

impl CallFrame {
    /// Frames a call that requests `credits`, within the inline threshold
    /// `send_bytes`.
    ///
    /// # Errors
    /// [`CallTooLong`].
    pub fn new(
        xid: Xid,
        credits: u32,
        send_bytes: u32,
        parts: CallParts<'_>,
    ) -> Result<Self, CallTooLong> {
        let mut chunks = Chunks { reads: Vec::new(), writes: parts.writes, reply: parts.reply };
        let mut inline = Vec::new();
        let mut at = 0;
        if let Some((position, len, segments)) = parts.bulk {
            chunks.reads.extend(reads(position, segments));
            inline.push(0..position);
            // RFC 8166 §3.4.5.2: the padding is omitted together with its item.
            at = position + len.next_multiple_of(4);
        }
        inline.push(at..parts.len);
        inline.retain(|range| !range.is_empty());
        let header = Header { xid, credits, body: Body::Message(chunks.clone()) }.encode();
        let inline_bytes: usize = inline.iter().map(Range::len).sum();
        if header.len() + inline_bytes <= send_bytes as usize {
            return Ok(Self { header, inline, offered: chunks });
        }
        if parts.whole.is_empty() {
            return Err(CallTooLong(parts.len));
        }
        chunks.reads = reads(0, parts.whole).collect();
        let header = Header { xid, credits, body: Body::NoMessage(chunks.clone()) }.encode();
        if header.len() > send_bytes as usize {
            return Err(CallTooLong(parts.len));
        }
        Ok(Self { header, inline: Vec::new(), offered: chunks })
    }
}

fn reads(position: usize, segments: &[Segment]) -> impl Iterator<Item = ReadSegment> + '_ {
    segments.iter().map(move |&target| ReadSegment { position: position as u32, target })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT: Segment = Segment { handle: 4, length: 4096, offset: 0x4000 };

    #[test]
    fn the_three_forms() {
        let short = CallFrame::new(Xid(1), 8, 1024, CallParts { len: 100, ..Default::default() });
        assert_eq!(short.unwrap().inline, std::slice::from_ref(&(0..100)));
        let parts = CallParts {
            len: 4096 + 120,
            bulk: Some((100, 4096, std::slice::from_ref(&SEGMENT))),
            ..Default::default()
        };
        let write = CallFrame::new(Xid(1), 8, 1024, parts).unwrap();
        assert_eq!(write.inline, [0..100, 4196..4216]);
        assert_eq!(write.offered.reads[0].position, 100);
        let parts =
            CallParts { len: 2000, whole: std::slice::from_ref(&SEGMENT), ..Default::default() };
        let long = CallFrame::new(Xid(1), 8, 1024, parts).unwrap();
        assert!(long.inline.is_empty());
        assert_eq!(long.offered.reads, [ReadSegment { position: 0, target: SEGMENT }]);
        let parts = CallParts { len: 2000, ..Default::default() };
        assert_eq!(CallFrame::new(Xid(1), 8, 1024, parts), Err(CallTooLong(2000)));
    }
}
