//! Source of unpredictable numbers.

/// The owner's source of random bytes. CHAP's strength depends on it (RFC 7143
/// §9.2.1): use the operating system's generator.
pub trait Entropy {
    /// Fills `out` with unpredictable bytes.
    fn fill(&mut self, out: &mut [u8]);

    /// An unpredictable 32-bit number.
    fn next_u32(&mut self) -> u32 {
        let mut bytes = [0; 4];
        self.fill(&mut bytes);
        u32::from_be_bytes(bytes)
    }
}
