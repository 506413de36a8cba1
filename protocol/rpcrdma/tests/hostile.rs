//! What a hostile peer may send: nothing panics, nothing is allocated that the
//! limits do not allow, every answer is one the protocol knows.

use proptest::prelude::*;
use zgate_rpcrdma::client::Reply;
use zgate_rpcrdma::limits::{MAX_CALL_BYTES, MAX_CHUNK_SEGMENTS, MAX_READ_SEGMENTS};
use zgate_rpcrdma::server::{CallPlan, Place};
use zgate_rpcrdma::{Body, Chunks, Header, HeaderError, ReadSegment, Segment, WriteChunk, Xid};

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// A header that starts well and goes on with `rest`.
fn after_fixed(procedure: u32, rest: &[u32]) -> Vec<u8> {
    let mut all = vec![7, 1, 32, procedure];
    all.extend_from_slice(rest);
    words(&all)
}

fn is_chunk_error(message: &[u8]) -> bool {
    matches!(Header::decode(message), Err(HeaderError::Chunk { xid: Xid(7), .. }))
}

#[test]
fn lists_without_an_end() {
    let one = [1, 0, 9, 4096, 0, 0];
    assert!(is_chunk_error(&after_fixed(0, &one)));
    let many = one.repeat(MAX_READ_SEGMENTS + 1);
    assert!(is_chunk_error(&after_fixed(0, &[&many[..], &[0, 0, 0]].concat())));
    let writes = [1, 0].repeat(1000);
    assert!(is_chunk_error(&after_fixed(0, &[&[0], &writes[..], &[0, 0]].concat())));
}

#[test]
fn counts_that_lie() {
    assert!(is_chunk_error(&after_fixed(0, &[0, 1, u32::MAX, 9, 9, 0, 0])));
    assert!(is_chunk_error(&after_fixed(0, &[0, 0, 1, MAX_CHUNK_SEGMENTS as u32 + 1])));
    assert!(is_chunk_error(&after_fixed(0, &[0, 0, 1, 2, 9, 9, 0, 0])));
    assert!(is_chunk_error(&after_fixed(0, &[2, 0, 0])));
}

#[test]
fn a_segment_at_the_end_of_the_address_space() {
    let wraps = [1, 4, 9, 16, u32::MAX, u32::MAX - 3, 0, 0, 0];
    assert!(is_chunk_error(&after_fixed(0, &wraps)));
    let fits = [1, 4, 9, 16, u32::MAX, u32::MAX - 16, 0, 0, 0];
    assert!(Header::decode(&after_fixed(0, &fits)).is_ok());
}

#[test]
fn an_error_is_never_answered_by_an_error() {
    for body in [&[][..], &[0], &[3], &[1, 1]] {
        let error = Header::decode(&after_fixed(4, body)).unwrap_err();
        assert_eq!(error.answer(), None);
    }
}

fn segment() -> impl Strategy<Value = Segment> {
    (any::<u32>(), 0u32..9000, any::<u32>()).prop_map(|(handle, length, offset)| Segment {
        handle,
        length,
        offset: u64::from(offset),
    })
}

fn write_chunk() -> impl Strategy<Value = WriteChunk> {
    proptest::collection::vec(segment(), 0..6).prop_map(|segments| WriteChunk { segments })
}

fn chunks() -> impl Strategy<Value = Chunks> {
    let read =
        (0u32..64, segment()).prop_map(|(word, target)| ReadSegment { position: word * 4, target });
    (
        proptest::collection::vec(read, 0..8),
        proptest::collection::vec(write_chunk(), 0..4),
        proptest::option::of(write_chunk()),
    )
        .prop_map(|(reads, writes, reply)| Chunks { reads, writes, reply })
}

proptest! {
    #[test]
    fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = Header::decode(&bytes);
        let _ = Reply::read(&bytes, &Chunks::default());
    }

    #[test]
    fn almost_headers_are_survived(
        procedure in 0u32..6,
        rest in proptest::collection::vec(0u32..4, 0..60),
        bulk in proptest::option::of((0usize..64, 0usize..9000)),
    ) {
        let bytes = after_fixed(procedure, &rest);
        if let Ok(decoded) = Header::decode(&bytes) {
            let _ = CallPlan::new(&decoded.header.body, decoded.inline, |_| bulk);
        }
    }

    #[test]
    fn headers_survive_the_trip(chunks in chunks(), xid in any::<u32>(), whole in any::<bool>()) {
        let body = if whole { Body::NoMessage(chunks) } else { Body::Message(chunks) };
        let header = Header { xid: Xid(xid), credits: 3, body };
        let bytes = header.encode();
        prop_assert_eq!(Header::decode(&bytes).unwrap().header, header);
    }

    #[test]
    fn plans_stay_inside_their_buffers(
        chunks in chunks(),
        inline in proptest::collection::vec(any::<u8>(), 0..300),
        whole in any::<bool>(),
        bulk in proptest::option::of((0usize..64, 0usize..9000)),
    ) {
        let body = if whole { Body::NoMessage(chunks) } else { Body::Message(chunks) };
        if let Ok(plan) = CallPlan::new(&body, &inline, |_| bulk.map(|(at, len)| (at * 4, len))) {
            prop_assert!(plan.total_bytes() <= MAX_CALL_BYTES);
            // Every byte of the stream is written once or is padding.
            let mut stream = vec![0xee; plan.stream_bytes()];
            plan.place_inline(&inline, &mut stream);
            let mut written = vec![0u8; plan.stream_bytes()];
            for pull in plan.pulls() {
                let end = pull.offset + pull.source.length as usize;
                match pull.place {
                    Place::Stream => written[pull.offset..end].iter_mut().for_each(|n| *n += 1),
                    Place::Body => prop_assert!(end <= plan.body().unwrap().len),
                }
            }
            prop_assert!(written.iter().all(|&count| count <= 1));
        }
    }
}
