//! The device or file that backs a volume, examined once when it is opened.

use crate::aligned::Alignment;
use crate::span::Span;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use zgate_io::{StoreName, WriteMethod};
use zgate_store::BufferPool;
use zgate_store::range_lock::{RangeGuard, RangeLocks};

/// Unit of sizes: the smallest block of a disk.
pub(crate) const SECTOR_BYTES: u64 = 512;

/// Kind of device or file that backs a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackingKind {
    /// A regular file.
    File,
    /// A ZFS volume (or a partition of one).
    Zvol,
    /// A loop device.
    Loop,
    /// Any other block device.
    Device,
}

impl BackingKind {
    /// Returns whether discarded ranges are certain to read as zeros. A zvol
    /// frees whole volblocks and a loop device punches holes in its file; Linux
    /// promises nothing about other devices.
    pub(crate) fn discard_zeroes(self) -> bool {
        self != Self::Device
    }
}

/// Properties that do not change while a volume is open. Sizes are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Kind of device or file.
    pub(crate) kind: BackingKind,
    /// Unit of transfers; 1 for a file.
    pub(crate) logical_block_bytes: u32,
    /// Unit that is written without read-modify-write.
    pub(crate) physical_block_bytes: u32,
    /// Preferred transfer size.
    pub(crate) optimal_io_bytes: u32,
    /// Unit in which space is freed, if freeing works.
    pub(crate) discard_granularity_bytes: Option<u32>,
    /// Set if a write may sit in a cache that loses its content on power loss.
    pub(crate) write_cache: bool,
}

/// The device or file that backs a volume.
pub(crate) struct Backing {
    /// The one descriptor for all I/O; it holds the locks.
    pub(crate) fd: Arc<OwnedFd>,
    /// Method of writing.
    pub(crate) method: WriteMethod,
    /// Configured path, for messages.
    pub(crate) path: PathBuf,
    pub(crate) shape: Shape,
    /// Alignment that O_DIRECT requires; `None` if I/O goes through the page
    /// cache.
    pub(crate) direct: Option<Alignment>,
    pub(crate) read_only: bool,
    pub(crate) pool: BufferPool,
    /// Locks on blocks that are larger than a sector. Whoever writes a part of a block reads it,
    /// changes it and writes it back as a whole: a write that comes to the same block in between,
    /// whole or in part, would be undone.
    pub(crate) locks: Arc<RangeLocks>,
    capacity_bytes: AtomicU64,
}

impl Backing {
    pub(crate) fn new(
        fd: OwnedFd,
        path: PathBuf,
        shape: Shape,
        direct: Option<Alignment>,
        read_only: bool,
        pool: BufferPool,
    ) -> Self {
        Self {
            method: WriteMethod::of(&fd),
            fd: Arc::new(fd),
            path,
            shape,
            direct,
            read_only,
            pool,
            locks: Arc::default(),
            capacity_bytes: AtomicU64::new(0),
        }
    }

    /// Returns the name of the storage whose failure is also a failure of this
    /// volume.
    pub(crate) fn store(&self) -> StoreName {
        let of_device = || rustix::fs::fstat(&self.fd).map_or(0, |stat| stat.st_rdev);
        match self.shape.kind {
            BackingKind::File => StoreName::of_file(&self.fd).unwrap_or_else(|_| StoreName::own()),
            _ => StoreName::of_zvol_path(&self.path)
                .unwrap_or_else(|| StoreName::of_device(of_device())),
        }
    }

    /// Returns the size of the disk in bytes.
    pub(crate) fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes.load(Ordering::Acquire)
    }

    /// Sets the size to the whole transfer units in `size_bytes`.
    pub(crate) fn set_capacity(&self, size_bytes: u64) -> u64 {
        let capacity = size_bytes - size_bytes % self.unit_bytes();
        self.capacity_bytes.store(capacity, Ordering::Release);
        capacity
    }

    /// Returns the unit in which the size is counted, in bytes.
    pub(crate) fn unit_bytes(&self) -> u64 {
        let direct = self.direct.map_or(1, |alignment| alignment.offset_bytes);
        u64::from(direct.max(self.shape.logical_block_bytes))
    }

    /// Locks a span that is written or cleared in whole blocks, if a block is larger than what
    /// hosts write at least: nobody else may be about to write parts of it.
    pub(crate) async fn lock_whole(&self, span: Span) -> Option<RangeGuard<&RangeLocks>> {
        let block = u64::from(self.direct?.offset_bytes);
        if block <= SECTOR_BYTES {
            return None;
        }
        Some(self.locks.share(span).await)
    }

    /// Asks the operating system for the size in bytes.
    pub(crate) fn size_below(&self) -> io::Result<u64> {
        if self.shape.kind == BackingKind::File {
            Ok(rustix::fs::fstat(&self.fd)?.st_size.max(0) as u64)
        } else {
            Ok(zgate_io::block_ioctl::size_bytes(&self.fd)?)
        }
    }
}

#[cfg(test)]
impl Backing {
    /// An empty file of tests, with blocks of 4096 bytes.
    pub(crate) fn of_new_file(direct: Option<Alignment>) -> Self {
        let shape = Shape {
            kind: BackingKind::File,
            logical_block_bytes: 1,
            physical_block_bytes: 4096,
            optimal_io_bytes: 4096,
            discard_granularity_bytes: Some(4096),
            write_cache: true,
        };
        let fd = OwnedFd::from(tempfile::tempfile().unwrap());
        Self::new(fd, "disk".into(), shape, direct, false, BufferPool::new(1 << 20))
    }
}
