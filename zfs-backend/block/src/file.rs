//! Geometry of a regular file as a disk.

use crate::aligned::Alignment;
use crate::backing::{BackingKind, Shape};
use crate::device::{direct_demands, plausible_block, plausible_optimal, stat};
use crate::errno::uninterrupted;
use rustix::fs::FallocateFlags;
use rustix::io;
use std::os::fd::OwnedFd;

/// Block size in bytes of a file system that reports none.
const DEFAULT_BLOCK_BYTES: u32 = 4096;
/// Reason for which a file cannot be used with O_DIRECT.
pub(crate) const NO_DIRECT: &str =
    "its file system does not support it, or its alignment cannot be satisfied";
/// Flags that punch a hole and keep the size.
pub(crate) const PUNCH: FallocateFlags =
    FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);

/// Reads the geometry of an open file of `size_bytes`.
pub(crate) fn shape(fd: &OwnedFd, size_bytes: u64, read_only: bool) -> io::Result<Shape> {
    let block = plausible_block(stat(fd)?.stx_blksize, DEFAULT_BLOCK_BYTES);
    // Punching cannot be tried on a read-only file; its holes are reported all
    // the same, and every discard is refused.
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

/// Tries to punch a hole beyond the end, where there is no data.
fn can_punch(fd: &OwnedFd, size_bytes: u64, block: u32) -> bool {
    let Some(beyond) = size_bytes.checked_next_multiple_of(u64::from(block)) else {
        return false;
    };
    uninterrupted(|| rustix::fs::fallocate(fd, PUNCH, beyond, u64::from(block))).is_ok()
}

/// Reads the alignment that the file requires for O_DIRECT.
pub(crate) fn alignment(fd: &OwnedFd) -> io::Result<Option<Alignment>> {
    Ok(direct_demands(&stat(fd)?).unwrap_or_else(usual_alignment))
}

/// Returns the alignment that is kept for O_DIRECT where the kernel names none.
pub(crate) fn usual_alignment() -> Option<Alignment> {
    Alignment::new(DEFAULT_BLOCK_BYTES, DEFAULT_BLOCK_BYTES)
}
