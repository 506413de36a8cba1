//! Headers spelled out word by word, as defined in RFC 8166 §4, in the shapes
//! that NFS clients send. An optional list read with the wrong length shifts
//! everything behind it: these vectors check where the RPC message begins.

use zgate_rpcrdma::server::{CallPlan, DataItem, ReplyPlan, ReplyShape};
use zgate_rpcrdma::{
    Body, Chunks, Header, ReadSegment, ReceiveQueue, Segment, WriteChunk, Xid, direction,
};

const XID: u32 = 0x8f3a_11c4;

fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// The start of an RPC call with this transaction id: CALL, RPC version 2,
/// program 100003, version 4, procedure 1.
const CALL: [u32; 6] = [XID, 0, 2, 100_003, 4, 1];

const SEGMENT: Segment = Segment { handle: 0x0001_2a07, length: 0x2000, offset: 0x10_0000_1000 };
const SEGMENT_WORDS: [u32; 4] = [0x0001_2a07, 0x2000, 0x10, 0x1000];

fn check(words: &[u32], body: &Body, inline: &[u32]) {
    let message = bytes(&[words, inline].concat());
    let decoded = Header::decode(&message).expect("a good header");
    assert_eq!(decoded.header.xid, Xid(XID));
    assert_eq!(decoded.header.credits, 128);
    assert_eq!(decoded.header.body, *body);
    assert_eq!(decoded.inline, bytes(inline));
    let header = Header { xid: Xid(XID), credits: 128, body: body.clone() };
    assert_eq!(header.encode(), bytes(words));
}

#[test]
fn a_call_without_chunks() {
    // EXCHANGE_ID and most others: three empty lists.
    let words = [XID, 1, 128, 0, 0, 0, 0];
    check(&words, &Body::Message(Chunks::default()), &CALL);
    assert!(direction(Xid(XID), &bytes(&CALL)).is_some());
}

#[test]
fn a_call_with_a_reply_chunk() {
    // READDIR, or EXCHANGE_ID of a client with a small inline threshold.
    let words = [&[XID, 1, 128, 0, 0, 0, 1, 1][..], &SEGMENT_WORDS].concat();
    let reply = Some(WriteChunk { segments: vec![SEGMENT] });
    check(&words, &Body::Message(Chunks { reply, ..Default::default() }), &CALL);
}

#[test]
fn a_read_with_a_write_chunk_of_two_segments() {
    let words = [&[XID, 1, 128, 0, 0, 1, 2][..], &SEGMENT_WORDS, &SEGMENT_WORDS, &[0, 0]].concat();
    let writes = vec![WriteChunk { segments: vec![SEGMENT; 2] }];
    check(&words, &Body::Message(Chunks { writes, ..Default::default() }), &CALL);
}

#[test]
fn a_write_with_a_read_chunk_of_two_segments() {
    let entry = [&[1, 24][..], &SEGMENT_WORDS].concat();
    let words = [&[XID, 1, 128, 0][..], &entry, &entry, &[0, 0, 0]].concat();
    let read = ReadSegment { position: 24, target: SEGMENT };
    let body = Body::Message(Chunks { reads: vec![read; 2], ..Default::default() });
    check(&words, &body, &CALL);
    let plan = CallPlan::new(&body, &bytes(&CALL), |_| Some((24, 0x4000)));
    assert_eq!(plan.map(|plan| plan.body().map(|body| body.len)), Ok(Some(0x4000)));
}

#[test]
fn a_long_call() {
    let words = [&[XID, 1, 128, 1, 1, 0][..], &SEGMENT_WORDS, &[0, 0, 0]].concat();
    let read = ReadSegment { position: 0, target: SEGMENT };
    let body = Body::NoMessage(Chunks { reads: vec![read], ..Default::default() });
    check(&words, &body, &[]);
}

#[test]
fn replies_and_errors() {
    let mut queue = ReceiveQueue::new(std::num::NonZeroU32::MAX, 0);
    (0..128).for_each(|_| queue.posted());
    let credits = queue.grant(128).expect("receives are posted");
    let writes = vec![WriteChunk { segments: vec![SEGMENT; 2] }];
    let offered = Chunks { writes, ..Default::default() };
    let items = [DataItem { offset: 40, len: 0x2001 }];
    let reply = ReplyShape { len: 40 + 0x2004, items: &items };
    let plan = ReplyPlan::new(Xid(XID), credits, &offered, 4096, reply).expect("it fits");
    // The second segment holds one byte.
    let second = [0x0001_2a07, 1, 0x10, 0x1000];
    let words = [&[XID, 1, 128, 0, 0, 1, 2][..], &SEGMENT_WORDS, &second, &[0, 0]].concat();
    assert_eq!(plan.header, bytes(&words));
    assert_eq!(plan.inline, std::slice::from_ref(&(0..40)));

    let version = zgate_rpcrdma::ErrorBody::Version { asked: 1, low: 1, high: 1 };
    let version = Body::Error(version);
    check(&[XID, 1, 128, 4, 1, 1, 1], &version, &[]);
    check(&[XID, 1, 128, 4, 2], &Body::Error(zgate_rpcrdma::ErrorBody::Chunk), &[]);
}
