//! Tests that arguments and results of every operation survive encoding and
//! decoding.

use super::Operation;
use zgate_xdr::{Decode, Decoder, Encode, Encoder, XdrError};

/// Attempts for each type.
const ATTEMPTS: usize = 20_000;

fn bytes_of(value: &impl Encode) -> Vec<u8> {
    let mut e = Encoder::new();
    value.encode(&mut e);
    e.finish().flatten().unwrap().to_vec()
}

/// Reproducible pseudo-random numbers (xorshift).
struct Dice(u64);

impl Dice {
    fn u32(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 32) as u32
    }

    /// Typical words: most are small numbers and lengths.
    fn words(&mut self) -> Vec<u8> {
        let word = |dice: &mut Self| match dice.u32() % 8 {
            0 => dice.u32(),
            1 => dice.u32() % 90,
            2 => dice.u32() % 8,
            _ => dice.u32() % 2,
        };
        (0..64).flat_map(|_| word(self).to_be_bytes()).collect()
    }
}

/// Checks that every decoded value is encoded to bytes that decode to the same
/// value, completely, and do not decode when truncated.
fn survives<T: Decode + Encode>(name: &str, dice: &mut Dice) {
    let mut seen = 0;
    for _ in 0..ATTEMPTS {
        let raw = dice.words();
        let Ok(value) = T::decode(&mut Decoder::new(&raw)) else { continue };
        let written = bytes_of(&value);
        let mut d = Decoder::new(&written);
        let again = T::decode(&mut d).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(d.finish(), Ok(()), "{name}");
        assert_eq!(bytes_of(&again), written, "{name}");
        for cut in (0..written.len()).step_by(4) {
            let seen = T::decode(&mut Decoder::new(&written[..cut])).err();
            assert_eq!(seen, Some(XdrError::Short), "{name} cut at {cut}");
        }
        seen += 1;
        if seen == 50 {
            return;
        }
    }
    assert_ne!(seen, 0, "{name}: nothing decoded");
}

pub(super) fn both<O: Operation>() {
    let mut dice = Dice(u64::from(O::NUM as u32) + 1);
    survives::<O::Args>(&format!("{} arguments", O::NUM.name()), &mut dice);
    survives::<O::Res>(&format!("{} result", O::NUM.name()), &mut dice);
}
