//! A set of page numbers kept as disjoint ranges, so that a reservation of an
//! exbibyte costs as little as one of a page.

use rangemap::RangeSet;
use std::ops::Range;

/// Set of pages that are reserved but hold no data.
#[derive(Clone, Debug, Default)]
pub(crate) struct PageSet {
    ranges: RangeSet<u64>,
    count: u64,
}

impl PageSet {
    /// Returns the number of pages in the set.
    pub(crate) fn len(&self) -> u64 {
        self.count
    }

    /// Returns true for a page of the set.
    pub(crate) fn contains(&self, page: u64) -> bool {
        self.ranges.contains(&page)
    }

    /// Returns how many pages of `pages` are in the set.
    pub(crate) fn overlap(&self, pages: &Range<u64>) -> u64 {
        let within = |range: &Range<u64>| range.end.min(pages.end) - range.start.max(pages.start);
        self.ranges.overlapping(pages).map(within).sum()
    }

    /// Adds all of `pages`.
    pub(crate) fn insert(&mut self, pages: Range<u64>) {
        if !pages.is_empty() {
            self.count += pages.end - pages.start - self.overlap(&pages);
            self.ranges.insert(pages);
        }
    }

    /// Removes all of `pages`.
    pub(crate) fn remove(&mut self, pages: Range<u64>) {
        if !pages.is_empty() {
            self.count -= self.overlap(&pages);
            self.ranges.remove(pages);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_split_and_are_counted() {
        let mut set = PageSet::default();
        set.insert(10..20);
        set.insert(15..30);
        assert_eq!(set.len(), 20);
        set.remove(12..14);
        set.remove(29..100);
        assert_eq!(set.len(), 17);
        assert!(set.contains(11) && !set.contains(12) && set.contains(14) && !set.contains(29));
        assert_eq!(set.overlap(&(0..13)), 2);
        assert_eq!(set.overlap(&(0..u64::MAX)), 17);
        set.remove(0..u64::MAX);
        assert_eq!(set.len(), 0);
    }

    #[test]
    fn matches_a_plain_set_under_many_changes() {
        let (mut set, mut model) = (PageSet::default(), std::collections::BTreeSet::new());
        let mut state = 7u64;
        for _ in 0..2000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let start = (state >> 33) % 64;
            let end = start + (state >> 45) % 9;
            if state >> 63 == 0 {
                set.insert(start..end);
                model.extend(start..end);
            } else {
                set.remove(start..end);
                model.retain(|page| !(start..end).contains(page));
            }
            assert_eq!(set.len(), model.len() as u64);
            assert!((0..80).all(|page| set.contains(page) == model.contains(&page)));
        }
    }
}
