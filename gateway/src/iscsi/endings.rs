//! Commands of sessions that have ended, which still run on their disks: what they write may land
//! behind what the next host writes. Whoever takes access to a disk away waits for them.

use super::luns::unit::Unit;
use super::session::LiveSession;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use zgate_iscsi::names::IscsiName;
use zgate_scsi::{Disk, NexusId};

/// A disk of a session that has ended. Its commands keep it while they run, and nobody else is to:
/// its storage would stay open.
struct Ending {
    target: IscsiName,
    disk: Weak<Disk>,
    nexus: NexusId,
}

impl Ending {
    /// Returns whether commands of the session run on the disk.
    fn runs(&self) -> bool {
        let disk = self.disk.upgrade();
        disk.is_some_and(|disk| disk.running().any(|nexus| nexus.id == self.nexus))
    }
}

/// Disks on which commands of ended sessions run.
#[derive(Default)]
pub(super) struct Endings(Mutex<Vec<Ending>>);

impl Endings {
    /// Notes what runs for a session that has ended. It begins no command any more.
    pub(super) fn note(&self, live: &LiveSession) {
        let Some(target) = &live.key.target else { return };
        let on_disk = |unit: &Arc<Unit>| Ending {
            target: target.clone(),
            disk: Arc::downgrade(&unit.disk),
            nexus: live.nexus.id,
        };
        let (lun_map, mut all) = (live.lun_map(), self.present());
        all.extend(lun_map.units.values().map(on_disk).filter(Ending::runs));
    }

    /// Returns whether nothing runs on the disks of a target any more.
    pub(super) fn is_settled(&self, target: &IscsiName) -> bool {
        !self.present().iter().any(|one| one.target == *target)
    }

    /// Forgets what does not run any more, and returns the rest.
    fn present(&self) -> MutexGuard<'_, Vec<Ending>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(Ending::runs);
        all
    }
}
