//! Framing a reply (RFC 8166 §3.5, §4.3.2, §4.3.3): results into their write
//! chunks, the rest inline or into the reply chunk.

use crate::credits::Grant;
use crate::header::{Body, Header, Xid};
use crate::segment::{Chunks, Segment, WriteChunk};
use std::ops::Range;
use thiserror::Error;

/// A result of the reply that may be written directly (RFC 8267 §4, §6.1), in
/// the order of the operations. An empty result counts, too: it uses up its
/// chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataItem {
    /// Offset in the reply of its first byte, behind the length word.
    pub offset: usize,
    /// Length in bytes, without padding.
    pub len: usize,
}

/// A complete RPC reply: its length and direct results.
#[derive(Clone, Copy, Debug)]
pub struct ReplyShape<'a> {
    /// Length in bytes.
    pub len: usize,
    /// Direct results.
    pub items: &'a [DataItem],
}

/// One RDMA Write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RdmaWrite {
    /// Destination; its length is that of all the ranges.
    pub target: Segment,
    /// Ranges of the reply to write, in order.
    pub from: Vec<Range<usize>>,
}

/// Reason for which a reply cannot be sent. Answered with ERR_CHUNK: the
/// requester offered too little memory (RFC 8166 §4.5.3).
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum ReplyFault {
    /// A result is longer than its write chunk.
    #[error("a write chunk of {chunk_bytes} bytes for {item_bytes}")]
    WriteChunkTooSmall {
        /// Capacity of the chunk in bytes.
        chunk_bytes: u64,
        /// Length of the result in bytes.
        item_bytes: usize,
    },
    /// The rest fits neither inline nor into a reply chunk.
    #[error("a reply of {0} bytes fits neither inline nor into the reply chunk")]
    TooLong(usize),
}

/// Frame of one reply. The RDMA Writes are posted first, then one Send with the
/// header and the inline ranges; an RC queue pair keeps this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplyPlan {
    /// The transport header.
    pub header: Vec<u8>,
    /// RDMA Writes.
    pub rdma_writes: Vec<RdmaWrite>,
    /// Ranges of the reply that are sent behind the header.
    pub inline: Vec<Range<usize>>,
}

impl ReplyPlan {
    /// Plans the reply to the call that offered `offered`. `send_bytes` is the
    /// inline threshold towards the peer.
    ///
    /// # Errors
    /// [`ReplyFault`].
    pub fn new(
        xid: Xid,
        credits: Grant,
        offered: &Chunks,
        send_bytes: u32,
        reply: ReplyShape<'_>,
    ) -> Result<Self, ReplyFault> {
        let mut rdma_writes = Vec::new();
        let mut writes = Vec::with_capacity(offered.writes.len());
        let mut rest = Vec::new();
        let mut at = 0;
        let mut items = reply.items.iter();
        for chunk in &offered.writes {
            let used = match items.next() {
                // RFC 8166 §4.3.2.3: a chunk without segments requests that the
                // item stays inline.
                Some(item) if !chunk.segments.is_empty() => {
                    write_item(&mut rdma_writes, chunk, *item)?;
                    keep(&mut rest, at..item.offset);
                    // RFC 8166 §3.4.6.2: the padding is not sent.
                    at = item.offset + item.len.next_multiple_of(4);
                    item.len
                }
                _ => 0,
            };
            writes.push(chunk.used(used));
        }
        keep(&mut rest, at..reply.len);
        let rest_bytes: usize = rest.iter().map(Range::len).sum();
        let unused = offered.reply.as_ref().map(|chunk| chunk.used(0));
        let chunks = Chunks { reads: Vec::new(), writes, reply: unused };
        let header = Header { xid, credits: credits.get(), body: Body::Message(chunks.clone()) };
        let header = header.encode();
        if header.len() + rest_bytes <= send_bytes as usize {
            return Ok(Self { header, rdma_writes, inline: rest });
        }
        let reply_chunk = match &offered.reply {
            Some(chunk) if chunk.capacity_bytes() >= rest_bytes as u64 => chunk,
            _ => return Err(ReplyFault::TooLong(rest_bytes)),
        };
        write_ranges(&mut rdma_writes, reply_chunk, &rest);
        let chunks = Chunks { reply: Some(reply_chunk.used(rest_bytes)), ..chunks };
        let header = Header { xid, credits: credits.get(), body: Body::NoMessage(chunks) };
        let header = header.encode();
        if header.len() > send_bytes as usize {
            return Err(ReplyFault::TooLong(rest_bytes));
        }
        Ok(Self { header, rdma_writes, inline: Vec::new() })
    }

    /// Returns the length of the Send in bytes.
    #[must_use]
    pub fn send_bytes(&self) -> usize {
        self.header.len() + self.inline.iter().map(Range::len).sum::<usize>()
    }
}

fn keep(ranges: &mut Vec<Range<usize>>, range: Range<usize>) {
    if !range.is_empty() {
        ranges.push(range);
    }
}

fn write_item(
    rdma_writes: &mut Vec<RdmaWrite>,
    chunk: &WriteChunk,
    item: DataItem,
) -> Result<(), ReplyFault> {
    let chunk_bytes = chunk.capacity_bytes();
    if chunk_bytes < item.len as u64 {
        return Err(ReplyFault::WriteChunkTooSmall { chunk_bytes, item_bytes: item.len });
    }
    write_ranges(rdma_writes, chunk, std::slice::from_ref(&(item.offset..item.offset + item.len)));
    Ok(())
}

/// Fills a chunk that is large enough, segment after segment.
fn write_ranges(rdma_writes: &mut Vec<RdmaWrite>, chunk: &WriteChunk, ranges: &[Range<usize>]) {
    let mut ranges = ranges.iter().cloned();
    let mut current = ranges.next().unwrap_or_default();
    for segment in &chunk.segments {
        let mut room = segment.length as usize;
        let mut from = Vec::new();
        while room > 0 {
            if current.is_empty() {
                match ranges.next() {
                    Some(next) => current = next,
                    None => break,
                }
                continue;
            }
            let take = room.min(current.len());
            from.push(current.start..current.start + take);
            current.start += take;
            room -= take;
        }
        if !from.is_empty() {
            let length = segment.length - room as u32;
            rdma_writes.push(RdmaWrite { target: Segment { length, ..*segment }, from });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credits::ReceiveQueue;
    use std::num::NonZeroU32;

    fn grant() -> Grant {
        let mut queue = ReceiveQueue::new(NonZeroU32::MIN, 0);
        queue.posted();
        queue.grant(1).unwrap()
    }

    fn chunk(lengths: &[u32]) -> WriteChunk {
        let segment = |(i, &length): (usize, &u32)| Segment {
            handle: i as u32 + 1,
            length,
            offset: 0x1000 * i as u64,
        };
        WriteChunk { segments: lengths.iter().enumerate().map(segment).collect() }
    }

    fn plan(offered: &Chunks, len: usize, items: &[DataItem]) -> Result<ReplyPlan, ReplyFault> {
        ReplyPlan::new(Xid(3), grant(), offered, 1024, ReplyShape { len, items })
    }

    fn returned(plan: &ReplyPlan) -> (bool, Chunks) {
        match Header::decode(&plan.header).unwrap().header.body {
            Body::Message(chunks) => (true, chunks),
            Body::NoMessage(chunks) => (false, chunks),
            other => panic!("{other:?}"),
        }
    }

    fn lengths(chunk: &WriteChunk) -> Vec<u32> {
        chunk.segments.iter().map(|segment| segment.length).collect()
    }

    #[test]
    fn a_short_reply_is_sent_inline_and_the_unused_chunks_come_back_empty() {
        let offered = Chunks {
            writes: vec![chunk(&[4096])],
            reply: Some(chunk(&[900])),
            ..Default::default()
        };
        let plan = plan(&offered, 100, &[]).unwrap();
        assert_eq!(plan.inline, std::slice::from_ref(&(0..100)));
        assert!(plan.rdma_writes.is_empty());
        let (inline, chunks) = returned(&plan);
        assert!(inline);
        assert_eq!(lengths(&chunks.writes[0]), [0]);
        assert_eq!(lengths(&chunks.reply.unwrap()), [0]);
    }

    #[test]
    fn a_read_goes_to_its_chunk_without_padding() {
        let offered = Chunks { writes: vec![chunk(&[3000, 3000])], ..Default::default() };
        let item = DataItem { offset: 96, len: 4001 };
        let plan = plan(&offered, 96 + 4004 + 20, &[item]).unwrap();
        assert_eq!(plan.inline, [0..96, 4100..4120]);
        assert_eq!(plan.rdma_writes.len(), 2);
        assert_eq!(plan.rdma_writes[0].from, std::slice::from_ref(&(96..3096)));
        assert_eq!(plan.rdma_writes[1].from, std::slice::from_ref(&(3096..4097)));
        assert_eq!(plan.rdma_writes[1].target, Segment { handle: 2, length: 1001, offset: 0x1000 });
        assert_eq!(lengths(&returned(&plan).1.writes[0]), [3000, 1001]);
    }

    #[test]
    fn chunks_belong_to_results_in_order() {
        let offered = Chunks {
            writes: vec![chunk(&[100]), WriteChunk::default(), chunk(&[100]), chunk(&[100])],
            ..Default::default()
        };
        let items = [
            DataItem { offset: 20, len: 0 },
            DataItem { offset: 24, len: 8 },
            DataItem { offset: 36, len: 5 },
        ];
        let plan = plan(&offered, 60, &items).unwrap();
        // The second item stays inline: its chunk has no segments.
        assert_eq!(plan.inline, [0..20, 20..36, 44..60]);
        let (_, chunks) = returned(&plan);
        let used: Vec<_> = chunks.writes.iter().map(lengths).collect();
        assert_eq!(used, [vec![0], vec![], vec![5], vec![0]]);
    }

    #[test]
    fn what_does_not_fit_inline_goes_to_the_reply_chunk() {
        let offered = Chunks {
            writes: vec![chunk(&[4096])],
            reply: Some(chunk(&[1000, 1000, 1000])),
            ..Default::default()
        };
        let item = DataItem { offset: 100, len: 64 };
        let plan = plan(&offered, 1600, &[item]).unwrap();
        assert!(plan.inline.is_empty());
        assert_eq!(plan.send_bytes(), plan.header.len());
        // One write for the item, two segments for the rest.
        assert_eq!(plan.rdma_writes.len(), 3);
        assert_eq!(plan.rdma_writes[1].from, [0..100, 164..1064]);
        assert_eq!(plan.rdma_writes[2].from, std::slice::from_ref(&(1064..1600)));
        let (inline, chunks) = returned(&plan);
        assert!(!inline);
        assert_eq!(lengths(&chunks.reply.unwrap()), [1000, 536, 0]);
        assert_eq!(lengths(&chunks.writes[0]), [64]);
    }

    #[test]
    fn too_little_memory_is_the_requesters_fault() {
        let item = DataItem { offset: 100, len: 64 };
        let small = Chunks { writes: vec![chunk(&[32, 31])], ..Default::default() };
        assert_eq!(
            plan(&small, 200, &[item]),
            Err(ReplyFault::WriteChunkTooSmall { chunk_bytes: 63, item_bytes: 64 })
        );
        assert_eq!(plan(&Chunks::default(), 2000, &[]), Err(ReplyFault::TooLong(2000)));
        let short = Chunks { reply: Some(chunk(&[1999])), ..Default::default() };
        assert_eq!(plan(&short, 2000, &[]), Err(ReplyFault::TooLong(2000)));
    }
}
