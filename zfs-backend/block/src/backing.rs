//! What lies below a volume, found out once when it is opened.

use crate::aligned::{Alignment, EdgeLocks};
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use zgate_io::{StoreName, WriteWay};
use zgate_store::BufferPool;

/// What a volume lies on.
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
    /// Whether discarded ranges surely read as zeros. A zvol frees whole
    /// volblocks and a loop device punches its file; of other devices Linux
    /// makes no promise.
    pub(crate) fn discard_zeroes(self) -> bool {
        self != Self::Device
    }
}

/// What does not change while a volume is open. Sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// What it is.
    pub(crate) kind: BackingKind,
    /// Unit of transfers; 1 for a file.
    pub(crate) logical_block_bytes: u32,
    /// What is written without read-modify-write.
    pub(crate) physical_block_bytes: u32,
    /// Preferred transfer size.
    pub(crate) optimal_io_bytes: u32,
    /// Unit in which space is freed, if that works.
    pub(crate) discard_granularity_bytes: Option<u32>,
    /// Whether a write may sit in a cache that power loss empties.
    pub(crate) write_cache: bool,
}

/// What lies below a volume.
pub(crate) struct Backing {
    /// The one descriptor everything goes through: it holds the locks.
    pub(crate) fd: Arc<OwnedFd>,
    /// Where its writes go.
    pub(crate) way: WriteWay,
    /// As configured, for messages.
    pub(crate) path: PathBuf,
    pub(crate) shape: Shape,
    /// O_DIRECT's demands; `None` when I/O goes through the page cache.
    pub(crate) direct: Option<Alignment>,
    pub(crate) read_only: bool,
    pub(crate) pool: BufferPool,
    pub(crate) edges: EdgeLocks,
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
            way: WriteWay::of(&fd),
            fd: Arc::new(fd),
            path,
            shape,
            direct,
            read_only,
            pool,
            edges: EdgeLocks::default(),
            capacity_bytes: AtomicU64::new(0),
        }
    }

    /// The storage that it stands and falls with.
    pub(crate) fn store(&self) -> StoreName {
        let of_device = || rustix::fs::fstat(&self.fd).map_or(0, |stat| stat.st_rdev);
        match self.shape.kind {
            BackingKind::File => StoreName::of_file(&self.fd).unwrap_or_else(|_| StoreName::own()),
            _ => StoreName::of_zvol_path(&self.path)
                .unwrap_or_else(|| StoreName::of_device(of_device())),
        }
    }

    /// Size of the disk in bytes.
    pub(crate) fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes.load(Ordering::Acquire)
    }

    /// Sets the size to what `size_bytes` leaves of whole transfer units.
    pub(crate) fn set_capacity(&self, size_bytes: u64) -> u64 {
        let capacity = size_bytes - size_bytes % self.unit_bytes();
        self.capacity_bytes.store(capacity, Ordering::Release);
        capacity
    }

    /// The unit in which the size is counted.
    pub(crate) fn unit_bytes(&self) -> u64 {
        let direct = self.direct.map_or(1, |alignment| alignment.offset_bytes);
        u64::from(direct.max(self.shape.logical_block_bytes))
    }

    /// Asks the system for the size in bytes.
    pub(crate) fn size_below(&self) -> io::Result<u64> {
        if self.shape.kind == BackingKind::File {
            Ok(rustix::fs::fstat(&self.fd)?.st_size.max(0) as u64)
        } else {
            Ok(zgate_io::block_ioctl::size_bytes(&self.fd)?)
        }
    }
}
