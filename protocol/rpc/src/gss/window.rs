//! The sequence window of a context (RFC 2203 §5.3.3.1).

use super::limits::{MAX_SEQUENCE, SEQUENCE_WINDOW};

const WORDS: usize = SEQUENCE_WINDOW as usize / 64;

/// Reason for which a call is not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SequenceFault {
    /// The number was seen before, or lies below the window: the call is
    /// dropped without an answer.
    Seen,
    /// The number is above [`MAX_SEQUENCE`]: the client must make a new
    /// context.
    Exhausted,
}

/// Sequence numbers that a context has seen.
#[derive(Clone, Debug)]
pub struct SequenceWindow {
    highest: u32,
    /// Bit `n % SEQUENCE_WINDOW` is set if `n` was seen, for each `n` of the
    /// window.
    seen: [u64; WORDS],
    has_any: bool,
}

impl Default for SequenceWindow {
    fn default() -> Self {
        Self { highest: 0, seen: [0; WORDS], has_any: false }
    }
}

fn place(sequence: u32) -> (usize, u64) {
    let bit = sequence % SEQUENCE_WINDOW;
    ((bit / 64) as usize, 1 << (bit % 64))
}

impl SequenceWindow {
    /// Takes a sequence number, once.
    ///
    /// # Errors
    /// [`SequenceFault`].
    pub fn take(&mut self, sequence: u32) -> Result<(), SequenceFault> {
        if sequence > MAX_SEQUENCE {
            return Err(SequenceFault::Exhausted);
        }
        if !self.has_any || sequence > self.highest {
            self.move_to(sequence);
        } else if self.highest - sequence >= SEQUENCE_WINDOW {
            return Err(SequenceFault::Seen);
        }
        let (word, bit) = place(sequence);
        if self.seen[word] & bit != 0 {
            return Err(SequenceFault::Seen);
        }
        self.seen[word] |= bit;
        Ok(())
    }

    /// Moves the window up, and forgets the numbers that leave it.
    fn move_to(&mut self, sequence: u32) {
        if !self.has_any || sequence - self.highest >= SEQUENCE_WINDOW {
            self.seen = [0; WORDS];
        } else {
            for entering in self.highest + 1..=sequence {
                let (word, bit) = place(entering);
                self.seen[word] &= !bit;
            }
        }
        (self.highest, self.has_any) = (sequence, true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_taken_once_in_any_order() {
        let mut window = SequenceWindow::default();
        for sequence in [5, 1, 3, 2, 4, 0] {
            assert_eq!(window.take(sequence), Ok(()), "{sequence}");
            assert_eq!(window.take(sequence), Err(SequenceFault::Seen), "{sequence}");
        }
    }

    #[test]
    fn numbers_below_the_window_are_dropped() {
        let mut window = SequenceWindow::default();
        let top = 5 * SEQUENCE_WINDOW;
        assert_eq!(window.take(top), Ok(()));
        assert_eq!(window.take(top - SEQUENCE_WINDOW), Err(SequenceFault::Seen));
        assert_eq!(window.take(top - SEQUENCE_WINDOW + 1), Ok(()));
        // A jump forgets everything, a step only what leaves.
        assert_eq!(window.take(top + 1), Ok(()));
        assert_eq!(window.take(top), Err(SequenceFault::Seen));
        assert_eq!(window.take(top + 3 * SEQUENCE_WINDOW), Ok(()));
        assert_eq!(window.take(top + 3 * SEQUENCE_WINDOW - 1), Ok(()));
        assert_eq!(window.take(top + 1), Err(SequenceFault::Seen));
    }

    #[test]
    fn the_last_number_is_the_last() {
        let mut window = SequenceWindow::default();
        assert_eq!(window.take(MAX_SEQUENCE), Ok(()));
        assert_eq!(window.take(MAX_SEQUENCE + 1), Err(SequenceFault::Exhausted));
        assert_eq!(window.take(u32::MAX), Err(SequenceFault::Exhausted));
        assert_eq!(window.take(MAX_SEQUENCE - 1), Ok(()));
    }

    /// The window agrees with a set that forgets nothing.
    #[test]
    fn the_window_agrees_with_a_set() {
        let mut seen = std::collections::BTreeSet::new();
        let mut window = SequenceWindow::default();
        let mut state = 1_u32;
        for _ in 0..20_000 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let highest = seen.last().copied().unwrap_or(0);
            let sequence = (highest + (state >> 8) % 600).saturating_sub(400);
            let is_new = seen.last().is_none_or(|_| sequence + SEQUENCE_WINDOW > highest)
                && seen.insert(sequence);
            assert_eq!(window.take(sequence).is_ok(), is_new, "{sequence}");
        }
    }
}
