//! Where a file's writes go.

use crate::cached::lies_in_memory;
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
