//! The XDR decoder on any bytes (RFC 4506): it never reads past the end, never
//! goes back, and what it takes encodes to the bytes it took.

use zgate_fuzz::{Dice, target};
use zgate_xdr::{Decode, Decoder, Encode, Encoder, Opaque};

target!(xdr_decoder, 600, decode);
target!(xdr_round_trip, 600, round_trip);

fn decode(dice: &mut Dice<'_>) {
    let steps = dice.raw(24).to_vec();
    let input = dice.rest();
    let mut d = Decoder::new(input);
    for step in steps {
        let before = d.position();
        let most = usize::from(step) * 3;
        let failed = match step % 9 {
            0 => d.u32().is_err(),
            1 => d.u64().is_err(),
            2 => d.opaque(most).map(|bytes| assert!(bytes.len() <= most)).is_err(),
            3 => d.opaque_fixed(most).map(|bytes| assert_eq!(bytes.len(), most)).is_err(),
            4 => d.array::<u32>(most).map(|list| assert!(list.len() <= most)).is_err(),
            5 => d.array::<Opaque<64>>(most).is_err(),
            6 => d.bulk(most).map(|bytes| assert!(bytes.len() <= most)).is_err(),
            7 => Option::<u64>::decode(&mut d).is_err(),
            _ => bool::decode(&mut d).is_err(),
        };
        assert!(d.position() >= before && d.position() <= input.len());
        assert_eq!(d.position() + d.remaining(), d.total_len());
        if failed {
            break;
        }
    }
    assert_eq!(d.finish().is_ok(), d.remaining() == 0);
}

fn round_trip(dice: &mut Dice<'_>) {
    let (word, long, flag) = (dice.u32(), dice.u64(), dice.once_in(2));
    let list: Vec<u32> = (0..dice.below(20)).map(|_| dice.u32()).collect();
    let blob = Opaque::<512>(dice.blob(512));
    let mut e = Encoder::new();
    e.u32(word);
    e.u64(long);
    flag.encode(&mut e);
    e.array(&list);
    blob.encode(&mut e);
    let bytes = e.finish().flatten().unwrap_or_default();
    assert!(bytes.len().is_multiple_of(4));
    let mut d = Decoder::new(&bytes);
    assert_eq!((d.u32(), d.u64(), bool::decode(&mut d)), (Ok(word), Ok(long), Ok(flag)));
    assert_eq!(d.array::<u32>(20).as_ref(), Ok(&list));
    assert_eq!(Opaque::<512>::decode(&mut d), Ok(blob));
    assert!(d.finish().is_ok());
}
