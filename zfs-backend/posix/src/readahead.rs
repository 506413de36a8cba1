//! Readahead for clients that read a file in order from a disk.
//!
//! The kernel reads ahead by the pattern of one descriptor. Requests of a client
//! overtake each other and those of several clients alternate on it, so it sees
//! no order and reads each request by itself: the client waits for the disk, and
//! the data is copied instead of sent from the page cache. Here each reader is
//! followed by itself, and asked for ahead of it.
//!
//! It begins with a read of data that is not in memory, and costs the readers of
//! cached files one look at an empty cell.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Shortest read that counts, in bytes: shorter ones are not sequential reading
/// of much.
pub(crate) const MIN_READ_BYTES: usize = 128 << 10;
/// Distance by which a reader is preceded, in bytes.
const WINDOW_BYTES: u64 = 8 << 20;
/// Rest of it at which more is requested, in bytes: a request for each half.
const LOW_BYTES: u64 = WINDOW_BYTES / 2;
/// Length of sequential reading after which it is expected to continue, in
/// bytes.
const SEQUENTIAL_AFTER_BYTES: u64 = 2 << 20;
/// Distance by which requests of one reader may overtake each other, in bytes.
const OVERTAKING_BYTES: u64 = 16 << 20;
/// Bytes that a reader may request again (a retransmission), and is still
/// followed.
const AGAIN_BYTES: u64 = 4 << 20;
/// Number of readers followed per file: at most so many windows of the page
/// cache are in use for it.
const READERS: usize = 8;

const _: () = assert!(SEQUENTIAL_AFTER_BYTES < WINDOW_BYTES);

/// One reader of a file.
#[derive(Clone, Copy, Debug, Default)]
struct Reader {
    from: u64,
    to: u64,
    /// Bytes requested by it.
    bytes: u64,
    /// End of what was read ahead.
    ahead: u64,
    /// Number of its last read, counted in reads of the file; 0: unused.
    last: u64,
}

/// Readers of one file.
#[derive(Debug, Default)]
pub(crate) struct Readers {
    state: Mutex<State>,
    /// Set while a worker asks the kernel: a disk that hangs holds one worker
    /// for each file at most.
    is_busy: Arc<AtomicBool>,
}

#[derive(Debug, Default)]
struct State {
    readers: [Reader; READERS],
    count: u64,
}

/// Result of recording a read.
#[derive(Debug, Default)]
pub(crate) struct Observed {
    /// Its reader waits for the disk: pages in the cache may still be on their
    /// way.
    pub(crate) is_followed: bool,
    /// Bytes to read ahead of it.
    pub(crate) ahead: Option<Ahead>,
}

/// Permission to read ahead; the next one is given when it is dropped.
#[derive(Debug)]
pub(crate) struct Ahead {
    pub(crate) range: Range<u64>,
    is_busy: Arc<AtomicBool>,
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.is_busy.store(false, Ordering::Release);
    }
}

impl Readers {
    /// Records a read of a file of `size` bytes, which has `missed` if its data
    /// was not in memory.
    pub(crate) fn observe(&self, read: Range<u64>, size: u64, missed: bool) -> Observed {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(reader) = state.follow(&read, missed) else { return Observed::default() };
        let free = !self.is_busy.load(Ordering::Acquire);
        let wanted = if free { reader.wants(size) } else { None };
        let ahead = wanted.map(|range| {
            reader.ahead = range.end;
            self.is_busy.store(true, Ordering::Release);
            Ahead { range, is_busy: Arc::clone(&self.is_busy) }
        });
        Observed { is_followed: true, ahead }
    }
}

impl State {
    /// Finds the reader of a request; only a miss makes a new one.
    fn follow(&mut self, read: &Range<u64>, missed: bool) -> Option<&mut Reader> {
        self.count += 1;
        let count = self.count;
        let takes = |one: &Reader| one.last > 0 && one.to.abs_diff(read.start) <= OVERTAKING_BYTES;
        let place = match self.readers.iter().position(takes) {
            Some(place) => place,
            None if missed => {
                let oldest = self.readers.iter().enumerate().min_by_key(|(_, one)| one.last);
                let (place, _) = oldest?;
                let start = read.start;
                self.readers[place] = Reader { from: start, to: start, ..Reader::default() };
                place
            }
            None => return None,
        };
        let reader = self.readers.get_mut(place)?;
        reader.from = reader.from.min(read.start);
        reader.to = reader.to.max(read.end);
        reader.bytes = reader.bytes.saturating_add(read.end - read.start);
        reader.last = count;
        if reader.reads_again() {
            *reader = Reader::default();
            return None;
        }
        Some(reader)
    }
}

impl Reader {
    /// Returns whether it reads bytes that it has read: they are in memory.
    fn reads_again(&self) -> bool {
        self.bytes > (self.to - self.from).saturating_add(AGAIN_BYTES)
    }

    /// Returns what it needs next, if it reads in order.
    fn wants(&self, size: u64) -> Option<Range<u64>> {
        let span = self.to - self.from;
        let is_in_order = span >= SEQUENTIAL_AFTER_BYTES && self.bytes >= span / 2;
        if !is_in_order || self.ahead.saturating_sub(self.to) >= LOW_BYTES {
            return None;
        }
        let range = self.to.max(self.ahead)..self.to.saturating_add(WINDOW_BYTES).min(size);
        (!range.is_empty()).then_some(range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const SIZE: u64 = 1 << 30;

    /// Reads ahead at once, as an idle worker does; returns the ranges.
    fn ahead(
        readers: &Readers,
        at: impl IntoIterator<Item = u64>,
        missed: bool,
    ) -> Vec<Range<u64>> {
        let one = |at: u64| readers.observe(at * MIB..(at + 1) * MIB, SIZE, missed).ahead;
        at.into_iter().filter_map(one).map(|ahead| ahead.range.clone()).collect()
    }

    #[test]
    fn a_reader_in_order_is_preceded_without_gaps() {
        let readers = Readers::default();
        let ranges = ahead(&readers, 0..1024, true);
        assert_eq!(ranges[0], 2 * MIB..10 * MIB);
        assert!(ranges.windows(2).all(|pair| pair[0].end == pair[1].start), "{ranges:?}");
        assert_eq!(ranges.last().unwrap().end, SIZE);
        assert!(ranges.len() < 300, "a request for each half of a window: {}", ranges.len());
    }

    #[test]
    fn requests_that_overtake_each_other_are_in_order() {
        let readers = Readers::default();
        let ranges = ahead(&readers, (0..512).map(|at| at ^ 7), true);
        let all: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        assert!(all > 480 * MIB, "{all}");
        assert!(ranges.windows(2).all(|pair| pair[0].end <= pair[1].start), "nothing twice");
    }

    #[test]
    fn readers_of_one_file_are_told_apart() {
        let readers = Readers::default();
        let alternate = (0..50).flat_map(|at| (0..8).map(move |reader| reader * 120 + at));
        assert!(ahead(&readers, alternate, true).len() >= 8 * 10);
    }

    #[test]
    fn here_and_there_and_what_is_in_memory_is_left_alone() {
        let readers = Readers::default();
        assert_eq!(ahead(&readers, (0..2000).map(|n| n * 7919 % 1000), true), []);
        let readers = Readers::default();
        assert_eq!(ahead(&readers, 0..1024, false), [], "nothing was missed");
    }

    #[test]
    fn who_reads_again_is_not_followed() {
        let readers = Readers::default();
        let read = |at: u64, missed| {
            readers.observe(at * MIB..(at + 1) * MIB, 10 * MIB, missed).is_followed
        };
        assert!((0..10).all(|at| read(at, true)), "from the disk");
        let second: Vec<_> = (0..10).map(|at| read(at, false)).collect();
        assert!(second.iter().filter(|followed| **followed).count() <= 4, "{second:?}");
        assert!((0..10).all(|at| !read(at, false)), "from memory");
        assert!(read(5, true), "from the disk again");
    }

    #[test]
    fn one_request_at_a_time_is_with_the_kernel() {
        let readers = Readers::default();
        let observe = |at: u64| readers.observe(at * MIB..(at + 1) * MIB, SIZE, true).ahead;
        let held: Vec<_> = (0..100).filter_map(observe).collect();
        assert_eq!(held.len(), 1);
        drop(held);
        assert_eq!(observe(100).unwrap().range, 101 * MIB..109 * MIB, "not what has passed");
    }

    #[test]
    fn the_end_of_all_numbers_does_no_harm() {
        let readers = Readers::default();
        let far = u64::MAX - (4 << 20)..u64::MAX;
        for _ in 0..3 {
            readers.observe(far.clone(), u64::MAX, true);
        }
    }
}
