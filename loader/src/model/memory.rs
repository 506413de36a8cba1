//! Memory for regions: reused memory if some is free, otherwise fresh memory
//! whose pages are allocated before it is written.

use super::page_size::{PageCosts, PageSize};
use bytes::BytesMut;
use rustix::time::{ClockId, clock_gettime};
use std::sync::{Mutex, PoisonError};
use zgate_io::huge_pages::{HUGE_PAGE_BYTES, prefer_huge_pages, prefer_small_pages};
use zgate_io::reuse::{Anchor, populate};

/// Alignment of memory in bytes.
const ALIGNMENT_BYTES: usize = 4096;
/// Least size of a region that is kept for reuse, in bytes.
const MIN_KEPT_BYTES: usize = 1 << 20;

/// Memory without allocated pages.
#[derive(Debug)]
pub(super) struct Fresh {
    memory: BytesMut,
    /// Kind of pages that the kernel was asked for, for all of it at once: that
    /// excludes all populations of the process while it lasts.
    pages: PageSize,
}

/// Memory of one load.
#[derive(Debug)]
pub(super) struct Memory {
    /// Anchors of the memory that may be reused.
    anchors: Mutex<Vec<Anchor>>,
    max_kept_bytes: usize,
    costs: PageCosts,
}

impl Memory {
    /// Keeps at most `max_kept_bytes` of unused memory.
    pub(super) fn new(max_kept_bytes: u64) -> Self {
        let max_kept_bytes = usize::try_from(max_kept_bytes).unwrap_or(usize::MAX);
        Self { anchors: Mutex::default(), max_kept_bytes, costs: PageCosts::default() }
    }

    /// Takes memory of `len` bytes with undefined content, page-aligned,
    /// aligned to a huge page if it is large.
    pub(super) fn take(&self, len: usize) -> BytesMut {
        self.again(len).unwrap_or_else(|| {
            let Fresh { mut memory, pages } = self.fresh(len);
            memory.chunks_mut(HUGE_PAGE_BYTES).for_each(|chunk| self.populate(chunk, pages));
            memory
        })
    }

    /// Returns fresh memory without allocated pages.
    pub(super) fn fresh(&self, len: usize) -> Fresh {
        // The unit lets a region of almost the same length reuse it.
        let unit = if len >= 8 * HUGE_PAGE_BYTES { HUGE_PAGE_BYTES } else { ALIGNMENT_BYTES };
        let mut memory = aligned(len.next_multiple_of(unit));
        self.keep(Anchor::new(&mut memory));
        let _rest = memory.split_off(len);
        let pages = self.costs.cheaper();
        prefer(&mut memory, pages);
        Fresh { memory, pages }
    }

    /// Cuts fresh memory into pieces of at most `most` bytes and returns each
    /// as soon as its pages are allocated, so that it can be filled while the
    /// next one is prepared; ends when the receiver is dropped.
    pub(super) fn prepare(&self, fresh: Fresh, most: usize, wanted: impl Fn(BytesMut) -> bool) {
        let Fresh { mut memory, pages } = fresh;
        let mut ready = 0;
        while !memory.is_empty() {
            let len = memory.len().min(most);
            while ready < len {
                let end = memory.len().min(ready + HUGE_PAGE_BYTES);
                self.populate(&mut memory[ready..end], pages);
                ready = end;
            }
            ready -= len;
            if !wanted(memory.split_to(len)) {
                return;
            }
        }
    }

    /// Takes memory that needs no new pages, if there is some.
    pub(super) fn again(&self, len: usize) -> Option<BytesMut> {
        if len < MIN_KEPT_BYTES {
            return Some(aligned(len));
        }
        let mut memory = self.used(len)?;
        let _rest = memory.split_off(len);
        Some(memory)
    }

    /// Takes used memory, the latest first, because it is most likely to be in
    /// a cache.
    fn used(&self, len: usize) -> Option<BytesMut> {
        let mut anchors = self.anchors.lock().unwrap_or_else(PoisonError::into_inner);
        for index in (0..anchors.len()).rev() {
            if anchors[index].len() < len || anchors[index].len() / 4 > len {
                continue;
            }
            match anchors.remove(index).take() {
                Ok(mut memory) => {
                    anchors.push(Anchor::new(&mut memory));
                    return Some(memory);
                }
                Err(anchor) => anchors.insert(index, anchor),
            }
        }
        None
    }

    /// Keeps an anchor; memory that stays in use is dropped in favour of later
    /// memory.
    fn keep(&self, anchor: Anchor) {
        let mut anchors = self.anchors.lock().unwrap_or_else(PoisonError::into_inner);
        anchors.push(anchor);
        let mut kept: usize = anchors.iter().map(Anchor::len).sum();
        while kept > self.max_kept_bytes && anchors.len() > 1 {
            kept -= anchors.remove(0).len();
        }
    }

    /// Allocates the pages of at most one huge page's worth of memory, as one
    /// huge page or as small ones; the kernel was asked for `pages`.
    fn populate(&self, memory: &mut [u8], pages: PageSize) {
        if memory.len() < HUGE_PAGE_BYTES {
            return populate(memory);
        }
        let size = self.costs.choose();
        if size != pages {
            prefer(memory, size);
        }
        let begun = thread_cpu_nanos();
        populate(memory);
        self.costs.learn(size, (thread_cpu_nanos() - begun) / memory.len() as f64);
    }
}

/// Returns whether the allocator has memory for a region of `len` bytes. If it has not
/// when the memory is taken, it ends the process.
pub(super) fn has_room(len: usize) -> bool {
    // The memory is aligned to a huge page, and a multiple of one.
    let bytes = len.saturating_add(2 * HUGE_PAGE_BYTES);
    let mut probe = Vec::<u8>::new();
    let has_room = probe.try_reserve_exact(bytes).is_ok();
    // The compiler may leave out an allocation that is not used, and take it for granted.
    std::hint::black_box(&probe);
    has_room
}

fn prefer(memory: &mut [u8], pages: PageSize) {
    match pages {
        PageSize::Huge => prefer_huge_pages(memory),
        PageSize::Small => prefer_small_pages(memory),
    }
}

fn thread_cpu_nanos() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

fn aligned(len: usize) -> BytesMut {
    let alignment = if len >= HUGE_PAGE_BYTES { HUGE_PAGE_BYTES } else { ALIGNMENT_BYTES };
    let mut memory = BytesMut::zeroed(len + alignment);
    let skip = memory.as_ptr().align_offset(alignment).min(alignment);
    let mut memory = memory.split_off(skip);
    memory.truncate(len);
    memory
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again_and_tensors_keep_theirs() {
        let memory = Memory::new(64 << 20);
        let mut first = memory.take(5 << 20);
        first.fill(1);
        let address = first.as_ptr();
        let tensor = first.split_to(100);
        drop(first);
        // A part is still in use.
        let other = memory.take(5 << 20);
        assert_ne!(other.as_ptr(), address);
        assert!(tensor.iter().all(|byte| *byte == 1));
        drop((tensor, other));
        let (third, fourth) = (memory.take(4 << 20), memory.take(5 << 20));
        let same = [third.as_ptr(), fourth.as_ptr()];
        assert!(same.contains(&address));
        assert_eq!((third.len(), fourth.len()), (4 << 20, 5 << 20));
        assert_eq!(address.align_offset(HUGE_PAGE_BYTES), 0);
        assert_eq!(memory.take(10).len(), 10);
    }

    #[test]
    fn room_is_asked_for_before_it_is_taken() {
        assert!(has_room(1 << 20));
        assert!(!has_room(1 << 60));
        assert!(!has_room(usize::MAX));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let memory = Memory::new(8 << 20);
        let taken: Vec<_> = (0..10).map(|_| memory.take(4 << 20)).collect();
        drop(taken);
        let kept: usize = memory.anchors.lock().unwrap().iter().map(Anchor::len).sum();
        assert_eq!(kept, 8 << 20);
    }
}
