//! Ranges of a device that were freed here and not written since. Linux cannot
//! query a device for free ranges; a range not known to be free counts as
//! allocated, so that no data is skipped.

use crate::span::Span;
use rangemap::RangeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use zgate_store::block_store::{Extent, ExtentKind};

/// Most separate ranges remembered.
const MAX_RANGES: usize = 65_536;

/// Ranges that were freed.
#[derive(Debug, Default)]
pub(crate) struct Freed {
    any: AtomicBool,
    ranges: Mutex<RangeSet<u64>>,
}

impl Freed {
    fn lock(&self) -> MutexGuard<'_, RangeSet<u64>> {
        self.ranges.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that the range was freed.
    pub(crate) fn add(&self, span: Span) {
        let mut ranges = self.lock();
        if !span.is_empty() && ranges.len() < MAX_RANGES {
            ranges.insert(span.offset..span.end());
            self.any.store(true, Ordering::SeqCst);
        }
    }

    /// Records that the range is written. Call it before and after the write,
    /// so that a discard that ends meanwhile has no effect.
    pub(crate) fn remove(&self, span: Span) {
        if !self.any.load(Ordering::SeqCst) || span.is_empty() {
            return;
        }
        let mut ranges = self.lock();
        ranges.remove(span.offset..span.end());
        if ranges.is_empty() {
            self.any.store(false, Ordering::SeqCst);
        }
    }

    /// Lists how a prefix of the range is stored, in at most `max` extents.
    pub(crate) fn extents(&self, span: Span, max: usize) -> Vec<Extent> {
        let ranges = self.lock();
        let mut found = Vec::new();
        let mut at = span.offset;
        let mut up_to = |end: u64, kind| {
            if at < end && found.len() < max {
                found.push(Extent { offset: at, len: end - at, kind });
                at = end;
            }
        };
        for freed in ranges.overlapping(span.offset..span.end()).take(max) {
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
                freed.add(span)
            } else {
                freed.remove(span)
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
}
