//! Times of the looks for datasets that are away: most of them are told of when they return, but
//! not all.

use super::limits::{FIRST_LOOK, LONGEST_LOOK};
use std::time::{Duration, Instant};

/// The last look, and the change before it. While nothing changes, a pause is as long as all
/// those before it together, within bounds.
#[derive(Default)]
pub(crate) struct Looks {
    /// Time of the last look; none before the first.
    last: Option<Instant>,
    /// Time of the last change.
    changed: Option<Instant>,
}

impl Looks {
    /// Notes a look at `now`, whatever came of it; `is_other`: something has changed since the
    /// one before.
    pub(crate) fn note(&mut self, now: Instant, is_other: bool) {
        self.last = Some(now);
        if is_other || self.changed.is_none() {
            self.changed = Some(now);
        }
    }

    /// Begins with short pauses again: more may change.
    pub(crate) fn hurry(&mut self) {
        self.changed = self.last;
    }

    /// Returns whether another look is due at `now` although nothing has happened.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        let Some((last, changed)) = self.last.zip(self.changed) else { return true };
        now >= last + pause(last.saturating_duration_since(changed))
    }

    /// Returns whether `end` lies behind the last look, and not behind `now`.
    pub(crate) fn has_passed(&self, end: Instant, now: Instant) -> bool {
        end <= now && self.last.is_none_or(|last| last < end)
    }
}

/// Returns the pause after so long a time without a change.
fn pause(unchanged: Duration) -> Duration {
    unchanged.clamp(FIRST_LOOK, LONGEST_LOOK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_while_nothing_changes_and_are_short_again_after_a_change() {
        let (mut looks, begin) = (Looks::default(), Instant::now());
        let second = |number| begin + Duration::from_secs(number);
        assert!(looks.is_due(begin), "nobody has looked");
        // Looks as often as they are due, to the second.
        let look = |looks: &mut Looks, seconds: std::ops::Range<u64>| {
            let mut at = Vec::new();
            for number in seconds {
                if looks.is_due(second(number)) {
                    looks.note(second(number), false);
                    at.push(number);
                }
            }
            at
        };
        assert_eq!(look(&mut looks, 0..130), [0, 2, 4, 8, 16, 32, 62, 92, 122]);
        looks.note(second(130), true);
        assert_eq!(look(&mut looks, 131..140), [132, 134, 138]);
        looks.note(second(140), false);
        looks.hurry();
        assert_eq!(look(&mut looks, 141..150), [142, 144, 148]);
    }

    #[test]
    fn an_end_is_looked_at_once() {
        let (mut looks, begin) = (Looks::default(), Instant::now());
        let second = |number| begin + Duration::from_secs(number);
        assert!(looks.has_passed(begin, begin), "nobody has looked");
        looks.note(second(5), false);
        assert!(!looks.has_passed(second(9), second(8)));
        assert!(looks.has_passed(second(9), second(9)));
        // Whatever came of the look.
        looks.note(second(9), false);
        assert!(!looks.has_passed(second(9), second(10)));
    }
}
