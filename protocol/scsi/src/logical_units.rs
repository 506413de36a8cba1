//! Logical units of one target, as visible to one initiator.

use crate::disk::Disk;
use crate::lun::Lun;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A map from LUNs to disks. LUN masking is a map with fewer entries.
#[derive(Clone, Debug, Default)]
pub struct LogicalUnits {
    disks: BTreeMap<Lun, Arc<Disk>>,
    /// LUNs whose storage cannot be opened now.
    becoming_ready: BTreeSet<Lun>,
    is_read_only: bool,
}

impl LogicalUnits {
    /// Creates a map of these logical units.
    #[must_use]
    pub fn new(disks: impl IntoIterator<Item = (Lun, Arc<Disk>)>) -> Self {
        Self { disks: disks.into_iter().collect(), ..Self::default() }
    }

    /// Adds LUNs whose storage cannot be opened now. They are not listed; commands
    /// to them are answered NOT READY, so that a host that used the disk before
    /// retries instead of giving it up.
    #[must_use]
    pub fn with_becoming_ready(self, becoming_ready: BTreeSet<Lun>) -> Self {
        Self { becoming_ready, ..self }
    }

    /// Refuses this initiator every modification of data; others of the same disks
    /// are not affected. The disks report write protection to it (SPC-4 §7.5.7, WP).
    #[must_use]
    pub fn with_read_only(self, is_read_only: bool) -> Self {
        Self { is_read_only, ..self }
    }

    /// Returns whether this initiator may not modify data.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// Returns whether the storage of a LUN cannot be opened now.
    pub(crate) fn is_becoming_ready(&self, lun: Lun) -> bool {
        self.becoming_ready.contains(&lun)
    }

    /// Returns the disk of a LUN.
    #[must_use]
    pub fn get(&self, lun: Lun) -> Option<&Arc<Disk>> {
        self.disks.get(&lun)
    }

    /// Returns all logical units in the order of their LUNs.
    pub fn iter(&self) -> impl Iterator<Item = (Lun, &Arc<Disk>)> {
        self.disks.iter().map(|(lun, disk)| (*lun, disk))
    }

    /// Returns the LUNs, ascending.
    #[must_use]
    pub fn numbers(&self) -> Vec<Lun> {
        self.disks.keys().copied().collect()
    }
}
