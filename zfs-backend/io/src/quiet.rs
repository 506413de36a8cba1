//! How a store that does not answer is recognised: it has work under way and
//! ends none of it, look after look.

/// Looks without an end of anything after which a store counts as slow: what is
/// taken in for it gets bounds of its own.
pub(crate) const SLOW_LOOKS: u32 = 2;
/// Looks after which it counts as hanging: who waits for it is sent away to
/// come again.
pub(crate) const HANGING_LOOKS: u32 = 5;
const _: () = assert!(SLOW_LOOKS < HANGING_LOOKS);
/// Time between looks.
pub(crate) const LOOK_INTERVAL: std::time::Duration = std::time::Duration::from_secs(1);

/// What one store has under way in one place (a pool of workers, a ring).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct UnderWay {
    count: usize,
    quiet_looks: u32,
}

impl UnderWay {
    /// Requests under way.
    pub(crate) fn count(self) -> usize {
        self.count
    }

    /// Notes that a request begins.
    pub(crate) fn begin(&mut self) {
        self.count += 1;
    }

    /// Notes that a request has ended, however: the store answers. Returns
    /// whether it was taken for hanging until now.
    pub(crate) fn end(&mut self) -> bool {
        let hung = self.is_hanging();
        self.count = self.count.saturating_sub(1);
        self.quiet_looks = 0;
        hung
    }

    /// Looks at it. Returns whether it is found to hang now, for the first time.
    pub(crate) fn look(&mut self) -> bool {
        if self.count == 0 {
            self.quiet_looks = 0;
            return false;
        }
        self.quiet_looks = self.quiet_looks.saturating_add(1);
        self.quiet_looks == HANGING_LOOKS
    }

    /// Whether nothing has ended for a while.
    pub(crate) fn is_slow(self) -> bool {
        self.quiet_looks >= SLOW_LOOKS
    }

    /// Whether nothing has ended for so long that nothing more is to wait.
    pub(crate) fn is_hanging(self) -> bool {
        self.quiet_looks >= HANGING_LOOKS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_silence_with_work_under_way_counts() {
        let mut store = UnderWay::default();
        for _ in 0..10 {
            assert!(!store.look());
        }
        store.begin();
        store.begin();
        let found: Vec<_> = (0..6).map(|_| store.look()).collect();
        assert_eq!(found, [false, false, false, false, true, false], "said once");
        assert!(store.is_slow() && store.is_hanging());
        assert!(store.end(), "it answers again");
        assert!(!store.is_slow() && store.count() == 1);
    }
}
