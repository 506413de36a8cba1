//! RDMA Reads that make a call complete (RFC 8166 §3.4.5, §3.5).
//!
//! A call is an XDR stream. Part of it is inline, the rest lies in the
//! requester's memory: the whole stream (RDMA_NOMSG with a chunk at position
//! zero), single data items at their positions, or both. The plan names every
//! RDMA Read and the destination of its bytes, so that all of them can be
//! posted at once. The data of the first WRITE goes into a buffer of its own
//! and is never copied.

use crate::header::Body;
use crate::limits::{MAX_CALL_BYTES, MAX_STREAM_BYTES};
use crate::segment::{Chunks, Segment, cut};
use std::ops::Range;
use thiserror::Error;

/// Buffer of the responder that an RDMA Read fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// The stream: the call without its bulk body.
    Stream,
    /// The bulk body.
    Body,
}

/// One RDMA Read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RdmaRead {
    /// Memory to read.
    pub source: Segment,
    /// Destination buffer.
    pub destination: Destination,
    /// Offset in that buffer, in bytes.
    pub offset: usize,
}

/// Data of a WRITE, received separately from the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BulkBody {
    /// Position in the stream where it belongs; its length word ends there, its
    /// padding begins there.
    pub position: usize,
    /// Length in bytes, without padding.
    pub len: usize,
}

/// Fault of the peer: chunk lists that describe no valid call. Answered with
/// ERR_CHUNK.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("bad chunks: {0}")]
pub struct CallFault(pub &'static str);

/// Inline bytes and the position they are copied to.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Run {
    inline: Range<usize>,
    at: usize,
}

/// Plan that makes one call complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallPlan {
    stream_bytes: usize,
    runs: Vec<Run>,
    rdma_reads: Vec<RdmaRead>,
    body: Option<BulkBody>,
}

/// A chunk of the read list, with its position.
struct ReadChunk {
    position: usize,
    segments: Vec<Segment>,
    len: usize,
}

/// Source of the stream's own bytes: inline, or the chunk at position zero.
struct Source {
    segments: Option<Vec<Segment>>,
    len: usize,
    taken: usize,
}

impl CallPlan {
    /// Plans the call announced by `body` with `inline` behind its header.
    ///
    /// `bulk` locates the data of a WRITE: for the stream up to a chunk, it
    /// returns the position and length of an item that may be received
    /// separately, according to its length word.
    ///
    /// # Errors
    /// [`CallFault`] when the lists are contradictory or beyond the limits.
    pub fn new(
        body: &Body,
        inline: &[u8],
        bulk: impl FnOnce(&[u8]) -> Option<(usize, usize)>,
    ) -> Result<Self, CallFault> {
        let (chunks, whole) = match body {
            Body::Message(chunks) => (chunks, None),
            Body::NoMessage(chunks) => (chunks, Some(())),
            Body::Done | Body::Error(_) => return Err(CallFault("no call")),
        };
        let mut list = gather(chunks)?;
        let starts_at_zero = list.first().is_some_and(|chunk| chunk.position == 0);
        let mut source = match (whole, starts_at_zero) {
            (None, false) => Source { segments: None, len: inline.len(), taken: 0 },
            (Some(()), true) => {
                let first = list.remove(0);
                Source { segments: Some(first.segments), len: first.len, taken: 0 }
            }
            (None, true) => return Err(CallFault("RDMA_MSG with a chunk at position zero")),
            (Some(()), false) => return Err(CallFault("RDMA_NOMSG without a call")),
        };
        let mut plan =
            Self { stream_bytes: 0, runs: Vec::new(), rdma_reads: Vec::new(), body: None };
        let found = match list.first() {
            Some(first) if source.segments.is_none() => inline.get(..first.position).and_then(bulk),
            _ => None,
        };
        for chunk in list {
            plan.add(&chunk, &mut source, found)?;
        }
        let rest = source.len - source.taken;
        plan.advance(&mut source, rest);
        if plan.total_bytes() > MAX_CALL_BYTES || plan.stream_bytes > MAX_STREAM_BYTES {
            return Err(CallFault("a call beyond the limit"));
        }
        Ok(plan)
    }

    /// Adds a data item and the stream's own bytes before it.
    fn add(
        &mut self,
        chunk: &ReadChunk,
        source: &mut Source,
        bulk: Option<(usize, usize)>,
    ) -> Result<(), CallFault> {
        let before = chunk
            .position
            .checked_sub(self.total_bytes())
            .ok_or(CallFault("chunks that overlap"))?;
        if before > source.len - source.taken {
            return Err(CallFault("a chunk behind the end of the call"));
        }
        self.advance(source, before);
        let padding = chunk.len.wrapping_neg() & 3;
        match bulk {
            Some((position, len)) if position == chunk.position && self.body.is_none() => {
                // RFC 8166 §3.4.5.2: the chunk may or may not include the
                // item's padding; bytes behind the data are not read.
                if chunk.len != len && chunk.len != len.next_multiple_of(4) {
                    return Err(CallFault("a chunk that is not as long as its item"));
                }
                self.rdma_read(&chunk.segments, 0..len, Destination::Body, 0);
                self.body = Some(BulkBody { position: self.stream_bytes, len });
                self.stream_bytes += len.wrapping_neg() & 3;
            }
            _ => {
                self.rdma_read(
                    &chunk.segments,
                    0..chunk.len,
                    Destination::Stream,
                    self.stream_bytes,
                );
                self.stream_bytes += chunk.len + padding;
            }
        }
        Ok(())
    }

    /// Appends the next `count` of the stream's own bytes.
    fn advance(&mut self, source: &mut Source, count: usize) {
        if count == 0 {
            return;
        }
        let range = source.taken..source.taken + count;
        match &source.segments {
            None => self.runs.push(Run { inline: range, at: self.stream_bytes }),
            Some(segments) => {
                let segments = cut(segments, range);
                self.rdma_read(&segments, 0..count, Destination::Stream, self.stream_bytes);
            }
        }
        source.taken += count;
        self.stream_bytes += count;
    }

    fn rdma_read(
        &mut self,
        segments: &[Segment],
        bytes: Range<usize>,
        destination: Destination,
        at: usize,
    ) {
        let mut offset = at;
        for source in cut(segments, bytes) {
            self.rdma_reads.push(RdmaRead { source, destination, offset });
            offset += source.length as usize;
        }
    }

    /// Returns every RDMA Read, in any order.
    #[must_use]
    pub fn rdma_reads(&self) -> &[RdmaRead] {
        &self.rdma_reads
    }

    /// Returns the length of the stream's buffer, in bytes.
    #[must_use]
    pub fn stream_bytes(&self) -> usize {
        self.stream_bytes
    }

    /// Returns whether RDMA Reads write to the stream's buffer, so that it must
    /// be memory the device may write.
    #[must_use]
    pub fn pulls_stream(&self) -> bool {
        self.rdma_reads.iter().any(|read| read.destination == Destination::Stream)
    }

    /// Returns the bulk body, if the call has one that is received separately.
    #[must_use]
    pub fn body(&self) -> Option<BulkBody> {
        self.body
    }

    /// Returns the length of the call in bytes, all parts together.
    #[must_use]
    pub fn total_bytes(&self) -> usize {
        self.stream_bytes + self.body.map_or(0, |body| body.len)
    }

    /// Copies the inline bytes into the stream's buffer and clears the padding;
    /// destinations of RDMA Reads are not changed. Call it before the RDMA
    /// Reads are posted. `stream` has [`CallPlan::stream_bytes`] bytes and
    /// `inline` is the value the plan was made from; further bytes are ignored.
    pub fn place_inline(&self, inline: &[u8], stream: &mut [u8]) {
        let mut clean = 0;
        // All bytes written, in ascending order; the gaps are padding.
        let mut spans: Vec<(Range<usize>, Option<Range<usize>>)> = Vec::new();
        for run in &self.runs {
            spans.push((run.at..run.at + run.inline.len(), Some(run.inline.clone())));
        }
        for read in self.rdma_reads.iter().filter(|read| read.destination == Destination::Stream) {
            spans.push((read.offset..read.offset + read.source.length as usize, None));
        }
        spans.sort_by_key(|(range, _)| range.start);
        for (range, from) in spans {
            if let Some(padding) = stream.get_mut(clean..range.start) {
                padding.fill(0);
            }
            if let Some(from) = from.and_then(|range| inline.get(range))
                && let Some(to) = stream.get_mut(range.clone())
            {
                to.copy_from_slice(from);
            }
            clean = range.end;
        }
        if let Some(padding) = stream.get_mut(clean..) {
            padding.fill(0);
        }
    }
}

/// Groups a read list into chunks.
fn gather(chunks: &Chunks) -> Result<Vec<ReadChunk>, CallFault> {
    let mut list: Vec<ReadChunk> = Vec::new();
    for read in &chunks.reads {
        let position = read.position as usize;
        // XDR items begin at multiples of four bytes (RFC 4506 §3).
        if !position.is_multiple_of(4) {
            return Err(CallFault("a position that is not a multiple of four"));
        }
        let len = read.target.length as usize;
        match list.iter_mut().find(|chunk| chunk.position == position) {
            Some(chunk) => {
                chunk.segments.push(read.target);
                chunk.len += len;
            }
            None => list.push(ReadChunk { position, segments: vec![read.target], len }),
        }
    }
    if list.iter().map(|chunk| chunk.len).sum::<usize>() > MAX_CALL_BYTES {
        return Err(CallFault("a call beyond the limit"));
    }
    list.sort_by_key(|chunk| chunk.position);
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::ReadSegment;

    /// Returns content for the requester's memory, derived from `handle`.
    fn memory(segment: Segment) -> Vec<u8> {
        (0..segment.length)
            .map(|i| (segment.handle as u8) ^ (segment.offset as u8 + i as u8))
            .collect()
    }

    fn read(position: u32, handle: u32, length: u32, offset: u64) -> ReadSegment {
        ReadSegment { position, target: Segment { handle, length, offset } }
    }

    /// Executes a plan.
    fn run(plan: &CallPlan, inline: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let mut stream = vec![0xee; plan.stream_bytes()];
        let mut body = vec![0xee; plan.body().map_or(0, |body| body.len)];
        plan.place_inline(inline, &mut stream);
        for read in plan.rdma_reads() {
            let bytes = memory(read.source);
            let buffer = match read.destination {
                Destination::Stream => &mut stream,
                Destination::Body => &mut body,
            };
            buffer[read.offset..read.offset + bytes.len()].copy_from_slice(&bytes);
        }
        (stream, body)
    }

    fn message(reads: Vec<ReadSegment>) -> Body {
        Body::Message(Chunks { reads, ..Default::default() })
    }

    fn no_message(reads: Vec<ReadSegment>) -> Body {
        Body::NoMessage(Chunks { reads, ..Default::default() })
    }

    #[test]
    fn a_short_call_is_what_came_inline() {
        let plan = CallPlan::new(&message(vec![]), b"abcdefgh", |_| None).unwrap();
        assert!(plan.rdma_reads().is_empty());
        assert_eq!(run(&plan, b"abcdefgh").0, b"abcdefgh");
    }

    #[test]
    fn a_write_goes_into_a_buffer_of_its_own() {
        // Two segments, five bytes of data, with and without padding.
        for (second, len) in [(2, 5), (5, 5)] {
            let reads = vec![read(8, 1, 3, 10), read(8, 2, second, 20)];
            let inline = b"headlen_tail";
            let plan = CallPlan::new(&message(reads), inline, |prefix| {
                assert_eq!(prefix, b"headlen_");
                Some((8, len))
            })
            .unwrap();
            assert_eq!(plan.body(), Some(BulkBody { position: 8, len: 5 }));
            assert!(!plan.pulls_stream());
            let (stream, body) = run(&plan, inline);
            assert_eq!(stream, b"headlen_\0\0\0tail");
            let mut expected = memory(Segment { handle: 1, length: 3, offset: 10 });
            expected.extend(memory(Segment { handle: 2, length: 2, offset: 20 }));
            assert_eq!(body, expected);
        }
    }

    #[test]
    fn other_items_are_put_back_into_the_stream_with_their_padding() {
        let reads = vec![read(16, 2, 4, 0), read(4, 1, 5, 0)];
        let plan = CallPlan::new(&message(reads), b"aaaabbbbcccc", |_| None).unwrap();
        let (stream, _) = run(&plan, b"aaaabbbbcccc");
        let first = memory(Segment { handle: 1, length: 5, offset: 0 });
        let second = memory(Segment { handle: 2, length: 4, offset: 0 });
        assert_eq!(stream, [b"aaaa", &first[..], b"\0\0\0bbbb", &second, b"cccc"].concat());
    }

    #[test]
    fn a_long_call_lies_at_position_zero() {
        let plan =
            CallPlan::new(&no_message(vec![read(0, 1, 6, 0), read(0, 2, 6, 7)]), b"", |_| None)
                .unwrap();
        let (stream, _) = run(&plan, b"");
        let mut expected = memory(Segment { handle: 1, length: 6, offset: 0 });
        expected.extend(memory(Segment { handle: 2, length: 6, offset: 7 }));
        assert_eq!(stream, expected);
    }

    #[test]
    fn a_long_call_with_a_data_item_in_it() {
        let reads = vec![read(8, 3, 5, 0), read(0, 1, 6, 0), read(0, 2, 6, 7)];
        let plan = CallPlan::new(&no_message(reads), b"", |_| None).unwrap();
        let (stream, _) = run(&plan, b"");
        let mut own = memory(Segment { handle: 1, length: 6, offset: 0 });
        own.extend(memory(Segment { handle: 2, length: 6, offset: 7 }));
        let item = memory(Segment { handle: 3, length: 5, offset: 0 });
        assert_eq!(stream, [&own[..8], &item, b"\0\0\0", &own[8..]].concat());
    }

    #[test]
    fn contradictions_are_refused() {
        let refused = [
            (message(vec![read(0, 1, 4, 0)]), "position zero inline"),
            (no_message(vec![]), "nothing"),
            (no_message(vec![read(4, 1, 4, 0)]), "no position zero"),
            (message(vec![read(6, 1, 4, 0)]), "odd position"),
            (message(vec![read(16, 1, 4, 0)]), "behind the end"),
            (message(vec![read(4, 1, 8, 0), read(8, 2, 4, 0)]), "overlap"),
            (message(vec![read(4, 1, u32::MAX, 0), read(4, 1, u32::MAX, 0)]), "too long"),
            (Body::Done, "no call"),
        ];
        for (body, why) in refused {
            assert!(CallPlan::new(&body, b"aaaabbbb", |_| None).is_err(), "{why}");
        }
        let wrong_length = message(vec![read(4, 1, 9, 0)]);
        assert!(CallPlan::new(&wrong_length, b"aaaabbbb", |_| Some((4, 5))).is_err());
    }
}
