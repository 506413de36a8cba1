//! Unit attention conditions, queued for each I_T nexus (SAM-5 §5.14).

use crate::command::mode::THRESHOLD_AT;
use crate::limits::MAX_UNIT_ATTENTIONS;
use crate::sense::{Asc, Sense, SenseKey};
use std::collections::VecDeque;

/// Pending unit attentions of one I_T nexus, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Attentions {
    pending: VecDeque<Asc>,
}

impl Attentions {
    /// Queues a condition, unless it is pending already.
    pub(crate) fn raise(&mut self, asc: Asc) {
        if self.pending.contains(&asc) {
            return;
        }
        if self.pending.len() == MAX_UNIT_ATTENTIONS {
            self.pending.pop_front();
        }
        self.pending.push_back(asc);
    }

    /// Queues a reset, which takes precedence over all earlier conditions
    /// (SAM-5 §5.14.2).
    pub(crate) fn reset(&mut self, asc: Asc) {
        self.pending.clear();
        self.pending.push_back(asc);
    }

    /// Returns whether a condition is pending.
    pub(crate) fn is_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Takes the oldest condition, to be reported.
    pub(crate) fn take(&mut self) -> Option<Asc> {
        self.pending.pop_front()
    }

    /// Drops a condition that another command has reported.
    pub(crate) fn clear(&mut self, asc: Asc) {
        self.pending.retain(|&pending| pending != asc);
    }
}

/// Returns the sense data of a unit attention. The warning about space names the
/// threshold by its position in the mode page (SBC-4 §4.7.3.7.6).
pub(crate) fn unit_attention(asc: Asc) -> Sense {
    let sense = Sense::new(SenseKey::UnitAttention, asc);
    if asc == Asc::THIN_SOFT_THRESHOLD {
        return sense.with_information(u64::from(THRESHOLD_AT));
    }
    sense
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_queue_is_bounded_and_has_no_doubles() {
        let mut attentions = Attentions::default();
        for code in 0..100 {
            attentions.raise(Asc(code));
            attentions.raise(Asc(code));
        }
        let count = std::iter::from_fn(|| attentions.take()).count();
        assert_eq!(count, MAX_UNIT_ATTENTIONS);
    }

    #[test]
    fn a_reset_displaces_older_conditions() {
        let mut attentions = Attentions::default();
        attentions.raise(Asc::CAPACITY_CHANGED);
        attentions.reset(Asc::DEVICE_RESET);
        attentions.raise(Asc::LUNS_CHANGED);
        attentions.clear(Asc::LUNS_CHANGED);
        assert_eq!(attentions.take(), Some(Asc::DEVICE_RESET));
        assert_eq!(attentions.take(), None);
    }
}
