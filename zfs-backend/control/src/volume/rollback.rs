//! The content of a snapshot as the present content of its volume.

use super::delete::is_scheduled;
use super::fault::{Fault, VolumeError};
use super::limits::MAX_DESTROYED_AT_ONCE;
use super::record::VolumeRecord;
use super::snapshot::{VolumeSnapshot, snapshots_of};
use crate::tool::Tool;

/// Rolls a volume that nobody uses back to a snapshot. Later snapshots prevent it,
/// because ZFS would destroy them; those of schedules are destroyed if
/// `destroy_scheduled` says so.
///
/// # Errors
/// [`Fault::NotFound`] without such a snapshot; [`Fault::InUse`] with later
/// snapshots; the error of `zfs`.
pub fn roll_back(
    tool: &dyn Tool,
    volume: &VolumeRecord,
    name: &str,
    destroy_scheduled: bool,
) -> Result<(), VolumeError> {
    if volume.pending_bytes.is_some() {
        let message = format!("volume {} is not complete", volume.dataset);
        let next = "repeat the request that makes it";
        return Err(VolumeError::new(Fault::InUse, message, next));
    }
    // In the order of their creation.
    let all = snapshots_of(tool, &volume.dataset)?;
    let found = all.iter().position(|one| one.listed && one.snapshot.name() == name);
    let Some(index) = found else {
        let message = format!("there is no snapshot {}@{name}", volume.dataset);
        return Err(VolumeError::new(Fault::NotFound, message, "check its name"));
    };
    all[index].check_owner(&volume.owner)?;
    let (in_the_way, to_destroy): (Vec<_>, Vec<_>) =
        all[index + 1..].iter().partition(|one| !may_go(one, destroy_scheduled));
    if let Some(first) = in_the_way.first() {
        let (verb, next) = match is_scheduled(first) && first.clones.is_empty() {
            true => ("a schedule took", "set destroy_scheduled, or delete them with `zfs destroy`"),
            false => ("there are", "delete them first"),
        };
        let message = format!(
            "volume {} cannot be rolled back to {name}: {verb} {} later snapshots, such as {}",
            volume.dataset,
            in_the_way.len(),
            first.snapshot
        );
        return Err(VolumeError::new(Fault::InUse, message, next));
    }
    for some in to_destroy.chunks(MAX_DESTROYED_AT_ONCE) {
        let names: Vec<&str> = some.iter().map(|one| one.snapshot.name()).collect();
        let names = format!("{}@{}", volume.dataset, names.join(","));
        match tool.run("zfs", &["destroy", &names]) {
            Err(error) if !error.is_absent() => return Err(error.into()),
            _ => {}
        }
    }
    // Without -r: one that was taken this moment is refused, not destroyed.
    tool.run("zfs", &["rollback", all[index].snapshot.as_str()])?;
    Ok(())
}

/// Returns whether nobody misses a snapshot that goes with a rollback.
fn may_go(snapshot: &VolumeSnapshot, destroy_scheduled: bool) -> bool {
    let unused = snapshot.temporary || (destroy_scheduled && is_scheduled(snapshot));
    unused && snapshot.clones.is_empty()
}
