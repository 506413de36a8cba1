//! Asks ZFS if it would refuse to destroy a volume because somebody has it or one of its
//! snapshots open, before the first snapshot goes: `zfs destroy` looks at the volume only
//! once they are gone, and at no more snapshots than those that it is to destroy.

use super::fault::{Fault, VolumeError};
use super::record::VolumeRecord;
use crate::tool::{Tool, ToolError};

/// Words of [`PROGRAM`] about a dataset that is open.
pub(super) const HAS_USERS: &str = "zgate: the dataset has users";

/// Words of [`PROGRAM`] about a snapshot that is open; its name follows.
pub(super) const SNAPSHOT_HAS_USERS: &str = "zgate: a snapshot has users: ";

/// Channel program (zfs-program(8)) that fails if a dataset is open: a zvol by a process,
/// or a file system by a mount, of any mount namespace. The check for a rollback looks for
/// that, and nothing is rolled back; the check for `destroy` gives the same answer for a
/// dataset that has snapshots. Only a program that may change something sees it. `EAGAIN`:
/// a snapshot is just being taken, and nobody has looked.
///
/// It also fails if a snapshot is open: by `zfs send`, by a mount of its own, or as a device.
/// ZFS neither destroys such a snapshot nor moves it to a clone. The check for a deferred
/// `destroy` looks for that alone: what `zfs hold` holds moves to a clone, with its holds, or
/// is refused before.
const PROGRAM: &str = r#"local arguments = ...
local dataset = arguments["argv"][1]
local found = zfs.check.rollback(dataset)
if found == EBUSY or found == EAGAIN then
    error("zgate: the dataset has users", 0)
end
for snapshot in zfs.list.snapshots(dataset) do
    if zfs.check.destroy{snapshot, defer=true} == EBUSY then
        error("zgate: a snapshot has users: " .. snapshot, 0)
    end
end
"#;

/// Refuses what `zfs destroy` or `zfs promote` would refuse as busy when the first snapshots
/// are gone. The volume has snapshots, and is not mounted here. Where ZFS does not say
/// whether it is open, it is taken for not open: programs need CAP_SYS_ADMIN, and the check
/// looks for bookmarks that are later than all snapshots first.
///
/// # Errors
/// [`Fault::InUse`]; the error of a pool that does not answer.
pub(super) fn refuse_if_open(tool: &dyn Tool, volume: &VolumeRecord) -> Result<(), VolumeError> {
    let (dataset, pool) = (volume.dataset.as_str(), volume.dataset.pool());
    let arguments = ["program", pool.as_str(), "-", dataset];
    match tool.run_with_input("zfs", &arguments, PROGRAM) {
        Err(ToolError::Failed { said, .. }) if said.contains(HAS_USERS) => Err(VolumeError::new(
            Fault::InUse,
            format!("volume {dataset} is busy: a process has it open, or a container mounts it"),
            "end its users, then send the request again",
        )),
        Err(ToolError::Failed { said, .. }) if said.contains(SNAPSHOT_HAS_USERS) => {
            let after = said.split(SNAPSHOT_HAS_USERS).nth(1).unwrap_or_default();
            let snapshot = after.lines().next().unwrap_or_default();
            Err(VolumeError::new(
                Fault::InUse,
                format!("snapshot {snapshot} is busy: it is being sent (`zfs send`), or mounted"),
                "let the send end, or unmount it, then send the request again",
            ))
        }
        Err(error @ ToolError::Failed { .. }) => {
            tracing::debug!(dataset, %error, "it is not known whether the volume is open");
            Ok(())
        }
        Err(error) => Err(error.into()),
        Ok(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_says_what_is_looked_for() {
        for words in [HAS_USERS, SNAPSHOT_HAS_USERS] {
            assert!(PROGRAM.contains(&format!("\"{words}\"")), "{words}");
        }
    }
}
