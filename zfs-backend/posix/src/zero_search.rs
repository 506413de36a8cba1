//! Search for the holes of a file by the zeros with which its large reads begin.
//!
//! Where a seek for holes may wait (ZFS), zeros that pass through memory are told as one. A large
//! read does not pass through it: the data leaves through a pipe. So the beginning of some large
//! reads is looked at before, of files that take less space than their size. Most of these have
//! no holes, they are compressed: the longer there is nothing but data, the fewer reads are looked
//! at, and none if there are few.

use std::sync::atomic::{AtomicU8, Ordering};

/// Large reads before the first one that is looked at.
const FIRST_PAUSE: u8 = 4;
/// Most large reads between two that are looked at.
const MAX_PAUSE: u8 = 16;
const _: () = assert!(FIRST_PAUSE <= MAX_PAUSE && MAX_PAUSE <= u8::MAX / 2);

/// Choice of the large reads of one file that are looked at. Two that begin at the same moment may
/// count as one.
#[derive(Debug)]
pub(crate) struct ZeroSearch {
    /// Reads before the next one that is looked at.
    left: AtomicU8,
    /// The same after the last one that was.
    pause: AtomicU8,
}

/// A read that is looked at: the pause before it.
#[derive(Debug)]
pub(crate) struct Look(u8);

impl Default for ZeroSearch {
    fn default() -> Self {
        Self { left: AtomicU8::new(FIRST_PAUSE), pause: AtomicU8::new(FIRST_PAUSE) }
    }
}

impl ZeroSearch {
    /// Counts the read that begins now; `None` if it is not to be looked at.
    pub(crate) fn take_next(&self) -> Option<Look> {
        let left = self.left.load(Ordering::Relaxed);
        if left > 0 {
            self.left.store(left - 1, Ordering::Relaxed);
            return None;
        }
        let pause = self.pause.load(Ordering::Relaxed);
        if pause > 0 {
            // Those that begin before this one is looked at are not looked at as well.
            self.left.store(pause, Ordering::Relaxed);
        }
        Some(Look(pause))
    }

    /// Records whether a read begins with zeros. After zeros each read is looked at, up to the end
    /// of the hole: holes of images are longer than a read.
    pub(crate) fn note(&self, Look(before): Look, is_hole: bool) {
        let pause = if is_hole { 0 } else { (before * 2).clamp(1, MAX_PAUSE) };
        self.pause.store(pause, Ordering::Relaxed);
        self.left.store(pause, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts the reads of these that are looked at.
    fn looked_at(search: &ZeroSearch, reads: usize, is_hole: bool) -> usize {
        let mut count = 0;
        for look in (0..reads).filter_map(|_| search.take_next()) {
            search.note(look, is_hole);
            count += 1;
        }
        count
    }

    #[test]
    fn the_longer_there_is_nothing_but_data_the_fewer_reads_are_looked_at() {
        let search = ZeroSearch::default();
        for before in [4, 8, 16, 16] {
            assert_eq!(looked_at(&search, before, false), 0);
            assert_eq!(looked_at(&search, 1, false), 1);
        }
        assert_eq!(looked_at(&search, 17_000, false), 1000);
    }

    #[test]
    fn a_hole_is_found_within_a_bound_and_followed_to_its_end() {
        let search = ZeroSearch::default();
        looked_at(&search, 100_000, false);
        let missed = 1000 - looked_at(&search, 1000, true);
        assert!(missed <= usize::from(MAX_PAUSE), "{missed}");
        assert_eq!(looked_at(&search, 1000, true), 1000);
        // Behind its end the next one is looked for as at first, and sooner.
        assert_eq!(looked_at(&search, 3, false), 2);
    }

    /// Clients read ahead: many requests run at the same time.
    #[test]
    fn of_the_reads_that_run_at_the_same_time_one_is_looked_at_unless_there_is_a_hole() {
        let search = ZeroSearch::default();
        let begun = |reads| -> Vec<_> { (0..reads).filter_map(|_| search.take_next()).collect() };
        let mut first = begun(2 * FIRST_PAUSE);
        assert_eq!(first.len(), 1);
        search.note(first.remove(0), true);
        let in_hole = begun(16);
        assert_eq!(in_hole.len(), 16);
        for look in in_hole {
            search.note(look, false);
        }
        assert_eq!(begun(2).len(), 1, "the end of the hole is found once");
    }
}
