//! Choice of the reads that bypass the file system's cache (O_DIRECT).
//!
//! The choice has two parts, both without I/O: whether a read *can* bypass the
//! cache (its bounds are aligned), and whether it *should*. `always` and
//! `never` decide that themselves. `auto` bypasses the cache for data that is
//! read once: long sequential reads of a large file, or of any file that a
//! client said it reads once. Data that is read a second time belongs in the
//! cache and goes there from then on.

use zgate_store::buffer::BUFFER_ALIGNMENT_BYTES;
use zgate_store::file_store::Advice;

/// Policy of an export for reads that bypass the file system's cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DirectIo {
    /// Bypass for aligned reads of large files, in order and for the first
    /// time.
    Auto,
    /// Bypass for all aligned reads.
    Always,
    /// No bypass.
    #[default]
    Never,
}

/// Alignment of offsets and lengths in bytes: the page size, which OpenZFS
/// requires and which is a multiple of the logical blocks of disks.
const ALIGNMENT_BYTES: u64 = BUFFER_ALIGNMENT_BYTES as u64;
/// Shortest read that bypasses the cache under `auto`, in bytes: shorter ones
/// do not amount to much.
const MIN_AUTO_READ_BYTES: u64 = 128 << 10;
/// Smallest large file in bytes: smaller ones fit the cache.
const LARGE_FILE_BYTES: u64 = 64 << 20;
/// Length of sequential reading after which it is expected to continue, in
/// bytes.
const SEQUENTIAL_AFTER_BYTES: u64 = 8 << 20;
/// Distance by which requests of one reader may overtake each other, in bytes:
/// its readahead.
const OVERTAKING_BYTES: u64 = 16 << 20;
/// Bytes a reader may request again (a retransmission) and still count as
/// reading once.
const AGAIN_BYTES: u64 = 4 << 20;
/// Number of readers tracked per file.
const STREAMS: usize = 8;

const _: () = assert!(ALIGNMENT_BYTES.is_power_of_two());
const _: () = assert!(SEQUENTIAL_AFTER_BYTES < LARGE_FILE_BYTES);

/// A read, limited to the file's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Read {
    /// First byte.
    pub(crate) offset: u64,
    /// Number of bytes, at least 1; the range does not exceed the file.
    pub(crate) len: u64,
    /// Size of the file in bytes.
    pub(crate) size: u64,
}

impl Read {
    fn end(self) -> u64 {
        self.offset.saturating_add(self.len)
    }

    /// Returns whether O_DIRECT can serve the read: it begins at a page, and
    /// ends at one or with the file.
    fn is_aligned(self) -> bool {
        self.offset.is_multiple_of(ALIGNMENT_BYTES)
            && (self.end().is_multiple_of(ALIGNMENT_BYTES) || self.end() >= self.size)
    }

    /// Returns the length to request: whole pages.
    pub(crate) fn direct_len(self) -> usize {
        usize::try_from(self.len.next_multiple_of(ALIGNMENT_BYTES)).unwrap_or(usize::MAX)
    }
}

/// Returns whether the policy may want the read to bypass the cache; cheap, and
/// called for every read. The reader's habit decides the rest.
pub(crate) fn is_candidate(policy: DirectIo, read: Read) -> bool {
    match policy {
        DirectIo::Never => false,
        DirectIo::Always => read.is_aligned(),
        DirectIo::Auto => read.len >= MIN_AUTO_READ_BYTES && read.is_aligned(),
    }
}

/// Pattern in which a file has been read so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Habit {
    /// Too early to tell, or random.
    Unknown,
    /// Sequential, for the first time.
    Once,
    /// Some of it repeatedly.
    Again,
}

/// One reader of a file.
#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    from: u64,
    to: u64,
    /// Bytes requested; more than the distance between `from` and `to` if some
    /// were requested twice.
    bytes: u64,
    /// Number of its last read, counted in reads of the file; 0: unused.
    last: u64,
}

impl Stream {
    fn takes(&self, offset: u64) -> bool {
        self.last > 0 && self.to.abs_diff(offset) <= OVERTAKING_BYTES
    }

    fn habit(&self) -> Habit {
        let span = self.to - self.from;
        if self.bytes > span.saturating_add(AGAIN_BYTES) {
            Habit::Again
        } else if span >= SEQUENTIAL_AFTER_BYTES && self.bytes >= span / 2 {
            Habit::Once
        } else {
            Habit::Unknown
        }
    }
}

/// Record of the reads of one file.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    streams: [Stream; STREAMS],
    /// Number of reads so far.
    count: u64,
    /// Bytes read so far.
    bytes: u64,
    /// Set if a part was read again.
    again: bool,
    /// Set if a client said that it reads once (IO_ADVISE4_NOREUSE).
    said_once: bool,
}

impl Reads {
    /// Records a read and decides about it. Files that are not large use the
    /// cache unless a client said that it reads them once.
    pub(crate) fn goes_direct(&mut self, read: Read) -> bool {
        let habit = self.observe(read);
        match (self.said_once, habit) {
            (true, _) => true,
            (false, Habit::Once) => read.size >= LARGE_FILE_BYTES,
            (false, Habit::Unknown | Habit::Again) => false,
        }
    }

    fn observe(&mut self, read: Read) -> Habit {
        self.count += 1;
        self.bytes = self.bytes.saturating_add(read.len);
        let count = self.count;
        let found = self.streams.iter().position(|stream| stream.takes(read.offset));
        // Otherwise a new reader replaces the one that has been idle longest.
        let place = found.unwrap_or_else(|| {
            let oldest = self.streams.iter().enumerate().min_by_key(|(_, stream)| stream.last);
            oldest.map_or(0, |(place, _)| place)
        });
        let Some(stream) = self.streams.get_mut(place) else { return Habit::Unknown };
        if found.is_none() {
            *stream = Stream { from: read.offset, to: read.offset, bytes: 0, last: 0 };
        }
        stream.from = stream.from.min(read.offset);
        stream.to = stream.to.max(read.end());
        stream.bytes = stream.bytes.saturating_add(read.len);
        stream.last = count;
        let habit = stream.habit();
        // More bytes than the file has: some reader reads it a second time.
        let all_again = self.bytes > read.size.saturating_add(AGAIN_BYTES);
        self.again |= habit == Habit::Again || all_again;
        if self.again { Habit::Again } else { habit }
    }

    /// Records a hint.
    pub(crate) fn advise(&mut self, advice: Advice) {
        match advice {
            Advice::NoReuse => self.said_once = true,
            Advice::Normal | Advice::WillNeed => self.said_once = false,
            Advice::Sequential | Advice::Random | Advice::DontNeed => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const SIZE: u64 = 1 << 30;

    fn read(offset: u64, len: u64) -> Read {
        Read { offset, len, size: SIZE }
    }

    #[test]
    fn bounds_and_policy_are_a_table() {
        use DirectIo::{Always, Auto, Never};
        let end = Read { offset: 8192, len: 200_001, size: 208_193 };
        let table = [
            (Never, read(0, MIB), false),
            (Always, read(0, MIB), true),
            (Always, read(4096, 4096), true),
            (Always, read(512, 4096), false),
            (Always, read(4096, 1000), false),
            (Always, end, true),
            (Auto, read(0, MIB), true),
            (Auto, read(4096, 4096), false),
            (Auto, read(MIB + 1, MIB), false),
            (Auto, end, true),
        ];
        for (policy, read, expected) in table {
            assert_eq!(is_candidate(policy, read), expected, "{policy:?} {read:?}");
        }
        assert_eq!(end.direct_len(), 200_704);
        assert_eq!(read(0, MIB).direct_len(), 1 << 20);
    }

    #[test]
    fn what_is_read_in_order_goes_direct_after_a_while_and_not_again() {
        let mut reads = Reads::default();
        let mut direct = 0;
        for at in 0..SIZE / MIB {
            direct += u64::from(reads.goes_direct(read(at * MIB, MIB)));
        }
        assert_eq!(direct, SIZE / MIB - (SEQUENTIAL_AFTER_BYTES / MIB - 1));
        let second: Vec<_> = (0..64).map(|at| reads.goes_direct(read(at * MIB, MIB))).collect();
        assert!(second[..4].iter().all(|direct| !direct), "a new reader");
        assert!(second[4..].iter().all(|direct| !direct), "read again");
    }

    #[test]
    fn readahead_may_overtake() {
        let mut reads = Reads::default();
        let order = |at: u64| at ^ 3;
        let direct = (0..256).filter(|&at| reads.goes_direct(read(order(at) * MIB, MIB))).count();
        assert!(direct >= 240, "{direct}");
    }

    #[test]
    fn several_readers_of_one_file_are_told_apart() {
        let mut reads = Reads::default();
        let mut direct = 0;
        for at in 0..100 {
            for reader in 0..8 {
                direct += u64::from(reads.goes_direct(read((reader * 120 + at) * MIB, MIB)));
            }
        }
        assert!(direct >= 8 * 92, "{direct}");
    }

    #[test]
    fn here_and_there_is_not_in_order() {
        let mut reads = Reads::default();
        let places = (0..2000u64).map(|n| (n * 7919 % 1000) * MIB);
        assert_eq!(places.filter(|&at| reads.goes_direct(read(at, 128 << 10))).count(), 0);
    }

    #[test]
    fn a_part_read_over_and_over_is_cached() {
        let mut reads = Reads::default();
        let direct = (0..400).filter(|n| reads.goes_direct(read(n % 12 * MIB, MIB))).count();
        assert!(direct < 12, "{direct}");
    }

    #[test]
    fn small_files_go_direct_only_when_a_client_says_once() {
        let mut reads = Reads::default();
        let small = |at: u64| Read { offset: at * MIB, len: MIB, size: 32 * MIB };
        assert!((0..32).all(|at| !reads.goes_direct(small(at))));
        let mut reads = Reads::default();
        reads.advise(Advice::NoReuse);
        assert!((0..32).all(|at| reads.goes_direct(small(at))));
        reads.advise(Advice::WillNeed);
        assert!(!reads.goes_direct(small(0)));
    }

    #[test]
    fn offsets_at_the_end_of_all_numbers_do_no_harm() {
        let mut reads = Reads::default();
        let far = Read { offset: u64::MAX - 4095, len: 4096, size: u64::MAX };
        for policy in [DirectIo::Auto, DirectIo::Always] {
            is_candidate(policy, far);
        }
        for _ in 0..10 {
            reads.goes_direct(far);
            reads.goes_direct(read(0, 1));
        }
    }
}
