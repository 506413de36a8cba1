//! Method of writing to a file: memory, page cache, or O_DIRECT; and the sync of a write.

use crate::cached::lies_in_memory;
use crate::set_id::SetIdBits;
use rustix::fs::OFlags;
use rustix::io::ReadWriteFlags;
use std::os::fd::OwnedFd;

/// Method of writing to a file, determined once when the file is opened for
/// writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteMethod {
    /// To memory, which is the only storage: nothing to wait for.
    Memory,
    /// Through the page cache.
    Cached,
    /// Bypassing the page cache (O_DIRECT).
    Direct,
}

/// Mode of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteMode {
    /// Method of writing.
    pub method: WriteMethod,
    /// Effect on the file's set-id bits.
    pub set_id: SetIdBits,
}

impl From<WriteMethod> for WriteMode {
    /// Mode for a write by the gateway itself, to a disk for example: the bits
    /// stay.
    fn from(method: WriteMethod) -> Self {
        Self { method, set_id: SetIdBits::Kept }
    }
}

impl WriteMethod {
    /// Determines the method from the descriptor. May wait for a file system.
    #[must_use]
    pub fn of(fd: &OwnedFd) -> Self {
        if rustix::fs::fcntl_getfl(fd).is_ok_and(|flags| flags.contains(OFlags::DIRECT)) {
            Self::Direct
        } else if lies_in_memory(fd) {
            Self::Memory
        } else {
            Self::Cached
        }
    }
}

/// Required stability of a write before it is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteSync {
    /// In the kernel's cache.
    None,
    /// Data, and the metadata needed to find it (RWF_DSYNC).
    Data,
    /// Data and all metadata (RWF_SYNC).
    Full,
}

impl WriteSync {
    /// Returns the flags of pwritev2(2).
    pub(crate) fn flags(self) -> ReadWriteFlags {
        match self {
            Self::None => ReadWriteFlags::empty(),
            Self::Data => ReadWriteFlags::DSYNC,
            Self::Full => ReadWriteFlags::SYNC,
        }
    }
}

/// Returns whether a write is one for the ring. A plain write to the page cache
/// is not: on file systems without NOWAIT writes, io_uring passes it to a kernel
/// worker, which takes three times as long as our own (77 against 26 µs for 4
/// KiB on ext4).
pub(crate) fn writes_by_ring(method: WriteMethod, sync: WriteSync) -> bool {
    sync != WriteSync::None || method == WriteMethod::Direct
}
