//! A stream of a directory's names, read in pieces.

use crate::descriptors::Claim;
use crate::errno::OrStoreError;
use crate::name::MAX_NAME_BYTES;
use rustix::fs::{RawDir, SeekFrom};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use zgate_store::StoreResult;

/// Bytes requested from the kernel at once.
const BUFFER_BYTES: usize = 32 << 10;

/// A name in a directory's listing.
#[derive(Clone, Debug)]
pub(crate) struct Listed {
    /// The name.
    pub(crate) name: Box<[u8]>,
    /// Inode number in the directory; for a mount point, the covered one.
    pub(crate) fileid: u64,
    /// Cookie that resumes after this name.
    pub(crate) cookie: u64,
}

/// Several consecutive names.
#[derive(Debug, Default)]
pub(crate) struct Piece {
    /// Names, without `.` and `..`.
    pub(crate) names: Vec<Listed>,
    /// Set if the directory ends after them.
    pub(crate) end: bool,
}

impl Piece {
    /// Leaves out names that are hidden, and those that are longer than any that this store
    /// takes. A client of NFSv3 that gets one of these lists nothing of the directory.
    pub(crate) fn leave_out(&mut self, is_hidden: impl Fn(&[u8]) -> bool) {
        let is_listed = |name: &[u8]| name.len() <= MAX_NAME_BYTES && !is_hidden(name);
        self.names.retain(|listed| is_listed(&listed.name));
    }
}

/// A directory open for reading, at a position.
#[derive(Debug)]
pub(crate) struct DirStream {
    fd: OwnedFd,
    /// Claim on its descriptor.
    _claim: Claim,
}

impl DirStream {
    /// Creates a stream at the start of the directory.
    pub(crate) fn new(fd: OwnedFd, claim: Claim) -> Self {
        Self { fd, _claim: claim }
    }

    /// Seeks to the entry after `cookie`, and discards the kernel's readahead.
    pub(crate) fn go_to(&self, cookie: u64) -> StoreResult<()> {
        rustix::fs::seek(&self.fd, SeekFrom::Start(offset_of(cookie))).or_store().map(drop)
    }

    /// Returns the next names, as many as one call returns; none only at the
    /// end.
    pub(crate) fn next_piece(&self) -> StoreResult<Piece> {
        let mut piece = Piece::default();
        let mut buffer = Vec::<u8>::with_capacity(BUFFER_BYTES);
        let spare: &mut [MaybeUninit<u8>] = buffer.spare_capacity_mut();
        let mut entries = RawDir::new(&self.fd, spare);
        while piece.names.is_empty() || !entries.is_buffer_empty() {
            let Some(entry) = entries.next() else {
                piece.end = true;
                break;
            };
            let entry = entry.or_store()?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            piece.names.push(Listed {
                name: name.into(),
                fileid: entry.ino(),
                cookie: cookie_of(entry.next_entry_cookie()),
            });
        }
        Ok(piece)
    }
}

/// Offset added to the kernel's cookies: 0, 1 and 2 have meanings in NFS.
const COOKIE_SHIFT: u64 = 3;

/// Converts an offset to a cookie. The largest offset is not changed: ext4 ends
/// a directory with it, and a larger cookie would be negative to clients.
fn cookie_of(offset: u64) -> u64 {
    if offset >= i64::MAX as u64 - COOKIE_SHIFT { offset } else { offset + COOKIE_SHIFT }
}

fn offset_of(cookie: u64) -> u64 {
    if cookie >= i64::MAX as u64 { cookie } else { cookie.saturating_sub(COOKIE_SHIFT) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No file system of the tests has longer names; ZFS does, with `longname=on`.
    #[test]
    fn names_that_nobody_could_use_are_left_out() {
        let longest = vec![b'x'; MAX_NAME_BYTES];
        let too_long = vec![b'x'; MAX_NAME_BYTES + 1];
        let names: [&[u8]; 4] = [b"a", &too_long, b".hidden", &longest];
        let listed = |(fileid, name): (u64, &&[u8])| Listed {
            name: (*name).into(),
            fileid,
            cookie: fileid + COOKIE_SHIFT,
        };
        let names = (0..).zip(&names).map(listed).collect();
        let mut piece = Piece { names, end: true };
        piece.leave_out(|name| name == b".hidden");
        let left: Vec<_> = piece.names.iter().map(|listed| listed.fileid).collect();
        assert_eq!((left, piece.end), (vec![0, 3], true));
    }

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
