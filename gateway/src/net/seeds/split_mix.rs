//! Random numbers that repeat with their seed.

use std::ops::RangeInclusive;
use std::time::Duration;

/// A splitmix64 generator: small, and good enough to draw a schedule.
#[derive(Debug)]
pub(crate) struct SplitMix(u64);

impl SplitMix {
    /// The numbers of a seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number of a range that is not empty.
    pub(crate) fn within(&mut self, range: RangeInclusive<u64>) -> u64 {
        let count = range.end() - range.start() + 1;
        range.start() + self.number() % count
    }

    /// The same, for lengths and counts.
    pub(crate) fn count(&mut self, range: RangeInclusive<u64>) -> usize {
        self.within(range) as usize
    }

    /// The same, as a time in milliseconds.
    pub(crate) fn millis(&mut self, range: RangeInclusive<u64>) -> Duration {
        Duration::from_millis(self.within(range))
    }

    /// Returns true once in `times`.
    pub(crate) fn once_in(&mut self, times: u64) -> bool {
        self.number().is_multiple_of(times)
    }

    /// Returns one of these, which are not none.
    pub(crate) fn one_of<T: Copy>(&mut self, these: &[T]) -> T {
        these[self.count(0..=these.len() as u64 - 1)]
    }

    /// Returns any bytes.
    pub(crate) fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.number() as u8).collect()
    }
}
