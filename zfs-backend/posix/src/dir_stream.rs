//! Reading directories in pages.

use crate::errno::OrStoreError;
use rustix::fs::{RawDir, SeekFrom};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};
use zgate_store::StoreResult;

/// Bytes asked of the kernel at once.
const BUFFER_BYTES: usize = 32 << 10;
/// How long names read ahead are believed.
const READ_AHEAD_LIFE: Duration = Duration::from_secs(1);

/// A name as the directory lists it.
#[derive(Clone, Debug)]
pub(crate) struct Listed {
    /// The name.
    pub(crate) name: Vec<u8>,
    /// Its number in the directory; for a mount point, the covered one.
    pub(crate) fileid: u64,
    /// Resumes after it.
    pub(crate) cookie: u64,
}

/// A directory open for reading, at a position.
#[derive(Debug)]
pub(crate) struct DirStream {
    fd: OwnedFd,
    /// Cookie of the last entry taken; the next page starts here.
    position: u64,
    /// Entries read and not yet taken, last first.
    ahead: Vec<Listed>,
    ended: bool,
    /// The directory's generation and the time when `ahead` was read.
    read_at: (u64, Instant),
}

impl DirStream {
    /// A stream at the start of the directory.
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Self { fd, position: 0, ahead: Vec::new(), ended: false, read_at: (0, Instant::now()) }
    }

    /// Goes to the entry after `cookie`. `generation` counts modifications of
    /// the directory: names read ahead before the last one are not believed.
    pub(crate) fn go_to(&mut self, cookie: u64, generation: u64) -> StoreResult<()> {
        let fresh = self.read_at.0 == generation && self.read_at.1.elapsed() < READ_AHEAD_LIFE;
        if cookie != 0 && cookie == self.position && fresh {
            return Ok(());
        }
        rustix::fs::seek(&self.fd, SeekFrom::Start(offset_of(cookie))).or_store()?;
        self.position = cookie;
        self.ahead.clear();
        self.ended = false;
        self.read_at = (generation, Instant::now());
        Ok(())
    }

    /// The next entry other than `.` and `..`; `None` at the end.
    pub(crate) fn next(&mut self) -> StoreResult<Option<Listed>> {
        while self.ahead.is_empty() && !self.ended {
            self.fill()?;
        }
        let next = self.ahead.pop();
        if let Some(entry) = &next {
            self.position = entry.cookie;
        }
        Ok(next)
    }

    /// Whether the directory ends here, as far as that is known without
    /// returning an entry.
    pub(crate) fn at_end(&mut self) -> StoreResult<bool> {
        while self.ahead.is_empty() && !self.ended {
            self.fill()?;
        }
        Ok(self.ahead.is_empty())
    }

    fn fill(&mut self) -> StoreResult<()> {
        let mut buffer = Vec::<u8>::with_capacity(BUFFER_BYTES);
        let spare: &mut [MaybeUninit<u8>] = buffer.spare_capacity_mut();
        let mut entries = RawDir::new(&self.fd, spare);
        let mut read_any = false;
        while !(read_any && entries.is_buffer_empty()) {
            let Some(entry) = entries.next() else {
                self.ended = true;
                break;
            };
            let entry = entry.or_store()?;
            read_any = true;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            self.ahead.push(Listed {
                name: name.to_vec(),
                fileid: entry.ino(),
                cookie: cookie_of(entry.next_entry_cookie()),
            });
        }
        self.ahead.reverse();
        Ok(())
    }
}

/// Cookies 0, 1 and 2 have meanings in NFS; the kernel's offsets begin lower.
const COOKIE_SHIFT: u64 = 3;

/// The largest offset stays as it is: ext4 ends a directory with it, and a
/// cookie above it would be negative to clients.
fn cookie_of(offset: u64) -> u64 {
    if offset >= i64::MAX as u64 - COOKIE_SHIFT { offset } else { offset + COOKIE_SHIFT }
}

fn offset_of(cookie: u64) -> u64 {
    if cookie >= i64::MAX as u64 { cookie } else { cookie.saturating_sub(COOKIE_SHIFT) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_lead_back_to_offsets() {
        for offset in [0, 1, 2, 3, 77, 1 << 40, i64::MAX as u64 - 10, i64::MAX as u64] {
            let cookie = cookie_of(offset);
            assert!(cookie > 2);
            assert_eq!(offset_of(cookie), offset);
        }
        assert_eq!(offset_of(0), 0);
    }
}
