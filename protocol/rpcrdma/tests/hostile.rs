//! Headers of a hostile peer: each is answered by an error the protocol knows.

use zgate_rpcrdma::limits::{MAX_CHUNK_SEGMENTS, MAX_READ_SEGMENTS};
use zgate_rpcrdma::{Header, HeaderError, Xid};

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
