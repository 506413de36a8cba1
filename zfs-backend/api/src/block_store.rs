//! A disk as the SCSI commands need it: a run of logical blocks.

use crate::buffer::Payload;
use crate::file_store::StoreFuture;
use bytes::Bytes;

/// Shape and abilities of a disk. All sizes are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockGeometry {
    /// Size of the disk.
    pub capacity_bytes: u64,
    /// Unit that the storage writes without read-modify-write (a zvol's
    /// volblocksize, a file system's block size).
    pub physical_block_bytes: u32,
    /// Preferred transfer size.
    pub optimal_io_bytes: u32,
    /// Unit of discard, in bytes; present if discard works and frees space.
    pub discard_granularity_bytes: Option<u32>,
    /// Set if discarded ranges read as zeros.
    pub discard_zeroes: bool,
    /// Set if the store has a volatile cache that `sync` empties.
    pub write_cache: bool,
    /// Set if writes are refused.
    pub read_only: bool,
}

/// Allocation state of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtentKind {
    /// Space is allocated.
    Mapped,
    /// No space is allocated; reads give zeros.
    Deallocated,
}

/// A run of bytes with one allocation state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
    /// Allocation state of the run.
    pub kind: ExtentKind,
}

/// A disk. Offsets and lengths are in bytes and within the capacity; the SCSI
/// layer has checked them. Writes to disjoint ranges may run concurrently; the
/// SCSI layer serializes the operations that SBC requires to be atomic. No operation
/// has a default, which a disk in front of another one could take by mistake.
pub trait BlockStore: Send + Sync {
    /// Returns the current geometry, which changes when the disk is resized.
    fn geometry(&self) -> BlockGeometry;

    /// Reads exactly `len` bytes into memory.
    fn read<'a>(&'a self, offset: u64, len: usize) -> StoreFuture<'a, Payload>;

    /// Reads exactly `len` bytes for a transport that can send a
    /// [`crate::FileSpan`]. The bytes of a span are those that the disk has when
    /// they are sent.
    fn read_to_send<'a>(&'a self, offset: u64, len: usize) -> StoreFuture<'a, Payload>;

    /// Writes all of `data`; with `fua`, the data is on stable storage on
    /// return.
    fn write<'a>(&'a self, offset: u64, data: Bytes, fua: bool) -> StoreFuture<'a, ()>;

    /// Brings all completed writes to stable storage.
    fn sync<'a>(&'a self) -> StoreFuture<'a, ()>;

    /// Waits until a command may begin to discard or to write zeros, where its rate is limited:
    /// it counts once, however many calls it makes.
    fn admit_change<'a>(&'a self) -> StoreFuture<'a, ()>;

    /// Frees the range; afterwards it reads as zeros if
    /// [`BlockGeometry::discard_zeroes`] is set.
    fn discard<'a>(&'a self, offset: u64, len: u64) -> StoreFuture<'a, ()>;

    /// Writes zeros; with `may_unmap`, the store may free the space.
    fn write_zeroes<'a>(&'a self, offset: u64, len: u64, may_unmap: bool) -> StoreFuture<'a, ()>;

    /// Lists how the range starting at `offset` is stored: at most `max`
    /// extents that cover a prefix of the range without gaps.
    fn extents<'a>(&'a self, offset: u64, len: u64, max: usize) -> StoreFuture<'a, Vec<Extent>>;

    /// Brings the range into cache; a hint.
    fn prefetch<'a>(&'a self, offset: u64, len: u64) -> StoreFuture<'a, ()>;

    /// Reads the size of the underlying device or file again (after a resize or a
    /// rollback by other means) and returns the capacity in bytes. What was discarded
    /// earlier may have content again.
    fn refresh<'a>(&'a self) -> StoreFuture<'a, u64>;
}
