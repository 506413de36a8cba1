//! Random numbers of a run: all of them come from its seed.

/// A stream of random numbers (SplitMix64).
#[derive(Clone, Debug)]
pub struct Dice(u64);

fn mixed(mut bits: u64) -> u64 {
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}

impl Dice {
    /// A stream of its own for each use: numbers drawn for one purpose do not
    /// shift those of another, so that a schedule can lose a step and keep the
    /// rest.
    #[must_use]
    pub fn new(seed: u64, purpose: &str) -> Self {
        let label = purpose.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Self(mixed(seed) ^ label)
    }

    /// 64 random bits.
    pub fn u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed(self.0)
    }

    /// A number below `bound`; 0 if there is none.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.u64() % bound }
    }

    /// True once in so many times.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// A number from `from` to below `to`, small ones as often as large ones:
    /// every power of two is equally likely.
    pub fn spread(&mut self, from: u64, to: u64) -> u64 {
        let (low, high) = (from.max(1).ilog2(), to.saturating_sub(1).max(1).ilog2());
        let power = low + self.below(u64::from(high.saturating_sub(low)) + 1) as u32;
        let first = from.max(1 << power);
        let end = to.min(1 << (power + 1));
        first + self.below(end.saturating_sub(first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_and_purposes_differ() {
        let draw = |seed, purpose| {
            let mut dice = Dice::new(seed, purpose);
            [dice.u64(), dice.u64(), dice.below(10)]
        };
        assert_eq!(draw(1, "disk"), draw(1, "disk"));
        assert_ne!(draw(1, "disk"), draw(1, "network"));
        assert_ne!(draw(1, "disk"), draw(2, "disk"));
    }

    #[test]
    fn spread_numbers_stay_inside_and_reach_both_ends() {
        let mut dice = Dice::new(3, "spread");
        let drawn: Vec<u64> = (0..2000).map(|_| dice.spread(5, 100_000)).collect();
        assert!(drawn.iter().all(|n| (5..100_000).contains(n)));
        assert!(drawn.iter().any(|n| *n < 50) && drawn.iter().any(|n| *n > 50_000));
    }
}
