//! What of a device was freed here and not written since. Linux has no way to
//! ask a device; what is not known to be free is taken for allocated, so that
//! nobody passes over data.

use crate::span::Span;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use zgate_store::block_store::{Extent, ExtentKind};

/// Most separate ranges remembered.
const MAX_RANGES: usize = 65_536;

/// Ranges by their first byte, with their ends; none touches another.
#[derive(Debug, Default)]
pub(crate) struct Freed {
    any: AtomicBool,
    ranges: Mutex<BTreeMap<u64, u64>>,
}

impl Freed {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, u64>> {
        self.ranges.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The range was freed.
    pub(crate) fn add(&self, span: Span) {
        if span.is_empty() {
            return;
        }
        let mut ranges = self.lock();
        let (mut start, mut end) = (span.offset, span.end());
        if let Some((&before, &its_end)) = ranges.range(..=start).next_back()
            && its_end >= start
        {
            start = before;
            end = end.max(its_end);
        }
        while let Some((&next, &its_end)) = ranges.range(start..).find(|(next, _)| **next <= end) {
            ranges.remove(&next);
            end = end.max(its_end);
        }
        if ranges.len() < MAX_RANGES {
            ranges.insert(start, end);
        }
        self.any.store(true, Ordering::SeqCst);
    }

    /// The range is written. Call it before the write and after it, so that a
    /// discard that ends meanwhile is not believed.
    pub(crate) fn remove(&self, span: Span) {
        if !self.any.load(Ordering::SeqCst) || span.is_empty() {
            return;
        }
        let mut ranges = self.lock();
        let (start, end) = (span.offset, span.end());
        if let Some((&before, &its_end)) = ranges.range(..start).next_back()
            && its_end > start
        {
            ranges.insert(before, start);
            if its_end > end {
                ranges.insert(end, its_end);
            }
        }
        while let Some((&next, &its_end)) = ranges.range(start..end).next() {
            ranges.remove(&next);
            if its_end > end {
                ranges.insert(end, its_end);
            }
        }
        if ranges.is_empty() {
            self.any.store(false, Ordering::SeqCst);
        }
    }

    /// How a prefix of the range is stored, in at most `max` extents.
    pub(crate) fn extents(&self, span: Span, max: usize) -> Vec<Extent> {
        let ranges = self.lock();
        let mut found = Vec::new();
        let mut at = span.offset;
        while at < span.end() && found.len() < max {
            let around = ranges.range(..=at).next_back().filter(|(_, end)| **end > at);
            let (kind, end) = match around {
                Some((_, &end)) => (ExtentKind::Deallocated, end),
                None => {
                    let next = ranges.range(at..).next().map(|(&next, _)| next);
                    (ExtentKind::Mapped, next.unwrap_or(u64::MAX))
                }
            };
            let end = end.min(span.end());
            found.push(Extent { offset: at, len: end - at, kind });
            at = end;
        }
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
