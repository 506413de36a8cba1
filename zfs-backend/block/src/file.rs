//! The shape of a regular file as a disk.

use crate::aligned::Alignment;
use crate::backing::{BackingKind, Shape};
use crate::device::{direct_demands, plausible_block, plausible_optimal, stat};
use crate::errno::uninterrupted;
use rustix::fs::FallocateFlags;
use rustix::io;
use std::os::fd::OwnedFd;

/// Block size of a file system that names none.
const DEFAULT_BLOCK_BYTES: u32 = 4096;
/// Punching a hole that leaves the size alone.
pub(crate) const PUNCH: FallocateFlags =
    FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);

/// The shape of an open file of `size_bytes`.
pub(crate) fn shape(fd: &OwnedFd, size_bytes: u64, read_only: bool) -> io::Result<Shape> {
    let block = plausible_block(stat(fd)?.stx_blksize, DEFAULT_BLOCK_BYTES);
    // A file that is only read cannot be tried; its holes are told all the
    // same, and every discard is refused.
    let punches = read_only || can_punch(fd, size_bytes, block);
    Ok(Shape {
        kind: BackingKind::File,
        logical_block_bytes: 1,
        physical_block_bytes: block,
        optimal_io_bytes: plausible_optimal(0, block),
        discard_granularity_bytes: punches.then_some(block),
        write_cache: true,
    })
}

/// Tries to punch a hole where there is nothing: beyond the end.
fn can_punch(fd: &OwnedFd, size_bytes: u64, block: u32) -> bool {
    let Some(beyond) = size_bytes.checked_next_multiple_of(u64::from(block)) else {
        return false;
    };
    uninterrupted(|| rustix::fs::fallocate(fd, PUNCH, beyond, u64::from(block))).is_ok()
}

/// What the file demands of O_DIRECT.
pub(crate) fn alignment(fd: &OwnedFd) -> io::Result<Option<Alignment>> {
    let unknown = || Alignment::new(DEFAULT_BLOCK_BYTES, DEFAULT_BLOCK_BYTES);
    Ok(direct_demands(&stat(fd)?).unwrap_or_else(unknown))
}
