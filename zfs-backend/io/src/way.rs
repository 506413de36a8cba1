//! Where a file's writes go.

use crate::cached::lies_in_memory;
use crate::set_id::SetIdBits;
use rustix::fs::OFlags;
use std::os::fd::OwnedFd;

/// Where a file's writes go: asked once, when it is opened for writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteWay {
    /// To memory, and that is all the storage there is: nothing to wait for.
    Memory,
    /// To the page cache.
    Cached,
    /// Past the page cache (O_DIRECT).
    Direct,
}

/// How a write is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteMode {
    /// Where it goes.
    pub way: WriteWay,
    /// What it does to the file's set-id bits.
    pub set_id: SetIdBits,
}

impl From<WriteWay> for WriteMode {
    /// A write by the gateway itself, to a disk for one: the bits stay.
    fn from(way: WriteWay) -> Self {
        Self { way, set_id: SetIdBits::Kept }
    }
}

impl WriteWay {
    /// What the descriptor says. May wait for a file system.
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
