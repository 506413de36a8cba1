//! Requester and responder against each other over plain memory: whatever the
//! one frames, the other makes whole, and the other way round.

use proptest::prelude::*;
use std::num::NonZeroU32;
use zgate_rpcrdma::client::{CallFrame, CallParts, Reply, Results};
use zgate_rpcrdma::server::{CallPlan, DataItem, Place, ReplyPlan, ReplyShape};
use zgate_rpcrdma::{Grant, Header, ReceiveQueue, Segment, WriteChunk, Xid};

/// Registered memory: `handle` is an index, `offset` an address in it.
#[derive(Default)]
struct Memory(Vec<Vec<u8>>);

impl Memory {
    /// Registers `bytes` as several segments of at most `piece` bytes.
    fn register(&mut self, bytes: &[u8], piece: usize) -> Vec<Segment> {
        let pieces = bytes.chunks(piece.max(1));
        pieces
            .map(|piece| {
                self.0.push(piece.to_vec());
                Segment { handle: self.0.len() as u32 - 1, length: piece.len() as u32, offset: 0 }
            })
            .collect()
    }

    fn at(&mut self, segment: Segment) -> &mut [u8] {
        let start = segment.offset as usize;
        &mut self.0[segment.handle as usize][start..start + segment.length as usize]
    }

    fn collect(&mut self, chunk: &WriteChunk, len: usize) -> Vec<u8> {
        let all: Vec<u8> =
            chunk.segments.iter().flat_map(|&segment| self.at(segment).to_vec()).collect();
        all[..len].to_vec()
    }
}

fn gather(message: &[u8], header: &[u8], ranges: &[std::ops::Range<usize>]) -> Vec<u8> {
    let mut sent = header.to_vec();
    ranges.iter().for_each(|range| sent.extend_from_slice(&message[range.clone()]));
    sent
}

fn grant() -> Grant {
    let mut queue = ReceiveQueue::new(NonZeroU32::MIN, 0);
    queue.posted();
    queue.grant(1).expect("a receive is posted")
}

/// A message with an item in it, padded.
fn message(head: usize, item: usize, tail: usize) -> Vec<u8> {
    let mut message: Vec<u8> = (0..head * 4 + item).map(|i| i as u8).collect();
    message.resize(head * 4 + item.next_multiple_of(4), 0);
    message.extend((0..tail * 4).map(|i| 200 - i as u8));
    message
}

proptest! {
    #[test]
    fn calls_become_whole(
        head in 3usize..30,
        item in 0usize..3000,
        tail in 0usize..20,
        piece in 1usize..1500,
        apart in any::<bool>(),
        long in any::<bool>(),
    ) {
        let message = message(head, item, tail);
        let mut memory = Memory::default();
        let bulk = memory.register(&message[head * 4..head * 4 + item], piece.max(item / 50));
        let whole = memory.register(&message, piece.max(message.len() / 50));
        let parts = CallParts {
            len: message.len(),
            bulk: (!long).then_some((head * 4, item, &bulk[..])),
            whole: &whole,
            ..Default::default()
        };
        let frame = CallFrame::new(Xid(5), 32, 4096, parts).unwrap();
        let sent = gather(&message, &frame.header, &frame.inline);
        let decoded = Header::decode(&sent).unwrap();
        let find = |_: &[u8]| (apart && item > 0).then_some((head * 4, item));
        let plan = CallPlan::new(&decoded.header.body, decoded.inline, find).unwrap();
        let mut stream = vec![0xee; plan.stream_bytes()];
        let mut body = vec![0xee; plan.body().map_or(0, |body| body.len)];
        plan.place_inline(decoded.inline, &mut stream);
        for pull in plan.pulls() {
            let bytes = memory.at(pull.source).to_vec();
            let to = if pull.place == Place::Body { &mut body } else { &mut stream };
            to[pull.offset..pull.offset + bytes.len()].copy_from_slice(&bytes);
        }
        if let Some(bulk) = plan.body() {
            prop_assert_eq!(bulk.position, head * 4);
            stream.splice(bulk.position..bulk.position, body);
        }
        prop_assert_eq!(stream, message);
    }

    #[test]
    fn replies_are_found(
        head in 3usize..300,
        item in 0usize..3000,
        tail in 0usize..20,
        piece in 1usize..1500,
        direct in any::<bool>(),
    ) {
        let message = message(head, item, tail);
        let mut memory = Memory::default();
        let mut chunk = |bytes: usize| WriteChunk {
            segments: memory.register(&vec![0xee; bytes], piece.max(bytes / 50)),
        };
        let writes = if direct { vec![chunk(item + 100)] } else { Vec::new() };
        let reply = Some(chunk(message.len()));
        let parts = CallParts { len: 40, writes, reply, ..Default::default() };
        let frame = CallFrame::new(Xid(5), 32, 4096, parts).unwrap();
        let items = [DataItem { offset: head * 4, len: item }];
        let shape = ReplyShape { len: message.len(), items: &items };
        let plan = ReplyPlan::new(Xid(5), grant(), &frame.offered, 2048, shape).unwrap();
        for push in &plan.pushes {
            let bytes = gather(&message, &[], &push.from);
            prop_assert_eq!(bytes.len(), push.target.length as usize);
            memory.at(push.target).copy_from_slice(&bytes);
        }
        let sent = gather(&message, &plan.header, &plan.inline);
        prop_assert!(sent.len() <= 2048);
        let reply = Reply::read(&sent, &frame.offered).unwrap();
        let mut found = match reply.results {
            Results::Inline(bytes) => bytes.to_vec(),
            Results::InReplyChunk { len } => memory.collect(frame.offered.reply.as_ref().unwrap(), len),
        };
        let written = reply.written.first().copied().unwrap_or_default();
        if let Some(chunk) = frame.offered.writes.first() && !chunk.segments.is_empty() {
            prop_assert_eq!(written, item);
            let mut data = memory.collect(chunk, written);
            data.resize(item.next_multiple_of(4), 0);
            found.splice(head * 4..head * 4, data);
        }
        prop_assert_eq!(found, message);
    }
}
