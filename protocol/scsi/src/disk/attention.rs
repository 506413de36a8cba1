//! Unit attention conditions, queued for each I_T nexus (SAM-5 §5.14).

use crate::limits::MAX_UNIT_ATTENTIONS;
use crate::sense::Asc;
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

    /// Takes the oldest condition, to be reported.
    pub(crate) fn take(&mut self) -> Option<Asc> {
        self.pending.pop_front()
    }

    /// Drops a condition that another command has reported.
    pub(crate) fn clear(&mut self, asc: Asc) {
        self.pending.retain(|&pending| pending != asc);
    }
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
