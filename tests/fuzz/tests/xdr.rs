//! XDR (RFC 4506) on any bytes: every read of every kind at every place ends in a
//! value or an error, never past the end, and nothing is reserved that is not
//! there; what is written is read.
#![allow(clippy::unwrap_used, reason = "tests")]

use bytes::Bytes;
use zgate_fuzz::{Dice, target};
use zgate_store::Payload;
use zgate_xdr::{Decode, Decoder, Encode, Encoder, Opaque, Utf8};

target!(xdr_decoder, 600, decode);
target!(xdr_counts_of_what_is_not_there, 120, counts);
target!(xdr_what_is_written_is_read, 600, round_trip);
target!(xdr_spliced_body, 120, splice);

/// A bound: small, or more than any input holds.
fn bound(step: u8) -> usize {
    match step % 5 {
        0 => usize::MAX >> 8,
        1 => u32::MAX as usize,
        _ => usize::from(step) * 3,
    }
}

/// One read; says whether it failed.
fn read(d: &mut Decoder<'_>, kind: u8, most: usize) -> bool {
    let small = most % 40;
    match kind % 13 {
        0 => d.u32().is_err(),
        1 => d.u64().is_err(),
        2 => d.opaque(most).map(|bytes| assert!(bytes.len() <= most)).is_err(),
        3 => d.opaque_fixed(small).map(|bytes| assert_eq!(bytes.len(), small)).is_err(),
        4 => d.array::<u32>(most).map(|list| assert!(list.len() <= most)).is_err(),
        5 => d.array::<Opaque<64>>(most).is_err(),
        6 => d.bulk(most).map(|bytes| assert!(bytes.len() <= most)).is_err(),
        7 => Option::<u64>::decode(d).is_err(),
        8 => Utf8::<64>::decode(d).map(|text| assert!(text.0.len() <= 64)).is_err(),
        9 => d.take(small).map(|bytes| assert_eq!(bytes.len(), small)).is_err(),
        10 => d.bulk_position(most).map(|(_, len)| assert!(len <= most)).is_err(),
        _ => bool::decode(d).is_err(),
    }
}

fn decode(dice: &mut Dice<'_>) {
    let steps = dice.raw(48).to_vec();
    let stops = dice.once_in(2);
    let splice = dice.once_in(2).then(|| (dice.below(200), dice.below(40)));
    let input = dice.rest();
    let mut d = match splice {
        Some((at, len)) => Decoder::with_splice(input, at, Bytes::from(vec![7; len])),
        None => Decoder::new(input),
    };
    for step in steps.chunks(2) {
        let before = d.position();
        let failed = read(&mut d, step[0], bound(step[step.len() - 1]));
        assert!(d.position() >= before && d.position() <= input.len());
        assert_eq!(d.position() + d.remaining(), input.len());
        assert_eq!(d.rest().len(), d.remaining());
        if splice.is_none() {
            assert_eq!(d.position() + d.remaining(), d.total_len());
        }
        if failed && stops {
            break;
        }
    }
    assert_eq!(d.finish().is_ok(), d.remaining() == 0);
}

/// A count the input cannot hold is refused before memory is reserved.
fn counts(dice: &mut Dice<'_>) {
    let count = dice.u32().max(100);
    let more = dice.blob(98);
    let raw = [&count.to_be_bytes()[..], &more].concat();
    let max = usize::MAX;
    assert!(Decoder::new(&raw).array::<u32>(max).is_err());
    assert!(Decoder::new(&raw).opaque(max).is_err());
    assert!(Decoder::new(&raw).bulk(max).is_err());
}

/// One write.
enum Write {
    Word(u32),
    Hyper(u64),
    Flag(bool),
    List(Vec<u32>),
    Bytes(Vec<u8>),
    Bulk(Vec<u8>),
    /// Written, and taken back.
    Undone(Vec<u8>, Vec<u8>),
}

fn write(dice: &mut Dice<'_>) -> Write {
    match dice.below(7) {
        0 => Write::Word(dice.u32()),
        1 => Write::Hyper(dice.u64()),
        2 => Write::Flag(dice.once_in(2)),
        3 => Write::List((0..dice.below(20)).map(|_| dice.u32()).collect()),
        4 => Write::Bytes(dice.blob(64)),
        5 => Write::Bulk(dice.blob(64)),
        _ => Write::Undone(dice.blob(50), dice.blob(50)),
    }
}

fn round_trip(dice: &mut Dice<'_>) {
    let mut writes = Vec::new();
    while !dice.is_spent() && writes.len() < 20 {
        writes.push(write(dice));
    }
    let mut e = Encoder::new();
    let mut len = 0;
    for write in &writes {
        match write {
            Write::Word(word) => e.u32(*word),
            Write::Hyper(word) => e.u64(*word),
            Write::Flag(flag) => flag.encode(&mut e),
            Write::List(list) => e.array(list),
            Write::Bytes(bytes) => e.opaque(bytes),
            Write::Bulk(bytes) => e.bulk(Payload::Bytes(Bytes::from(bytes.clone()))),
            Write::Undone(bytes, bulk) => {
                let mark = e.mark();
                e.opaque(bytes);
                e.bulk(Payload::Bytes(Bytes::from(bulk.clone())));
                e.opaque(bytes);
                e.rollback(mark);
                assert_eq!(e.len(), len);
            }
        }
        len = e.len();
        assert!(len.is_multiple_of(4));
    }
    let message = e.finish();
    assert_eq!(message.len(), len);
    let raw = message.flatten().unwrap();
    let mut d = Decoder::new(&raw);
    for write in &writes {
        match write {
            Write::Word(word) => assert_eq!(d.u32(), Ok(*word)),
            Write::Hyper(word) => assert_eq!(d.u64(), Ok(*word)),
            Write::Flag(flag) => assert_eq!(bool::decode(&mut d), Ok(*flag)),
            Write::List(list) => assert_eq!(d.array::<u32>(20).as_ref(), Ok(list)),
            Write::Bytes(bytes) => {
                assert_eq!(Opaque::<64>::decode(&mut d), Ok(Opaque(bytes.clone())));
            }
            Write::Bulk(bytes) => assert_eq!(d.bulk(64).unwrap()[..], bytes[..]),
            Write::Undone(..) => {}
        }
    }
    assert_eq!(d.finish(), Ok(()));
}

/// A body that was received apart reads as if it had been in its place.
fn splice(dice: &mut Dice<'_>) {
    let before: Vec<u32> = (0..dice.below(5)).map(|_| dice.u32()).collect();
    let after = dice.u32();
    let mut body = dice.blob(58);
    body.push(dice.byte());
    let mut e = Encoder::new();
    before.iter().for_each(|word| e.u32(*word));
    e.opaque(&body);
    after.encode(&mut e);
    let whole = e.finish().flatten().unwrap();
    let at = before.len() * 4 + 4;
    let rest = [&whole[..at], &whole[at + body.len()..]].concat();
    let mut d = Decoder::with_splice(&rest, at, Bytes::from(body.clone()));
    assert_eq!(d.total_len(), whole.len());
    for word in &before {
        assert_eq!(d.u32(), Ok(*word));
    }
    assert_eq!(d.bulk(64).unwrap()[..], body[..]);
    assert_eq!(d.u32(), Ok(after));
    assert_eq!(d.finish(), Ok(()));
}
