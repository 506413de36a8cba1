//! Parsing a reply: its inline part, and its parts in offered memory.

use crate::header::{Body, ErrorBody, Header, HeaderError, Xid};
use crate::segment::{Chunks, WriteChunk};
use thiserror::Error;

/// Location of the RPC reply, without the results that were written directly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Results<'a> {
    /// Inline bytes.
    Inline(&'a [u8]),
    /// The first bytes of the reply chunk.
    InReplyChunk {
        /// Length in bytes.
        len: usize,
    },
}

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply<'a> {
    /// Credits granted, at least one.
    pub credits: u32,
    /// The RPC message.
    pub results: Results<'a>,
    /// Number of bytes written to each offered write chunk.
    pub written: Vec<usize>,
}

/// Reason for which a call has no reply.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum ReplyError {
    /// The responder supports other versions.
    #[error("the server speaks versions {low} to {high}")]
    Version {
        /// Lowest version.
        low: u32,
        /// Highest version.
        high: u32,
    },
    /// The responder could not use the chunks.
    #[error("the server could not use the memory it was offered")]
    Chunk,
    /// Fault of the responder: no valid transport header.
    #[error("no reply: {0}")]
    Header(#[from] HeaderError),
    /// Fault of the responder: a reply that does not fit the call.
    #[error("a reply that does not fit its call: {0}")]
    Mismatch(&'static str),
}

impl<'a> Reply<'a> {
    /// Returns the transaction id of a message, to find its call.
    #[must_use]
    pub fn xid(message: &[u8]) -> Option<Xid> {
        message.first_chunk::<4>().map(|bytes| Xid(u32::from_be_bytes(*bytes)))
    }

    /// Parses the reply to the call that offered `offered`.
    ///
    /// # Errors
    /// [`ReplyError`].
    pub fn read(message: &'a [u8], offered: &Chunks) -> Result<Self, ReplyError> {
        let decoded = Header::decode(message)?;
        let credits = decoded.header.credits.max(1);
        let (chunks, inline) = match decoded.header.body {
            Body::Message(chunks) => (chunks, Some(decoded.inline)),
            Body::NoMessage(chunks) => (chunks, None),
            Body::Error(ErrorBody::Version { low, high, .. }) => {
                return Err(ReplyError::Version { low, high });
            }
            Body::Error(ErrorBody::Chunk) => return Err(ReplyError::Chunk),
            Body::Done => return Err(ReplyError::Mismatch("RDMA_DONE")),
        };
        // RFC 8166 §4.3.1: a reply has no read list.
        if !chunks.reads.is_empty() {
            return Err(ReplyError::Mismatch("a read list"));
        }
        let written = written(&chunks.writes, &offered.writes)?;
        let len = match (&chunks.reply, &offered.reply) {
            (None, _) => 0,
            (Some(used), Some(offered)) => used_bytes(used, offered)?,
            (Some(_), None) => {
                return Err(ReplyError::Mismatch("a reply chunk that was not offered"));
            }
        };
        let results = match (inline, len) {
            (Some(inline), 0) => Results::Inline(inline),
            (None, len) if len > 0 => Results::InReplyChunk { len },
            _ => return Err(ReplyError::Mismatch("inline and reply chunk")),
        };
        Ok(Self { credits, results, written })
    }
}

fn written(used: &[WriteChunk], offered: &[WriteChunk]) -> Result<Vec<usize>, ReplyError> {
    if used.len() > offered.len() {
        return Err(ReplyError::Mismatch("more write chunks than offered"));
    }
    let mut bytes = vec![0; offered.len()];
    for ((used, offered), bytes) in used.iter().zip(offered).zip(&mut bytes) {
        *bytes = used_bytes(used, offered)?;
    }
    Ok(bytes)
}

/// Returns the number of bytes used of a chunk; it must be the offered one,
/// filled from its start.
fn used_bytes(used: &WriteChunk, offered: &WriteChunk) -> Result<usize, ReplyError> {
    let total: u64 = used.capacity_bytes();
    if total > offered.capacity_bytes() {
        return Err(ReplyError::Mismatch("more bytes than offered"));
    }
    if *used != offered.used(total as usize) {
        return Err(ReplyError::Mismatch("other memory than offered"));
    }
    Ok(total as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::Segment;

    fn offered() -> Chunks {
        let segment = |handle, length| Segment { handle, length, offset: 0 };
        Chunks {
            reads: Vec::new(),
            writes: vec![WriteChunk { segments: vec![segment(1, 100), segment(2, 100)] }],
            reply: Some(WriteChunk { segments: vec![segment(3, 500)] }),
        }
    }

    fn reply(body: Body) -> Vec<u8> {
        Header { xid: Xid(9), credits: 0, body }.encode()
    }

    #[test]
    fn results_are_found_where_they_are() {
        let offered = offered();
        let chunks = Chunks { writes: vec![offered.writes[0].used(130)], ..Default::default() };
        let mut message = reply(Body::Message(chunks));
        message.extend_from_slice(b"reply");
        let read = Reply::read(&message, &offered).unwrap();
        assert_eq!(read.results, Results::Inline(b"reply"));
        assert_eq!((read.credits, read.written), (1, vec![130]));
        assert_eq!(Reply::xid(&message), Some(Xid(9)));

        let chunks =
            Chunks { reply: offered.reply.as_ref().map(|c| c.used(77)), ..Default::default() };
        let message = reply(Body::NoMessage(chunks));
        let read = Reply::read(&message, &offered).unwrap();
        assert_eq!(read.results, Results::InReplyChunk { len: 77 });
        assert_eq!(read.written, [0]);
    }

    #[test]
    fn memory_that_was_not_offered_is_not_believed() {
        let offered = offered();
        let mut foreign = offered.writes[0].used(10);
        foreign.segments[0].handle = 66;
        let mut gap = offered.writes[0].clone();
        gap.segments[0].length = 10;
        for writes in [vec![foreign], vec![gap], vec![offered.writes[0].used(0); 2]] {
            let message = reply(Body::Message(Chunks { writes, ..Default::default() }));
            assert!(matches!(Reply::read(&message, &offered), Err(ReplyError::Mismatch(_))));
        }
        let nothing = reply(Body::NoMessage(Chunks::default()));
        assert!(Reply::read(&nothing, &offered).is_err());
        let error = reply(Body::Error(ErrorBody::Chunk));
        assert_eq!(Reply::read(&error, &offered), Err(ReplyError::Chunk));
    }
}
