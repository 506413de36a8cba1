//! Allocated extents of a file: SEEK_DATA and SEEK_HOLE (lseek(2)).
//!
//! The calls move the descriptor's own position, which nothing else uses.
//! Reserved space that was never written counts as a hole: it reads as zeros.

use crate::errno::uninterrupted;
use crate::span::Span;
use rustix::fs::{SeekFrom, seek};
use rustix::io::{self, Errno};
use std::os::fd::OwnedFd;
use zgate_store::block_store::{Extent, ExtentKind};

/// Lists at most `max` extents that cover a prefix of `span`, without gaps.
pub(crate) fn of_file(fd: &OwnedFd, span: Span, max: usize) -> io::Result<Vec<Extent>> {
    let mut found = Vec::new();
    let mut at = span.offset;
    while at < span.end() && found.len() < max {
        let (kind, end) = match next_change(fd, at, span.end()) {
            // The file system does not report holes: everything may be data.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => (ExtentKind::Mapped, span.end()),
            answer => answer?,
        };
        found.push(Extent { offset: at, len: end - at, kind });
        at = end;
    }
    Ok(found)
}

/// Returns how the byte at `at` is stored, and where that extent ends, at most
/// `limit`.
fn next_change(fd: &OwnedFd, at: u64, limit: u64) -> io::Result<(ExtentKind, u64)> {
    let data = match uninterrupted(|| seek(fd, SeekFrom::Data(at))) {
        // No data from here on.
        Err(Errno::NXIO) => return Ok((ExtentKind::Deallocated, limit)),
        answer => answer?,
    };
    if data > at {
        return Ok((ExtentKind::Deallocated, data.min(limit)));
    }
    let hole = match uninterrupted(|| seek(fd, SeekFrom::Hole(at))) {
        // The file was truncated between the two calls.
        Err(Errno::NXIO) => limit,
        answer => answer?,
    };
    // A hole punched here between the two calls must not stop the walk.
    if hole <= at {
        Ok((ExtentKind::Mapped, limit))
    } else {
        Ok((ExtentKind::Mapped, hole.min(limit)))
    }
}

/// Returns whether a range of a file holds no data; `false` if that is unknown.
pub(crate) fn is_hole(fd: &OwnedFd, span: Span) -> bool {
    span.is_empty()
        || of_file(fd, span, 1).is_ok_and(|found| {
            found.first().is_some_and(|extent| {
                extent.kind == ExtentKind::Deallocated && extent.len == span.len
            })
        })
}
