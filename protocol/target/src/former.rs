//! Commands that run for a host's earlier sessions: a new session of the host
//! waits for them, because they would overwrite what it writes.

use zgate_scsi::{Disk, Nexus, NexusId};

/// The nexuses of earlier sessions of this host that still have commands on
/// these disks. `living`: the nexuses of sessions that have not ended, which
/// may be on another port of the host.
pub fn former_commands<'a>(
    disks: impl Iterator<Item = &'a Disk>,
    nexus: &Nexus,
    living: &[NexusId],
) -> Vec<NexusId> {
    let is_former = |one: &Nexus| {
        one.id != nexus.id
            && one.initiator.name() == nexus.initiator.name()
            && !living.contains(&one.id)
    };
    disks.flat_map(|disk| disk.running().nexuses(is_former)).collect()
}

/// Waits until these nexuses have no commands on these disks.
pub async fn former_settled<'a>(disks: impl Iterator<Item = &'a Disk>, former: &[NexusId]) {
    for disk in disks {
        disk.settled(|one: &Nexus| former.contains(&one.id)).await;
    }
}
