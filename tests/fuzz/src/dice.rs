//! Random decisions derived from the bytes of an input. After the last byte,
//! zeros follow, so every prefix of an input is an input, and
//! [`Dice::is_spent`] ends loops.

/// An input as a source of decisions.
#[derive(Clone, Debug)]
pub struct Dice<'a> {
    rest: &'a [u8],
}

impl<'a> Dice<'a> {
    /// Decisions from these bytes.
    #[must_use]
    pub fn new(input: &'a [u8]) -> Self {
        Self { rest: input }
    }

    /// Returns whether all bytes are used up.
    #[must_use]
    pub fn is_spent(&self) -> bool {
        self.rest.is_empty()
    }

    /// Returns the remaining bytes.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    /// Returns up to `most` bytes.
    pub fn raw(&mut self, most: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(most.min(self.rest.len()));
        self.rest = rest;
        taken
    }

    /// A byte.
    pub fn byte(&mut self) -> u8 {
        self.raw(1).first().copied().unwrap_or(0)
    }

    /// A number of four bytes.
    pub fn u32(&mut self) -> u32 {
        self.raw(4).iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte))
    }

    /// A number of eight bytes.
    pub fn u64(&mut self) -> u64 {
        self.raw(8).iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
    }

    /// A number below `bound`, which is at most 65536; 0 after the last byte or
    /// for a `bound` of 0.
    pub fn below(&mut self, bound: usize) -> usize {
        let number = match bound {
            0 | 1 => return 0,
            2..=256 => usize::from(self.byte()),
            _ => usize::from(self.byte()) << 8 | usize::from(self.byte()),
        };
        number % bound
    }

    /// True with probability 1/`n`; false after the last byte.
    pub fn once_in(&mut self, n: usize) -> bool {
        !self.is_spent() && self.below(n) == n - 1
    }

    /// Picks one element.
    ///
    /// # Panics
    /// Panics if the slice is empty.
    pub fn pick<'b, T>(&mut self, of: &'b [T]) -> &'b T {
        &of[self.below(of.len())]
    }

    /// A typical length, offset or count: small, at a boundary, or arbitrary.
    pub fn number(&mut self) -> u64 {
        match self.byte() % 8 {
            0..=3 => u64::from(self.byte()) % 20,
            4 => u64::from(self.byte()) << 6,
            5 => 1_u64 << (self.byte() % 64),
            6 => (1_u64 << (self.byte() % 64)).wrapping_sub(1),
            _ => match self.byte() % 4 {
                0 => u64::MAX,
                1 => u64::from(u32::MAX),
                2 => i64::MAX as u64,
                _ => self.u64(),
            },
        }
    }

    /// Up to `most` bytes, many of them zero.
    pub fn blob(&mut self, most: usize) -> Vec<u8> {
        let len = self.below(most + 1);
        let mut bytes = self.raw(len).to_vec();
        bytes.resize(len, 0);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_end() {
        let mut dice = Dice::new(&[1, 2, 3, 4, 5]);
        assert_eq!((dice.u32(), dice.is_spent()), (0x0102_0304, false));
        assert_eq!(dice.below(4), 1);
        assert!(dice.is_spent() && !dice.once_in(1));
        assert_eq!((dice.byte(), dice.u64(), dice.number()), (0, 0, 0));
        assert_eq!(dice.blob(8), b"");
    }
}
