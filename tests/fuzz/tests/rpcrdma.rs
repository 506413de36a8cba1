//! RPC-over-RDMA (RFC 8166): headers of any bytes, plans that stay inside their
//! buffers, and requester and responder against each other over plain memory:
//! whatever the one frames, the other makes whole.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::num::NonZeroU32;
use zgate_fuzz::{Dice, target};
use zgate_rpcrdma::client::{CallFrame, CallParts, Reply, Results};
use zgate_rpcrdma::limits::MAX_CALL_BYTES;
use zgate_rpcrdma::server::{CallPlan, DataItem, Destination, ReplyPlan, ReplyShape};
use zgate_rpcrdma::{
    Body, Chunks, Grant, Header, ReadSegment, ReceiveQueue, Segment, WriteChunk, Xid,
};

target!(rpcrdma_any_bytes, 300, any_bytes);
target!(rpcrdma_almost_headers, 300, almost_headers);
target!(rpcrdma_headers_survive_the_trip, 400, headers);
target!(rpcrdma_plans_stay_inside_their_buffers, 700, plans);
target!(rpcrdma_calls_become_whole, 16, calls);
target!(rpcrdma_replies_are_found, 16, replies);

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

fn segment(dice: &mut Dice<'_>) -> Segment {
    let (handle, length, offset) = (dice.u32(), dice.below(9000) as u32, dice.u32());
    Segment { handle, length, offset: offset.into() }
}

fn write_chunk(dice: &mut Dice<'_>) -> WriteChunk {
    WriteChunk { segments: (0..dice.below(6)).map(|_| segment(dice)).collect() }
}

fn chunks(dice: &mut Dice<'_>) -> Chunks {
    let read = |dice: &mut Dice<'_>| {
        let position = dice.below(64) as u32 * 4;
        ReadSegment { position, target: segment(dice) }
    };
    Chunks {
        reads: (0..dice.below(8)).map(|_| read(dice)).collect(),
        writes: (0..dice.below(4)).map(|_| write_chunk(dice)).collect(),
        reply: dice.once_in(2).then(|| write_chunk(dice)),
    }
}

fn body(dice: &mut Dice<'_>) -> Body {
    let whole = dice.once_in(2);
    let chunks = chunks(dice);
    if whole { Body::NoMessage(chunks) } else { Body::Message(chunks) }
}

fn any_bytes(dice: &mut Dice<'_>) {
    let bytes = dice.rest();
    let _ = Header::decode(bytes);
    let _ = Reply::read(bytes, &Chunks::default());
}

/// A header that starts well and goes on with small words.
fn almost_headers(dice: &mut Dice<'_>) {
    let bulk = dice.once_in(2).then(|| (dice.below(64), dice.below(9000)));
    let mut words = vec![7, 1, 32, dice.below(6) as u32];
    words.extend((0..dice.below(60)).map(|_| dice.below(4) as u32));
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    if let Ok(decoded) = Header::decode(&bytes) {
        let _ = CallPlan::new(&decoded.header.body, decoded.inline, |_| bulk);
    }
}

fn headers(dice: &mut Dice<'_>) {
    let header = Header { xid: Xid(dice.u32()), credits: 3, body: body(dice) };
    let bytes = header.encode();
    assert_eq!(Header::decode(&bytes).unwrap().header, header);
}

fn plans(dice: &mut Dice<'_>) {
    let bulk = dice.once_in(2).then(|| (dice.below(64), dice.below(9000)));
    let body = body(dice);
    let inline = dice.blob(299);
    if let Ok(plan) = CallPlan::new(&body, &inline, |_| bulk.map(|(at, len)| (at * 4, len))) {
        assert!(plan.total_bytes() <= MAX_CALL_BYTES);
        // Every byte of the stream is written once or is padding.
        let mut stream = vec![0xee; plan.stream_bytes()];
        plan.place_inline(&inline, &mut stream);
        let mut written = vec![0u8; plan.stream_bytes()];
        for read in plan.rdma_reads() {
            let end = read.offset + read.source.length as usize;
            match read.destination {
                Destination::Stream => written[read.offset..end].iter_mut().for_each(|n| *n += 1),
                Destination::Body => assert!(end <= plan.body().unwrap().len),
            }
        }
        assert!(written.iter().all(|&count| count <= 1));
    }
}

fn calls(dice: &mut Dice<'_>) {
    let (head, item, tail) = (3 + dice.below(27), dice.below(3000), dice.below(20));
    let (piece, apart, long) = (1 + dice.below(1499), dice.once_in(2), dice.once_in(2));
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
    for read in plan.rdma_reads() {
        let bytes = memory.at(read.source).to_vec();
        let to = if read.destination == Destination::Body { &mut body } else { &mut stream };
        to[read.offset..read.offset + bytes.len()].copy_from_slice(&bytes);
    }
    if let Some(bulk) = plan.body() {
        assert_eq!(bulk.position, head * 4);
        stream.splice(bulk.position..bulk.position, body);
    }
    assert_eq!(stream, message);
}

fn replies(dice: &mut Dice<'_>) {
    let (head, item, tail) = (3 + dice.below(297), dice.below(3000), dice.below(20));
    let (piece, direct) = (1 + dice.below(1499), dice.once_in(2));
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
    for push in &plan.rdma_writes {
        let bytes = gather(&message, &[], &push.from);
        assert_eq!(bytes.len(), push.target.length as usize);
        memory.at(push.target).copy_from_slice(&bytes);
    }
    let sent = gather(&message, &plan.header, &plan.inline);
    assert!(sent.len() <= 2048);
    let reply = Reply::read(&sent, &frame.offered).unwrap();
    let mut found = match reply.results {
        Results::Inline(bytes) => bytes.to_vec(),
        Results::InReplyChunk { len } => memory.collect(frame.offered.reply.as_ref().unwrap(), len),
    };
    let written = reply.written.first().copied().unwrap_or_default();
    if let Some(chunk) = frame.offered.writes.first()
        && !chunk.segments.is_empty()
    {
        assert_eq!(written, item);
        let mut data = memory.collect(chunk, written);
        data.resize(item.next_multiple_of(4), 0);
        found.splice(head * 4..head * 4, data);
    }
    assert_eq!(found, message);
}
