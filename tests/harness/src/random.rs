//! Numbers and bytes that repeat with their seed.

/// Returns bytes without repetition.
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// Random numbers that are reproducible by their seed (xorshift).
pub struct Random(u64);

impl Random {
    /// Takes the seed from `ZGATE_TEST_SEED` or the clock, and prints it, so
    /// that a failure can be reproduced.
    pub fn from_environment() -> Self {
        let seed = std::env::var("ZGATE_TEST_SEED").ok().and_then(|text| text.parse().ok());
        let seed = seed.unwrap_or_else(|| {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            now.unwrap().as_nanos() as u64 | 1
        });
        println!("ZGATE_TEST_SEED={seed}");
        Self(seed)
    }

    pub fn u64(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Less than `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.u64() % bound
    }
}
