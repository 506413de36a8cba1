//! Deletion of a volume. Clones of it are promoted first, so that they live on.

use super::fault::{Fault, VolumeError};
use super::in_use::refuse_if_open;
use super::kind::VolumeKind;
use super::limits::{MAX_DESTROYED_AT_ONCE, MAX_PROMOTIONS};
use super::record::{Found, VolumeRecord, look};
use super::snapshot::{VolumeSnapshot, snapshots_of};
use crate::name::DatasetName;
use crate::snapshot::OurName;
use crate::tool::{Tool, ToolError};

/// Words of `zfs destroy` about a dataset with snapshots, or with datasets below it.
const HAS_CHILDREN: &str = "has children";

/// Refuses the deletion of a volume with snapshots that its owner still lists,
/// or that somebody else took or holds; and of one with snapshots and datasets below
/// it.
///
/// # Errors
/// [`Fault::InUse`], with the snapshots or the dataset.
pub fn refuse_if_snapshots(tool: &dyn Tool, volume: &VolumeRecord) -> Result<(), VolumeError> {
    snapshots_that_may_go(tool, volume).map(drop)
}

/// Returns the snapshots of a volume; all go with it. They go first, so what ZFS would
/// refuse afterwards is refused here.
fn snapshots_that_may_go(
    tool: &dyn Tool,
    volume: &VolumeRecord,
) -> Result<Vec<VolumeSnapshot>, VolumeError> {
    let all = snapshots_of(tool, &volume.dataset)?;
    refuse_if_kept(volume, &all)?;
    refuse_if_children(tool, volume, &all)?;
    Ok(all)
}

/// Refuses the deletion of a volume of whose snapshots one does not go with it.
fn refuse_if_kept(volume: &VolumeRecord, all: &[VolumeSnapshot]) -> Result<(), VolumeError> {
    let holders: Vec<_> = all.iter().filter(|one| !may_go(one)).collect();
    if let Some(first) = holders.first() {
        return Err(VolumeError::new(
            Fault::InUse,
            format!(
                "volume {} has {} snapshots, such as {}",
                volume.dataset,
                holders.len(),
                first.snapshot
            ),
            "delete them first",
        ));
    }
    // One with clones moves to a clone, with its holds.
    all.iter().filter(|one| one.clones.is_empty()).try_for_each(VolumeSnapshot::refuse_if_held)?;
    clone_to_promote(all).map(drop)
}

/// Refuses the deletion of a volume with these snapshots that has datasets below it, too.
fn refuse_if_children(
    tool: &dyn Tool,
    volume: &VolumeRecord,
    all: &[VolumeSnapshot],
) -> Result<(), VolumeError> {
    if all.is_empty() || volume.kind != VolumeKind::Filesystem {
        return Ok(());
    }
    let dataset = volume.dataset.as_str();
    let arguments = ["list", "-H", "-o", "name", "-d", "1", "-t", "filesystem,volume", dataset];
    let text = tool.run("zfs", &arguments)?;
    let Some(child) = text.lines().find(|name| *name != dataset) else { return Ok(()) };
    Err(VolumeError::new(
        Fault::InUse,
        format!("volume {dataset} has datasets below it, such as {child}"),
        "destroy what is below it first",
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

/// Right to promote clones of a volume that is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promotion {
    /// There is none.
    Excluded,
    /// The volume has its pool alone.
    Allowed,
    /// The same, and an earlier attempt has found clones.
    Needed,
}

/// Deletes a volume that nobody uses. One that somebody uses, or of which somebody uses a
/// snapshot, keeps its snapshots. False: nothing is done, because its clones would have to be
/// promoted, and must not be.
///
/// # Errors
/// As [`refuse_if_snapshots`], and the error of `zfs`.
pub fn delete(
    tool: &dyn Tool,
    volume: &VolumeRecord,
    promotion: Promotion,
) -> Result<bool, VolumeError> {
    // Most have no snapshots. One with snapshots, or with datasets below it, is refused before
    // anything of it changes (zfs_do_destroy in cmd/zfs/zfs_main.c of OpenZFS).
    if promotion != Promotion::Needed {
        match destroy(tool, volume) {
            Err(refused) if is_because_of_children(&refused) => {}
            outcome => return outcome.map(|()| true),
        }
    }
    let all = snapshots_of(tool, &volume.dataset)?;
    refuse_if_kept(volume, &all)?;
    if all.is_empty() {
        // The snapshots have gone meanwhile, or ZFS names the datasets below it.
        return destroy(tool, volume).map(|()| true);
    }
    if promotion == Promotion::Excluded && all.iter().any(|one| !one.clones.is_empty()) {
        return Ok(false);
    }
    refuse_if_children(tool, volume, &all)?;
    let is_unmounted = unmount(tool, volume)?;
    // `zfs destroy` unmounts one with the mount point `legacy` itself.
    let is_still_mounted = volume.mounted_at.is_some() && !is_unmounted;
    let free = if is_still_mounted { Ok(()) } else { refuse_if_open(tool, volume) };
    let outcome = free.and_then(|()| destroy_with_snapshots(tool, volume, all));
    if is_unmounted && outcome.is_err() {
        // It stays for now. If this fails, too, the next grant of access mounts it.
        let _ = tool.run("zfs", &["mount", volume.dataset.as_str()]);
    }
    outcome.map(|()| true)
}

/// Unmounts a file system, which fails while a process uses it. Returns whether it was
/// mounted.
fn unmount(tool: &dyn Tool, volume: &VolumeRecord) -> Result<bool, VolumeError> {
    // One with the mount point `legacy` is not for `zfs unmount`.
    let is_mounted = volume.mounted_at.as_ref().is_some_and(|path| path.is_absolute());
    if is_mounted {
        tool.run("zfs", &["unmount", volume.dataset.as_str()])?;
    }
    Ok(is_mounted)
}

/// Destroys a volume that has these snapshots. One that somebody takes meanwhile keeps it, unless
/// that is a schedule.
fn destroy_with_snapshots(
    tool: &dyn Tool,
    volume: &VolumeRecord,
    mut all: Vec<VolumeSnapshot>,
) -> Result<(), VolumeError> {
    destroy_unused(tool, volume, &all)?;
    for _ in 0..MAX_PROMOTIONS {
        let Some(clone) = clone_to_promote(&all)? else { break };
        tool.run("zfs", &["promote", clone.as_str()])?;
        // Those that have not moved to the clone.
        all = snapshots_of(tool, &volume.dataset)?;
        destroy_unused(tool, volume, &all)?;
    }
    match destroy(tool, volume) {
        Err(refused) if is_because_of_children(&refused) => {
            let late = snapshots_that_may_go(tool, volume)?;
            destroy_unused(tool, volume, &late)?;
            destroy(tool, volume)
        }
        outcome => outcome,
    }
}

/// Returns a clone of the last snapshot that has one: promoting it moves all earlier
/// snapshots, too. `zfs list` has them in the order of their creation.
fn clone_to_promote(all: &[VolumeSnapshot]) -> Result<Option<DatasetName>, VolumeError> {
    let Some(last) = all.iter().rev().find(|one| !one.clones.is_empty()) else { return Ok(None) };
    let hidden = &last.clones[0];
    hidden.parse::<DatasetName>().map(Some).map_err(|_| {
        let into = hidden.split("/%").next().unwrap_or_default();
        VolumeError::new(
            Fault::InUse,
            format!("a receive into {into} is under way, and needs snapshot {}", last.snapshot),
            "let the receive end, or discard it (`zfs receive -A`), then send the request again",
        )
    })
}

/// Destroys a volume without snapshots and datasets below it; nothing if there is none any more.
fn destroy(tool: &dyn Tool, volume: &VolumeRecord) -> Result<(), VolumeError> {
    let dataset = &volume.dataset;
    let Err(failed) = tool.run("zfs", &["destroy", dataset.as_str()]) else { return Ok(()) };
    // First: `zfs` may have complained before that a clone does not exist, which is just being
    // destroyed (zfs_iter_clones in lib/libzfs/libzfs_dataset.c and libzfs_iter.c of OpenZFS).
    if matches!(&failed, ToolError::Failed { said, .. } if said.contains(HAS_CHILDREN)) {
        let next = "destroy what is below it first";
        return Err(VolumeError::new(Fault::InUse, failed.to_string(), next));
    }
    if !failed.is_absent() {
        return Err(failed.into());
    }
    // Its pool may have been exported meanwhile, and comes back with it.
    match look(tool, dataset)? {
        Found::Nothing(_) => Ok(()),
        _ => {
            let next = "send the same request again";
            Err(VolumeError::new(Fault::Storage, failed.to_string(), next))
        }
    }
}

/// Returns whether ZFS has refused to destroy a volume because of what is below it.
fn is_because_of_children(refused: &VolumeError) -> bool {
    refused.fault == Fault::InUse && refused.message.contains(HAS_CHILDREN)
}

/// Destroys snapshots without clones: their names could be those of snapshots
/// of a clone, which then could not be promoted.
fn destroy_unused(
    tool: &dyn Tool,
    volume: &VolumeRecord,
    all: &[VolumeSnapshot],
) -> Result<(), VolumeError> {
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
