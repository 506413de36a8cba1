//! What a hostile peer may send as XDR: every read of every kind at every
//! place ends in a value or an error, and nothing is reserved that is not
//! there. `PROPTEST_CASES` makes the runs longer, `PROPTEST_RNG_SEED`
//! (default 1) makes others.
#![allow(clippy::unwrap_used, reason = "tests")]

use bytes::Bytes;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed};
use zgate_store::Payload;
use zgate_xdr::{Decode, Decoder, Encode, Encoder, Opaque, Utf8, XdrError};

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

fn config(cases: u32) -> Config {
    let seed = number("PROPTEST_RNG_SEED").unwrap_or(1);
    println!("PROPTEST_RNG_SEED={seed}");
    Config {
        cases: number("PROPTEST_CASES").map_or(cases, |cases| cases as u32),
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: None,
        ..Config::default()
    }
}

/// One read.
#[derive(Clone, Debug)]
enum Read {
    Word,
    Hyper,
    Bool,
    Opaque(usize),
    Fixed(usize),
    Bulk(usize),
    Array(usize),
    Text,
    Take(usize),
    Place(usize),
}

fn read() -> impl Strategy<Value = Read> {
    let size = || prop_oneof![0..40_usize, Just(usize::MAX >> 8), Just(u32::MAX as usize)];
    prop_oneof![
        Just(Read::Word),
        Just(Read::Hyper),
        Just(Read::Bool),
        size().prop_map(Read::Opaque),
        (0..40_usize).prop_map(Read::Fixed),
        size().prop_map(Read::Bulk),
        size().prop_map(Read::Array),
        Just(Read::Text),
        (0..40_usize).prop_map(Read::Take),
        size().prop_map(Read::Place),
    ]
}

fn apply(d: &mut Decoder<'_>, read: &Read) -> Result<(), XdrError> {
    match read {
        Read::Word => d.u32().map(|_| ()),
        Read::Hyper => d.u64().map(|_| ()),
        Read::Bool => bool::decode(d).map(|_| ()),
        Read::Opaque(max) => d.opaque(*max).map(|bytes| assert!(bytes.len() <= *max)),
        Read::Fixed(len) => d.opaque_fixed(*len).map(|bytes| assert_eq!(bytes.len(), *len)),
        Read::Bulk(max) => d.bulk(*max).map(|bytes| assert!(bytes.len() <= *max)),
        Read::Array(max) => d.array::<u32>(*max).map(|items| assert!(items.len() <= *max)),
        Read::Text => Utf8::<64>::decode(d).map(|text| assert!(text.0.len() <= 64)),
        Read::Take(len) => d.take(*len).map(|bytes| assert_eq!(bytes.len(), *len)),
        Read::Place(max) => d.bulk_position(*max).map(|(_, len)| assert!(len <= *max)),
    }
}

/// One write.
#[derive(Clone, Debug)]
enum Write {
    Word(u32),
    Hyper(u64),
    Bytes(Vec<u8>),
    Bulk(Vec<u8>),
    /// Write, then take it back.
    Undone(Vec<u8>, Vec<u8>),
}

fn write() -> impl Strategy<Value = Write> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..50);
    prop_oneof![
        any::<u32>().prop_map(Write::Word),
        any::<u64>().prop_map(Write::Hyper),
        bytes().prop_map(Write::Bytes),
        bytes().prop_map(Write::Bulk),
        (bytes(), bytes()).prop_map(|(a, b)| Write::Undone(a, b)),
    ]
}

proptest! {
    #![proptest_config(config(1000))]

    #[test]
    fn any_reads_of_any_bytes(
        raw in prop::collection::vec(prop_oneof![3 => Just(0_u8), 2 => 0..9_u8, 1 => any::<u8>()], 0..200),
        reads in prop::collection::vec(read(), 0..30),
        splice in prop::option::of((0..200_usize, 0..40_usize)),
    ) {
        let mut d = match splice {
            Some((at, len)) => Decoder::with_splice(&raw, at, Bytes::from(vec![7; len])),
            None => Decoder::new(&raw),
        };
        for read in &reads {
            let before = d.position();
            let _ = apply(&mut d, read);
            prop_assert!(d.position() >= before && d.position() <= raw.len());
            prop_assert_eq!(d.position() + d.remaining(), raw.len());
            prop_assert_eq!(d.rest().len(), d.remaining());
        }
        prop_assert_eq!(d.finish().is_ok(), d.remaining() == 0);
    }

    /// A count the input cannot hold is refused before memory is reserved.
    #[test]
    fn counts_of_what_is_not_there(count in 100..=u32::MAX, more in prop::collection::vec(any::<u8>(), 0..99)) {
        let raw = [&count.to_be_bytes()[..], &more].concat();
        let max = usize::MAX;
        prop_assert!(Decoder::new(&raw).array::<u32>(max).is_err());
        prop_assert!(Decoder::new(&raw).opaque(max).is_err());
        prop_assert!(Decoder::new(&raw).bulk(max).is_err());
    }

    #[test]
    fn what_is_written_is_read(writes in prop::collection::vec(write(), 0..20)) {
        let mut e = Encoder::new();
        let mut len = 0;
        for write in &writes {
            match write {
                Write::Word(word) => e.u32(*word),
                Write::Hyper(word) => e.u64(*word),
                Write::Bytes(bytes) => e.opaque(bytes),
                Write::Bulk(bytes) => e.bulk(Payload::Bytes(Bytes::from(bytes.clone()))),
                Write::Undone(bytes, bulk) => {
                    let mark = e.mark();
                    e.opaque(bytes);
                    e.bulk(Payload::Bytes(Bytes::from(bulk.clone())));
                    e.opaque(bytes);
                    e.rollback(mark);
                    prop_assert_eq!(e.len(), len);
                }
            }
            len = e.len();
            prop_assert!(len.is_multiple_of(4));
        }
        let message = e.finish();
        prop_assert_eq!(message.len(), len);
        let raw = message.flatten().unwrap();
        let mut d = Decoder::new(&raw);
        for write in &writes {
            match write {
                Write::Word(word) => prop_assert_eq!(d.u32(), Ok(*word)),
                Write::Hyper(word) => prop_assert_eq!(d.u64(), Ok(*word)),
                Write::Bytes(bytes) => {
                    prop_assert_eq!(Opaque::<64>::decode(&mut d), Ok(Opaque(bytes.clone())));
                }
                Write::Bulk(bytes) => prop_assert_eq!(&d.bulk(64).unwrap()[..], &bytes[..]),
                Write::Undone(..) => {}
            }
        }
        prop_assert_eq!(d.finish(), Ok(()));
    }

    /// A body that was received apart reads as if it had been in its place.
    #[test]
    fn a_spliced_body_is_the_body(before in prop::collection::vec(any::<u32>(), 0..5), body in prop::collection::vec(any::<u8>(), 1..60), after in any::<u32>()) {
        let mut e = Encoder::new();
        before.iter().for_each(|word| e.u32(*word));
        e.opaque(&body);
        after.encode(&mut e);
        let whole = e.finish().flatten().unwrap();
        let at = before.len() * 4 + 4;
        let rest = [&whole[..at], &whole[at + body.len()..]].concat();
        let mut d = Decoder::with_splice(&rest, at, Bytes::from(body.clone()));
        prop_assert_eq!(d.total_len(), whole.len());
        for word in &before {
            prop_assert_eq!(d.u32(), Ok(*word));
        }
        prop_assert_eq!(&d.bulk(64).unwrap()[..], &body[..]);
        prop_assert_eq!(d.u32(), Ok(after));
        prop_assert_eq!(d.finish(), Ok(()));
    }
}
