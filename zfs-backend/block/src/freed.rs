//! Ranges of a device that were freed here and not written since. Linux cannot
//! query a device for free ranges; a range not known to be free counts as
//! allocated, so that no data is skipped.

use crate::span::Span;
use rangemap::RangeSet;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use zgate_store::block_store::{Extent, ExtentKind};

/// Most separate ranges remembered.
const MAX_RANGES: usize = 65_536;

#[derive(Debug, Default)]
struct Known {
    ranges: RangeSet<u64>,
    /// Ranges that each running discard will have freed: its own, without what was written
    /// since it began. Whether the write or the discard came last is unknown there.
    running: BTreeMap<u64, RangeSet<u64>>,
    /// Number of discards begun.
    begun: u64,
}

impl Known {
    fn is_empty(&self) -> bool {
        self.ranges.is_empty() && self.running.is_empty()
    }
}

/// Ranges that were freed.
#[derive(Debug, Default)]
pub(crate) struct Freed {
    /// Set while there are ranges, or discards that run.
    any: AtomicBool,
    known: Mutex<Known>,
}

/// A discard that runs. If it is dropped, nothing counts as freed by it.
#[derive(Debug)]
pub(crate) struct Discard<'a> {
    freed: &'a Freed,
    number: u64,
}

impl Discard<'_> {
    /// Records that its range was freed, except for what was written meanwhile.
    pub(crate) fn complete(self) {
        let mut known = self.freed.lock();
        let Some(freed) = known.running.remove(&self.number) else { return };
        for range in freed {
            if known.ranges.len() < MAX_RANGES {
                known.ranges.insert(range);
            }
        }
    }
}

impl Drop for Discard<'_> {
    fn drop(&mut self) {
        let mut known = self.freed.lock();
        known.running.remove(&self.number);
        self.freed.any.store(!known.is_empty(), Ordering::SeqCst);
    }
}

impl Freed {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a discard of the range begins. Call it before the discard: writes
    /// are noted from then on.
    pub(crate) fn begin(&self, span: Span) -> Discard<'_> {
        let mut known = self.lock();
        known.begun += 1;
        let number = known.begun;
        let mut range = RangeSet::new();
        if !span.is_empty() {
            range.insert(span.offset..span.end());
        }
        known.running.insert(number, range);
        self.any.store(true, Ordering::SeqCst);
        Discard { freed: self, number }
    }

    /// Records that the range is written. Call it before and after the write,
    /// so that a discard that runs meanwhile has no effect.
    pub(crate) fn remove(&self, span: Span) {
        if !self.any.load(Ordering::SeqCst) || span.is_empty() {
            return;
        }
        let mut known = self.lock();
        known.ranges.remove(span.offset..span.end());
        for freed in known.running.values_mut() {
            freed.remove(span.offset..span.end());
        }
        self.any.store(!known.is_empty(), Ordering::SeqCst);
    }

    /// Records that the content may have been replaced below, by a rollback: nothing is
    /// known to be free.
    pub(crate) fn clear(&self) {
        let mut known = self.lock();
        known.ranges.clear();
        known.running.values_mut().for_each(RangeSet::clear);
        self.any.store(!known.is_empty(), Ordering::SeqCst);
    }

    /// Lists how a prefix of the range is stored, in at most `max` extents.
    pub(crate) fn extents(&self, span: Span, max: usize) -> Vec<Extent> {
        let known = self.lock();
        let mut found = Vec::new();
        let mut at = span.offset;
        let mut up_to = |end: u64, kind| {
            if at < end && found.len() < max {
                found.push(Extent { offset: at, len: end - at, kind });
                at = end;
            }
        };
        for freed in known.ranges.overlapping(span.offset..span.end()).take(max) {
            up_to(freed.start, ExtentKind::Mapped);
            up_to(freed.end.min(span.end()), ExtentKind::Deallocated);
        }
        up_to(span.end(), ExtentKind::Mapped);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_agrees_with_a_map_of_every_byte() {
        const LEN: u64 = 64;
        let freed = Freed::default();
        let mut model = [false; LEN as usize];
        let mut random = 1u64;
        for _ in 0..4000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let offset = (random >> 33) % LEN;
            let len = ((random >> 45) % 12).min(LEN - offset);
            let frees = random >> 63 == 1;
            let span = Span { offset, len };
            if frees {
                freed.begin(span).complete();
            } else {
                freed.remove(span);
            }
            model[offset as usize..(offset + len) as usize].fill(frees);
            let whole = Span { offset: 0, len: LEN };
            let mut at = 0;
            for extent in freed.extents(whole, usize::MAX) {
                assert_eq!(extent.offset, at);
                at += extent.len;
                let is_free = extent.kind == ExtentKind::Deallocated;
                let bytes = &model[extent.offset as usize..at as usize];
                assert!(bytes.iter().all(|free| *free == is_free));
            }
            assert_eq!(at, LEN);
        }
    }
    const RANGE: Span = Span { offset: 0, len: 8 };

    fn kinds(freed: &Freed) -> Vec<(u64, ExtentKind)> {
        let found = freed.extents(RANGE, usize::MAX);
        found.into_iter().map(|extent| (extent.len, extent.kind)).collect()
    }

    #[test]
    fn what_is_written_while_a_discard_runs_is_not_free() {
        use ExtentKind::{Deallocated, Mapped};
        let freed = Freed::default();
        let discard = freed.begin(RANGE);
        let other = freed.begin(RANGE);
        // The write began and ended after the kernel had carried out both discards.
        freed.remove(Span { offset: 2, len: 3 });
        discard.complete();
        assert_eq!(kinds(&freed), [(2, Deallocated), (3, Mapped), (3, Deallocated)]);
        other.complete();
        assert_eq!(kinds(&freed), [(2, Deallocated), (3, Mapped), (3, Deallocated)]);
        freed.begin(RANGE).complete();
        assert_eq!(kinds(&freed), [(8, Deallocated)], "it came after the write");
    }

    #[test]
    fn a_discard_that_fails_frees_nothing() {
        let freed = Freed::default();
        drop(freed.begin(RANGE));
        assert_eq!(kinds(&freed), [(8, ExtentKind::Mapped)]);
        assert!(!freed.any.load(Ordering::SeqCst), "writes ask no lock again");
    }

    #[test]
    fn nothing_is_free_after_the_content_was_replaced() {
        let freed = Freed::default();
        freed.begin(RANGE).complete();
        let running = freed.begin(RANGE);
        freed.clear();
        assert_eq!(kinds(&freed), [(8, ExtentKind::Mapped)]);
        running.complete();
        assert_eq!(kinds(&freed), [(8, ExtentKind::Mapped)], "it may have come before");
    }
}
