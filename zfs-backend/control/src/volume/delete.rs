//! Deletion of a volume. Clones of it are promoted first, so that they live on.

use super::fault::{Fault, VolumeError};
use super::limits::{MAX_DESTROYED_AT_ONCE, MAX_PROMOTIONS};
use super::record::VolumeRecord;
use super::snapshot::{VolumeSnapshot, snapshots_of};
use crate::snapshot::OurName;
use crate::tool::Tool;

/// Refuses the deletion of a volume with snapshots that its owner still lists,
/// or that somebody else took. Returns the number of those that go with it.
///
/// # Errors
/// [`Fault::InUse`], with the snapshots.
pub fn refuse_if_snapshots(tool: &dyn Tool, volume: &VolumeRecord) -> Result<usize, VolumeError> {
    snapshots_that_may_go(tool, volume).map(|all| all.len())
}

/// Returns the snapshots of a volume; all go with it.
fn snapshots_that_may_go(
    tool: &dyn Tool,
    volume: &VolumeRecord,
) -> Result<Vec<VolumeSnapshot>, VolumeError> {
    let all = snapshots_of(tool, &volume.dataset)?;
    let holders: Vec<_> = all.iter().filter(|one| !may_go(one)).collect();
    let Some(first) = holders.first() else { return Ok(all) };
    Err(VolumeError::new(
        Fault::InUse,
        format!(
            "volume {} has {} snapshots, such as {}",
            volume.dataset,
            holders.len(),
            first.snapshot
        ),
        "delete them first",
    ))
}

/// Returns whether a snapshot goes with its volume: made for a clone, being
/// deleted, or taken by a schedule.
fn may_go(snapshot: &VolumeSnapshot) -> bool {
    snapshot.temporary || is_scheduled(snapshot)
}

/// Returns whether a schedule took a snapshot.
pub(super) fn is_scheduled(snapshot: &VolumeSnapshot) -> bool {
    !snapshot.listed && OurName::parse(snapshot.snapshot.name()).is_some()
}

/// Deletes a volume that nobody uses.
///
/// # Errors
/// As [`refuse_if_snapshots`], and the error of `zfs`.
pub fn delete(tool: &dyn Tool, volume: &VolumeRecord) -> Result<(), VolumeError> {
    if snapshots_that_may_go(tool, volume)?.is_empty() {
        return destroy(tool, volume);
    }
    destroy_unused(tool, volume)?;
    for _ in 0..MAX_PROMOTIONS {
        let all = snapshots_of(tool, &volume.dataset)?;
        // The last: promoting its clone moves all earlier ones, too. `zfs list`
        // has them in the order of their creation.
        let Some(last) = all.iter().rev().find(|one| !one.clones.is_empty()) else { break };
        tool.run("zfs", &["promote", last.clones[0].as_str()])?;
    }
    destroy_unused(tool, volume)?;
    destroy(tool, volume)
}

fn destroy(tool: &dyn Tool, volume: &VolumeRecord) -> Result<(), VolumeError> {
    match tool.run("zfs", &["destroy", volume.dataset.as_str()]) {
        Err(error) if !error.is_absent() => Err(error.into()),
        _ => Ok(()),
    }
}

/// Destroys snapshots without clones: their names could be those of snapshots
/// of a clone, which then could not be promoted.
fn destroy_unused(tool: &dyn Tool, volume: &VolumeRecord) -> Result<(), VolumeError> {
    let all = snapshots_of(tool, &volume.dataset)?;
    let unused: Vec<&str> = all
        .iter()
        .filter(|one| one.clones.is_empty() && may_go(one))
        .map(|one| one.snapshot.name())
        .collect();
    for some in unused.chunks(MAX_DESTROYED_AT_ONCE) {
        let names = format!("{}@{}", volume.dataset, some.join(","));
        match tool.run("zfs", &["destroy", &names]) {
            Err(error) if !error.is_absent() => return Err(error.into()),
            _ => {}
        }
    }
    Ok(())
}
