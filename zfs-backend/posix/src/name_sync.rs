//! Sync of names and attributes that a file system needs.

use crate::group_sync::GroupSync;
use zgate_store::{NodeHandle, StoreResult};

/// Sync needed to bring changes of names and attributes to stable storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameSync {
    /// None: memory is the only storage.
    Nothing,
    /// A sync of each changed object. A journal includes all earlier changes, so
    /// that the first sync does the work. So does the intent log of ZFS for changes
    /// of names; but changes of attributes and sizes wait in a list of their own
    /// object until that one is synced.
    OfEach,
}

impl NameSync {
    /// Returns the sync for a type of file system (proc(5), mountinfo).
    pub(crate) fn of_kind(kind: &[u8]) -> Self {
        match kind {
            b"tmpfs" | b"ramfs" => Self::Nothing,
            _ => Self::OfEach,
        }
    }
}

/// Group sync of the names of a mount.
#[derive(Debug)]
pub(crate) struct Names {
    pub(crate) how: NameSync,
    pub(crate) group: GroupSync<NodeHandle>,
}

impl Names {
    pub(crate) fn new(kind: &[u8]) -> Self {
        Self { how: NameSync::of_kind(kind), group: GroupSync::default() }
    }

    /// Refuses a change that would wait behind a sync that hangs.
    pub(crate) fn check(&self) -> StoreResult<()> {
        self.group.check()
    }
}
