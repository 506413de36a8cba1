//! A set of page numbers kept as disjoint ranges, so that a reservation of an
//! exbibyte costs as little as one of a page.

use std::collections::BTreeMap;
use std::ops::Range;

/// Pages that are reserved but hold no data.
#[derive(Clone, Debug, Default)]
pub(crate) struct PageSet {
    /// Start to end (exclusive); disjoint, never empty.
    ranges: BTreeMap<u64, u64>,
    count: u64,
}

impl PageSet {
    /// Pages in the set.
    pub(crate) fn len(&self) -> u64 {
        self.count
    }

    /// Whether `page` is in the set.
    pub(crate) fn contains(&self, page: u64) -> bool {
        self.ranges.range(..=page).next_back().is_some_and(|(_, end)| *end > page)
    }

    /// Pages of `pages` that are in the set.
    pub(crate) fn overlap(&self, pages: &Range<u64>) -> u64 {
        self.touched(pages)
            .iter()
            .map(|range| range.end.min(pages.end) - range.start.max(pages.start))
            .sum()
    }

    /// Adds all of `pages`.
    pub(crate) fn insert(&mut self, pages: Range<u64>) {
        if pages.is_empty() {
            return;
        }
        self.remove(pages.clone());
        self.count += pages.end - pages.start;
        self.ranges.insert(pages.start, pages.end);
    }

    /// Takes all of `pages` out.
    pub(crate) fn remove(&mut self, pages: Range<u64>) {
        for range in self.touched(&pages) {
            self.ranges.remove(&range.start);
            self.count -= range.end.min(pages.end) - range.start.max(pages.start);
            if range.start < pages.start {
                self.ranges.insert(range.start, pages.start);
            }
            if range.end > pages.end {
                self.ranges.insert(pages.end, range.end);
            }
        }
    }

    fn touched(&self, pages: &Range<u64>) -> Vec<Range<u64>> {
        if pages.is_empty() {
            return Vec::new();
        }
        self.ranges
            .range(..pages.end)
            .rev()
            .take_while(|(_, end)| **end > pages.start)
            .map(|(start, end)| *start..*end)
            .collect()
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
