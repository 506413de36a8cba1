//! Content of a file: sparse pages, reservations, a length.

use crate::page_set::PageSet;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use zgate_store::file_store::SeekWhat;
use zgate_store::{StoreError, StoreResult};

/// Unit of allocation in bytes.
pub(crate) const PAGE_BYTES: u64 = 4096;
const PAGE: usize = PAGE_BYTES as usize;

type Page = Arc<[u8; PAGE]>;

/// Content of a file. Pages are shared between copies until one of them writes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Content {
    pages: BTreeMap<u64, Page>,
    /// Reserved pages without data; disjoint from `pages`.
    reserved: PageSet,
    size: u64,
}

impl Content {
    /// Returns the length in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Returns the number of pages with data or a reservation.
    pub(crate) fn allocated_pages(&self) -> u64 {
        self.pages.len() as u64 + self.reserved.len()
    }

    /// Reads the bytes from `offset` to `offset + len`, up to the end.
    pub(crate) fn read(&self, offset: u64, len: usize) -> Vec<u8> {
        let left = self.size.saturating_sub(offset);
        let want = usize::try_from(left).unwrap_or(usize::MAX).min(len);
        let mut out = vec![0; want];
        let range = offset..offset + want as u64;
        for (index, page) in self.pages.range(touched_pages(&range)) {
            let part = overlap(*index, &range);
            let target = (part.start - offset) as usize;
            let source = (part.start - index * PAGE_BYTES) as usize;
            let count = (part.end - part.start) as usize;
            out[target..target + count].copy_from_slice(&page[source..source + count]);
        }
        out
    }

    /// Returns how many of `len` bytes at `offset` can be written with
    /// `free_pages` more pages.
    pub(crate) fn writable(&self, offset: u64, len: u64, mut free_pages: u64) -> u64 {
        let range = offset..offset + len;
        for index in touched_pages(&range) {
            if self.pages.contains_key(&index) || self.reserved.contains(index) {
                continue;
            }
            if free_pages == 0 {
                return (index * PAGE_BYTES).saturating_sub(offset);
            }
            free_pages -= 1;
        }
        len
    }

    /// Writes `data`, allocating pages, and grows the file to cover it.
    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        let range = offset..offset + data.len() as u64;
        for index in touched_pages(&range) {
            let part = overlap(index, &range);
            let source = (part.start - offset) as usize;
            let target = (part.start - index * PAGE_BYTES) as usize;
            let count = (part.end - part.start) as usize;
            let page = self.page_mut(index);
            page[target..target + count].copy_from_slice(&data[source..source + count]);
        }
        self.size = self.size.max(range.end);
    }

    fn page_mut(&mut self, index: u64) -> &mut [u8; PAGE] {
        self.reserved.remove(index..index + 1);
        Arc::make_mut(self.pages.entry(index).or_insert_with(|| Arc::new([0; PAGE])))
    }

    /// Truncates the file, or extends it with a hole.
    pub(crate) fn set_size(&mut self, size: u64) {
        if size < self.size {
            let old_end = self.size.next_multiple_of(PAGE_BYTES);
            self.zero(size..old_end);
            let first_gone = size.div_ceil(PAGE_BYTES);
            self.pages.split_off(&first_gone);
            self.reserved.remove(first_gone..u64::MAX);
        }
        self.size = size;
    }

    /// Punches a hole; the length does not change.
    pub(crate) fn punch(&mut self, offset: u64, len: u64) {
        let end = offset.saturating_add(len).min(self.size);
        if offset >= end {
            return;
        }
        // A page cut short by the end of the file is removed as a whole.
        let end = if end == self.size { end.next_multiple_of(PAGE_BYTES) } else { end };
        self.zero(offset..end);
        self.reserved.remove(offset.div_ceil(PAGE_BYTES)..end / PAGE_BYTES);
    }

    /// Drops the pages that lie entirely inside `range` and zeroes the rest of
    /// it.
    fn zero(&mut self, range: Range<u64>) {
        let touched: Vec<u64> =
            self.pages.range(touched_pages(&range)).map(|(index, _)| *index).collect();
        for index in touched {
            let part = overlap(index, &range);
            if part.end - part.start == PAGE_BYTES {
                self.pages.remove(&index);
            } else if let Some(page) = self.pages.get_mut(&index) {
                let start = (part.start - index * PAGE_BYTES) as usize;
                let end = (part.end - index * PAGE_BYTES) as usize;
                Arc::make_mut(page)[start..end].fill(0);
            }
        }
    }

    /// Returns the number of pages that reserving the range would add.
    pub(crate) fn pages_to_reserve(&self, offset: u64, len: u64) -> u64 {
        let pages = touched_pages(&(offset..offset + len));
        let present = self.pages.range(pages.clone()).count() as u64;
        (pages.end - pages.start) - present - self.reserved.overlap(&pages)
    }

    /// Reserves the range and grows the file to cover it.
    pub(crate) fn reserve(&mut self, offset: u64, len: u64) {
        let pages = touched_pages(&(offset..offset + len));
        self.reserved.insert(pages.clone());
        for index in self.pages.range(pages).map(|(index, _)| *index) {
            self.reserved.remove(index..index + 1);
        }
        self.size = self.size.max(offset + len);
    }

    /// Finds data or a hole; a reservation is a hole, as on Linux.
    pub(crate) fn seek(&self, offset: u64, what: SeekWhat) -> StoreResult<u64> {
        if offset >= self.size {
            return Err(StoreError::BeyondEnd);
        }
        let first = offset / PAGE_BYTES;
        let found = match what {
            SeekWhat::Data => {
                let (index, _) = self.pages.range(first..).next().ok_or(StoreError::BeyondEnd)?;
                (index * PAGE_BYTES).max(offset)
            }
            SeekWhat::Hole => {
                let run = self.pages.range(first..).zip(first..);
                let hole =
                    first + run.take_while(|((index, _), next)| *index == next).count() as u64;
                (hole * PAGE_BYTES).max(offset).min(self.size)
            }
        };
        if found >= self.size && what == SeekWhat::Data {
            return Err(StoreError::BeyondEnd);
        }
        Ok(found)
    }

    /// Returns the data of the range as pieces between holes.
    pub(crate) fn pieces(&self, range: &Range<u64>) -> Vec<(u64, Vec<u8>)> {
        let range = range.start..range.end.min(self.size);
        self.pages
            .range(touched_pages(&range))
            .map(|(index, page)| {
                let part = overlap(*index, &range);
                let start = (part.start - index * PAGE_BYTES) as usize;
                let end = (part.end - index * PAGE_BYTES) as usize;
                (part.start, page[start..end].to_vec())
            })
            .collect()
    }

    /// Copies a range of `from` to `offset`: holes stay holes where whole pages
    /// allow it.
    pub(crate) fn copy_from(&mut self, from: &Self, range: &Range<u64>, offset: u64) {
        let len = range.end - range.start;
        let pieces = from.pieces(range);
        let target = offset..offset + len;
        self.zero(target.clone());
        self.size = self.size.max(target.end);
        for (start, data) in pieces {
            self.write(offset + (start - range.start), &data);
        }
    }
}

/// Returns the pages that a range of bytes touches.
fn touched_pages(range: &Range<u64>) -> Range<u64> {
    if range.is_empty() {
        return 0..0;
    }
    range.start / PAGE_BYTES..range.end.div_ceil(PAGE_BYTES)
}

/// Returns the bytes of a page that lie in the range.
fn overlap(index: u64, range: &Range<u64>) -> Range<u64> {
    let start = index * PAGE_BYTES;
    start.max(range.start)..(start + PAGE_BYTES).min(range.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_across_pages_come_back() {
        let mut content = Content::default();
        let data: Vec<u8> = (0..10_000u32).map(|n| n as u8).collect();
        content.write(5_000, &data);
        assert_eq!(content.size(), 15_000);
        assert_eq!(content.allocated_pages(), 3);
        assert_eq!(content.read(5_000, 20_000), data);
        assert_eq!(content.read(0, 5_000), vec![0; 5_000]);
        assert!(content.read(15_000, 1).is_empty());
    }

    #[test]
    fn what_was_cut_off_does_not_come_back() {
        let mut content = Content::default();
        content.write(0, &[7; 10_000]);
        content.set_size(5_000);
        assert_eq!(content.allocated_pages(), 2);
        content.set_size(10_000);
        assert_eq!(content.read(4_999, 3), [7, 0, 0]);
        assert_eq!(content.seek(8_192, SeekWhat::Hole), Ok(8_192));
    }

    #[test]
    fn holes_are_found() {
        let mut content = Content::default();
        content.write(0, &[1; 4 * PAGE]);
        content.punch(PAGE_BYTES - 1, PAGE_BYTES + 2);
        assert_eq!(content.read(PAGE_BYTES - 2, 2), [1, 0]);
        assert_eq!(content.read(2 * PAGE_BYTES, 2), [0, 1]);
        assert_eq!(content.seek(0, SeekWhat::Hole), Ok(PAGE_BYTES));
        assert_eq!(content.seek(PAGE_BYTES, SeekWhat::Data), Ok(2 * PAGE_BYTES));
        assert_eq!(content.seek(2 * PAGE_BYTES + 9, SeekWhat::Hole), Ok(4 * PAGE_BYTES));
        content.set_size(1 << 40);
        assert_eq!(content.seek(4 * PAGE_BYTES, SeekWhat::Data), Err(StoreError::BeyondEnd));
        assert_eq!(content.seek(1 << 40, SeekWhat::Hole), Err(StoreError::BeyondEnd));
    }

    #[test]
    fn reservations_cost_space_but_are_no_data() {
        let mut content = Content::default();
        content.write(PAGE_BYTES, &[1; PAGE]);
        assert_eq!(content.pages_to_reserve(0, 4 * PAGE_BYTES), 3);
        content.reserve(0, 4 * PAGE_BYTES);
        assert_eq!((content.size(), content.allocated_pages()), (4 * PAGE_BYTES, 4));
        assert_eq!(content.pages_to_reserve(0, 4 * PAGE_BYTES), 0);
        assert_eq!(content.writable(0, 4 * PAGE_BYTES, 0), 4 * PAGE_BYTES);
        content.write(3 * PAGE_BYTES, b"x");
        assert_eq!(content.allocated_pages(), 4);
        assert_eq!(content.seek(0, SeekWhat::Data), Ok(PAGE_BYTES));
        content.punch(0, PAGE_BYTES);
        assert_eq!(content.allocated_pages(), 3);
        content.reserve(0, 1 << 60);
        assert_eq!(content.allocated_pages(), (1 << 60) / PAGE_BYTES);
    }

    #[test]
    fn space_limits_the_prefix_that_can_be_written() {
        let mut content = Content::default();
        content.write(0, b"x");
        assert_eq!(content.writable(100, 10_000, 1), 2 * PAGE_BYTES - 100);
        assert_eq!(content.writable(PAGE_BYTES, 10, 0), 0);
        assert_eq!(content.writable(100, 50, 0), 50);
    }

    #[test]
    fn copies_keep_holes_and_share_nothing_visible() {
        let (mut from, mut to) = (Content::default(), Content::default());
        from.write(PAGE_BYTES, &[3; PAGE]);
        from.set_size(1 << 50);
        to.write(0, &[9; 3 * PAGE]);
        to.copy_from(&from, &(0..1 << 50), 0);
        assert_eq!((to.size(), to.allocated_pages()), (1 << 50, 1));
        from.write(PAGE_BYTES, b"changed");
        assert_eq!(to.read(PAGE_BYTES, 3), [3, 3, 3]);
    }
}
