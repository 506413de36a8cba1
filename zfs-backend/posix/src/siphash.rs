//! SipHash-2-4 (Aumasson and Bernstein, 2012): a short keyed hash. It signs
//! handles and names file systems that have no identity of their own.

/// A 128-bit key as two little-endian halves.
#[derive(Clone, Copy)]
pub(crate) struct SipKey(u64, u64);

impl SipKey {
    /// The key made of 16 bytes.
    pub(crate) fn new(raw: [u8; 16]) -> Self {
        let whole = u128::from_le_bytes(raw);
        Self(whole as u64, (whole >> 64) as u64)
    }

    /// The hash of `message` under this key.
    pub(crate) fn hash(self, message: &[u8]) -> u64 {
        let mut state = [
            self.0 ^ 0x736f_6d65_7073_6575,
            self.1 ^ 0x646f_7261_6e64_6f6d,
            self.0 ^ 0x6c79_6765_6e65_7261,
            self.1 ^ 0x7465_6462_7974_6573,
        ];
        let (words, tail) = message.as_chunks::<8>();
        for word in words {
            absorb(&mut state, u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        last[..tail.len()].copy_from_slice(tail);
        absorb(&mut state, u64::from_le_bytes(last) | ((message.len() as u64) << 56));
        state[2] ^= 0xff;
        for _ in 0..4 {
            round(&mut state);
        }
        state[0] ^ state[1] ^ state[2] ^ state[3]
    }
}

fn absorb(state: &mut [u64; 4], word: u64) {
    state[3] ^= word;
    round(state);
    round(state);
    state[0] ^= word;
}

fn round(state: &mut [u64; 4]) {
    let [mut a, mut b, mut c, mut d] = *state;
    a = a.wrapping_add(b);
    b = b.rotate_left(13) ^ a;
    a = a.rotate_left(32);
    c = c.wrapping_add(d);
    d = d.rotate_left(16) ^ c;
    a = a.wrapping_add(d);
    d = d.rotate_left(21) ^ a;
    c = c.wrapping_add(b);
    b = b.rotate_left(17) ^ c;
    c = c.rotate_left(32);
    *state = [a, b, c, d];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_the_published_vectors() {
        let key = SipKey::new(std::array::from_fn(|n| n as u8));
        let message: [u8; 15] = std::array::from_fn(|n| n as u8);
        assert_eq!(key.hash(&message), 0xa129_ca61_49be_45e5);
        assert_eq!(key.hash(&[]), 0x726f_db47_dd0e_0e31);
    }
}
