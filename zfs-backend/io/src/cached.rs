//! Reads and queries answered from memory at once, on the calling thread.

use rustix::fs::{Advice, FileType, Stat, fadvise, fstat, fstatfs};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use std::io::{self, IoSliceMut};
use std::num::NonZeroU64;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// A file system's answer to reads that must not wait, learned from its first one. 0:
/// nothing is known.
#[derive(Debug, Default)]
pub(crate) struct CachedReads(AtomicU8);

/// There is no RWF_NOWAIT and no disk to wait for (tmpfs).
const IN_MEMORY: u8 = 1;
/// There is no RWF_NOWAIT, and data may be on a disk (ZFS, which has its own cache).
const MAY_WAIT: u8 = 2;

/// RWF_NOWAIT is assumed to work, until the file system refuses it.
const ASSUMED: u8 = 3;

/// Type of a ZFS file system in statfs(2).
const ZFS_MAGIC: u64 = 0x2fc1_2fc1;

impl CachedReads {
    /// Stands for a file system without NOWAIT whose data may be on a disk.
    #[cfg(test)]
    pub(crate) fn without_nowait() -> Self {
        Self(AtomicU8::new(MAY_WAIT))
    }

    /// Returns whether every access to the file system of this file may wait for a
    /// disk; asks the kernel once.
    pub(crate) fn may_wait_at(&self, fd: &OwnedFd) -> bool {
        if self.0.load(Ordering::Relaxed) == 0 {
            let is_zfs = fstatfs(fd).is_ok_and(|found| found.f_type.cast_unsigned() == ZFS_MAGIC);
            self.0.store(if is_zfs { MAY_WAIT } else { ASSUMED }, Ordering::Relaxed);
        }
        self.may_wait()
    }

    /// Returns whether every read may wait for a disk.
    pub(crate) fn may_wait(&self) -> bool {
        self.0.load(Ordering::Relaxed) == MAY_WAIT
    }

    /// Reads data from the page cache, without waiting for a disk
    /// (`preadv2(RWF_NOWAIT)`). `Some(Ok(n))` may be short: 0 means end of file,
    /// anything else that the rest is not in memory or the file ends. `None`: not
    /// in memory, perhaps the end of the file, or the file system cannot tell; read
    /// through the engine.
    pub(crate) fn try_read(
        &self,
        fd: &OwnedFd,
        offset: u64,
        buf: &mut [u8],
    ) -> Option<io::Result<usize>> {
        match self.0.load(Ordering::Relaxed) {
            MAY_WAIT => return None,
            IN_MEMORY => return read_in_memory(fd, offset, buf),
            _ => {}
        }
        loop {
            match preadv2(fd, &mut [IoSliceMut::new(buf)], offset, ReadWriteFlags::NOWAIT) {
                // Linux 5.9 and 5.10 return 0 also where data is not in memory
                // (preadv2(2), BUGS): a read that may wait tells the end.
                Ok(0) => return None,
                Ok(count) => return Some(Ok(count)),
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP) if lies_in_memory(fd) => {
                    self.0.store(IN_MEMORY, Ordering::Relaxed);
                    return read_in_memory(fd, offset, buf);
                }
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                    self.0.store(MAY_WAIT, Ordering::Relaxed);
                    return None;
                }
                Err(Errno::AGAIN) => return None,
                Err(errno) => return Some(Err(errno.into())),
            }
        }
    }
}

/// Returns whether the only storage of a file is memory (tmpfs). Such files do
/// not support RWF_NOWAIT and do not need it: there is no disk to wait for. The
/// node of a device lies in memory as well (devtmpfs), but not its data.
#[must_use]
pub fn lies_in_memory(fd: &OwnedFd) -> bool {
    const TMPFS_MAGIC: u64 = 0x0102_1994;
    let is_file = |stat: Stat| FileType::from_raw_mode(stat.st_mode).is_file();
    fstat(fd).is_ok_and(is_file)
        && fstatfs(fd).is_ok_and(|found| found.f_type.cast_unsigned() == TMPFS_MAGIC)
}

fn read_in_memory(fd: &OwnedFd, offset: u64, buf: &mut [u8]) -> Option<io::Result<usize>> {
    let flags = ReadWriteFlags::empty();
    loop {
        match preadv2(fd, &mut [IoSliceMut::new(buf)], offset, flags) {
            Err(Errno::INTR) => {}
            answer => return Some(answer.map_err(io::Error::from)),
        }
    }
}

/// Set if the kernel has no cachestat(2) (before 6.5).
static CACHESTAT_MISSING: AtomicBool = AtomicBool::new(false);

/// System call number of cachestat(2), the same on every architecture.
const SYS_CACHESTAT: libc::c_long = 451;

#[repr(C)]
struct CachestatRange {
    offset: u64,
    len: u64,
}

#[repr(C)]
#[derive(Default)]
struct Cachestat {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// Returns whether every page of the range is in the page cache now, also one that the
/// disk could not fill (see [`forget_pages`]). For a file
/// system with its own cache (ZFS) this is false.
#[must_use]
#[allow(unsafe_code)]
pub fn is_resident(fd: &OwnedFd, offset: u64, len: u64) -> bool {
    if len == 0 || CACHESTAT_MISSING.load(Ordering::Relaxed) {
        return false;
    }
    let Some(end) = offset.checked_add(len) else {
        return false;
    };
    let page_bytes = rustix::param::page_size() as u64;
    let pages = (end - 1) / page_bytes - offset / page_bytes + 1;
    let range = CachestatRange { offset, len };
    let mut found = Cachestat::default();
    // SAFETY: the call reads `range` and writes `found`, both live and laid
    // out as the kernel's struct cachestat_range and struct cachestat.
    let status = unsafe {
        libc::syscall(SYS_CACHESTAT, fd.as_raw_fd(), &raw const range, &raw mut found, 0)
    };
    if status != 0 {
        if io::Error::last_os_error().raw_os_error() == Some(libc::ENOSYS) {
            CACHESTAT_MISSING.store(true, Ordering::Relaxed);
        }
        return false;
    }
    found.cached >= pages
}

/// Alignment of the pieces that the kernel keeps or drops as a whole (folios).
const LARGEST_PIECE_BYTES: u64 = 2 << 20;

/// Drops the pages of a range, and of the pieces that it is a part of, from the page
/// cache; what is not written yet stays. For a range that the disk cannot read: its empty
/// pages stay, and [`is_resident`] counts them. May wait for a disk.
pub fn forget_pages(fd: &OwnedFd, offset: u64, len: u64) {
    let start = offset - offset % LARGEST_PIECE_BYTES;
    let end = offset.saturating_add(len).checked_next_multiple_of(LARGEST_PIECE_BYTES);
    // Without a length it goes to the end of the file.
    let len = end.and_then(|end| NonZeroU64::new(end - start));
    // A hint that fails is not an error.
    let _ = fadvise(fd, start, len, Advice::DontNeed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// The node of a device is in devtmpfs, but writes to a zvol do not end in
    /// memory.
    #[test]
    fn a_device_does_not_lie_in_memory() {
        let node = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        assert!(!lies_in_memory(&node));
    }

    /// A device without a page cache stands for ZFS: one read tells, none asks again.
    #[test]
    fn a_file_system_without_nowait_is_asked_once() {
        let full = OwnedFd::from(std::fs::File::open("/proc/self/stat").unwrap());
        let (reads, mut buf) = (CachedReads::default(), [0; 16]);
        if reads.try_read(&full, 0, &mut buf).is_none() {
            assert!(reads.may_wait());
            assert!(reads.try_read(&full, 0, &mut buf).is_none());
        }
    }

    #[test]
    fn pages_that_are_forgotten_are_no_longer_in_memory() {
        let place = std::env::current_exe().unwrap();
        let mut file = tempfile::NamedTempFile::new_in(place.parent().unwrap()).unwrap();
        file.write_all(&vec![7; 5 << 20]).unwrap();
        file.as_file().sync_all().unwrap();
        let fd = OwnedFd::from(file.reopen().unwrap());
        let in_memory = |at: u64| is_resident(&fd, at << 20, 1 << 20);
        if lies_in_memory(&fd) || !(in_memory(0) && in_memory(2) && in_memory(4)) {
            return;
        }
        // Its first and last page are dropped as well.
        forget_pages(&fd, (2 << 20) + 1, (1 << 20) - 2);
        assert!(!is_resident(&fd, 2 << 20, 1) && !is_resident(&fd, (3 << 20) - 1, 1));
        assert!(in_memory(0) && in_memory(4), "others stay");
        forget_pages(&fd, 4 << 20, u64::MAX);
        assert!(!in_memory(4));
    }

    #[test]
    fn a_file_just_written_is_in_memory() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![7; 100_000]).unwrap();
        let fd = OwnedFd::from(file);
        let mut buf = vec![0; 4096];
        let reads = CachedReads::default();
        if let Some(read) = reads.try_read(&fd, 4096, &mut buf) {
            assert_eq!(read.unwrap(), 4096);
            assert_eq!(buf, vec![7; 4096]);
            let beyond = reads.try_read(&fd, 200_000, &mut buf).map(Result::unwrap);
            let in_memory = reads.0.load(Ordering::Relaxed) == IN_MEMORY;
            assert_eq!(beyond, in_memory.then_some(0), "a read without waiting tells no end");
            assert!(!reads.may_wait());
        }
        if !CACHESTAT_MISSING.load(Ordering::Relaxed) {
            let resident = is_resident(&fd, 1, 90_000);
            assert!(resident || CACHESTAT_MISSING.load(Ordering::Relaxed));
            assert!(!is_resident(&fd, 0, 1 << 30), "a range beyond the end has no pages");
        }
    }
}
