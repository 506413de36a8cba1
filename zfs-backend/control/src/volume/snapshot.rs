//! Snapshots of volumes.

use super::fault::{Fault, VolumeError};
use super::kind::check_name;
use super::limits::MAX_ASKED_AT_ONCE;
use super::record::{OWNER, VolumeRecord};
use crate::name::{DatasetName, SnapshotName};
use crate::tool::{Tool, ToolError, command_line};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Name of the snapshot: the mark of one that was asked for.
pub(super) const SNAPSHOT: &str = "zgate:snapshot";
/// Size in bytes of a volume that is made from it.
pub(super) const SIZE: &str = "zgate:size";
/// Mark of a snapshot that nobody asked for, or whose deletion has begun.
pub(super) const TEMPORARY: &str = "zgate:temporary";
/// Beginning of the name of a snapshot from which a clone is made.
const CLONE_PREFIX: &str = "zgate-clone-";
/// Beginning of the name of a deleted snapshot that clones still need.
const DELETED_PREFIX: &str = "zgate-deleted-";

const COLUMNS: &str = "name,guid,creation,createtxg,clones,userrefs,defer_destroy,\
    zgate:owner,zgate:snapshot,zgate:size,zgate:temporary";

/// A snapshot of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeSnapshot {
    /// Its name, with the dataset.
    pub snapshot: SnapshotName,
    /// Its identity.
    pub guid: u64,
    /// Time of its creation, in seconds since 1970.
    pub created_unix_seconds: i64,
    /// Transaction group of its creation: what is later has a larger one.
    pub(super) created_txg: u64,
    /// Clones of it, as ZFS names them: a receive that is under way has one with a `%`,
    /// which is no name, and ZFS cuts the list at 4 KiB.
    pub clones: Vec<String>,
    /// Party that it belongs to.
    pub owner: String,
    /// Size in bytes of a volume that is made from it.
    pub size_bytes: u64,
    /// Set if it was asked for and is not being deleted.
    pub listed: bool,
    /// Set if it was made for a clone, or its deletion has begun.
    pub temporary: bool,
    /// Set if somebody holds it (`zfs hold`).
    pub(super) held: bool,
    /// Clone that it was made for.
    made_for: Option<String>,
}

impl VolumeSnapshot {
    pub(super) fn check_owner(&self, owner: &str) -> Result<(), VolumeError> {
        if self.owner == owner && (self.listed || self.temporary) {
            return Ok(());
        }
        Err(VolumeError::new(
            Fault::Forbidden,
            format!("snapshot {} belongs to another owner", self.snapshot),
            "let its owner change it",
        ))
    }

    /// Refuses what ZFS does not do with a snapshot that somebody holds.
    pub(super) fn refuse_if_held(&self) -> Result<(), VolumeError> {
        if !self.held {
            return Ok(());
        }
        Err(VolumeError::new(
            Fault::InUse,
            format!("snapshot {} is held", self.snapshot),
            "release its holds (`zfs holds`), then send the request again",
        ))
    }
}

/// Returns a new name for the snapshot from which a clone is made. It was never
/// used before: an older snapshot of that name would have older content, and
/// could prevent a promotion.
pub(super) fn clone_snapshot_name(origin: &DatasetName) -> Result<SnapshotName, VolumeError> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let count = COUNT.fetch_add(1, Ordering::Relaxed) & 0xffff;
    named(origin, &format!("{CLONE_PREFIX}{:x}-{count:x}", since.as_nanos()))
}

/// Lets the snapshots go that were taken for a clone: at once, or with it.
///
/// # Errors
/// The error of `zfs`.
pub(super) fn drop_clone_snapshots(
    tool: &dyn Tool,
    origin: &DatasetName,
    clone: &DatasetName,
) -> Result<(), VolumeError> {
    let all = snapshots_of(tool, origin)?;
    let mut taken = all.iter().filter(|one| one.made_for.as_deref() == Some(clone.as_str()));
    taken.try_for_each(|one| destroy_deferred(tool, &one.snapshot).map(drop))
}

fn named(dataset: &DatasetName, name: &str) -> Result<SnapshotName, VolumeError> {
    format!("{dataset}@{name}").parse().map_err(|error: crate::name::NameError| {
        VolumeError::invalid(error.to_string(), "choose a shorter name")
    })
}

fn listing(
    tool: &dyn Tool,
    depth: &[&str],
    names: &[&str],
) -> Result<Vec<VolumeSnapshot>, ToolError> {
    let mut arguments = vec!["list", "-Hp", "-t", "snapshot", "-o", COLUMNS];
    arguments.extend(depth);
    arguments.extend(names);
    let text = tool.run("zfs", &arguments)?;
    let wrong = |line: &str| ToolError::Answer {
        command: command_line("zfs", &arguments),
        reason: format!("{line:?} cannot be parsed"),
    };
    text.lines().map(|line| parse(line).ok_or_else(|| wrong(line))).collect()
}

fn parse(line: &str) -> Option<VolumeSnapshot> {
    let fields: Vec<&str> = line.split('\t').collect();
    let &[name, guid, creation, txg, clones, holds, deferred, owner, snapshot, size, temporary] =
        fields.as_slice()
    else {
        return None;
    };
    let is_set = |field: &str| field != "-";
    // It goes with its last hold or clone: `zfs destroy -d` has answered as done.
    let is_going = is_set(temporary) || deferred == "on";
    let clones = clones.split(',').filter(|clone| !matches!(*clone, "" | "-"));
    Some(VolumeSnapshot {
        snapshot: name.parse().ok()?,
        guid: guid.parse().ok()?,
        created_unix_seconds: creation.parse().ok()?,
        created_txg: txg.parse().ok()?,
        clones: clones.map(str::to_owned).collect(),
        owner: owner.to_owned(),
        size_bytes: size.parse().unwrap_or(0),
        listed: is_set(snapshot) && !is_going,
        temporary: is_going,
        held: holds.parse::<u64>().is_ok_and(|count| count > 0),
        made_for: is_set(temporary).then(|| temporary.to_owned()),
    })
}

/// Lists all snapshots of the volumes directly below a parent.
///
/// # Errors
/// The error of `zfs`.
pub fn snapshots(
    tool: &dyn Tool,
    parent: &DatasetName,
) -> Result<Vec<VolumeSnapshot>, VolumeError> {
    Ok(listing(tool, &["-d", "2"], &[parent.as_str()])?)
}

/// Lists those snapshots of the volumes directly below a parent that have a name. Names alone are
/// listed without a look at each snapshot (`ZFS_ITER_SIMPLE`, cmd/zfs/zfs_main.c of OpenZFS; older
/// releases do so in the order of names): of a name that nobody has, nothing else is asked.
///
/// # Errors
/// The error of `zfs`.
pub fn snapshots_named(
    tool: &dyn Tool,
    parent: &DatasetName,
    name: &str,
) -> Result<Vec<VolumeSnapshot>, VolumeError> {
    let order = ["-o", "name", "-s", "name", "-d", "2", parent.as_str()];
    let arguments = [&["list", "-H", "-t", "snapshot"][..], &order].concat();
    let text = tool.run("zfs", &arguments)?;
    let is_of_name = |line: &&str| line.split_once('@').is_some_and(|(_, of)| of == name);
    let names: Vec<&str> = text.lines().filter(is_of_name).collect();
    let mut found = listed_all(tool, &[], &names)?;
    if found.is_empty() && !names.is_empty() {
        // One of them has gone meanwhile.
        found = snapshots(tool, parent)?;
        found.retain(|one| one.snapshot.name() == name);
    }
    Ok(found)
}

/// Lists the snapshots of a volume; nothing if there is no such dataset.
///
/// # Errors
/// The error of `zfs`.
pub fn snapshots_of(
    tool: &dyn Tool,
    volume: &DatasetName,
) -> Result<Vec<VolumeSnapshot>, VolumeError> {
    match listing(tool, &["-d", "1"], &[volume.as_str()]) {
        Err(error) if error.is_absent() => Ok(Vec::new()),
        found => Ok(found?),
    }
}

/// Snapshots of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// One of each volume, in the order of the volumes.
    pub snapshots: Vec<VolumeSnapshot>,
    /// Set if they did not exist before.
    pub is_new: bool,
}

/// Takes a snapshot of each volume, all in one transaction of their pool, or
/// finds them. `flush` brings acknowledged writes of the volumes to their pool before.
///
/// # Errors
/// [`Fault::Exists`] if only some have a snapshot of this name, or another
/// owner's; the error of `flush`, if there are none.
pub fn group_snapshot(
    tool: &dyn Tool,
    volumes: &[VolumeRecord],
    name: &str,
    flush: impl FnOnce() -> Result<(), VolumeError>,
) -> Result<Taken, VolumeError> {
    check_name("snapshot", name)?;
    let Some(first) = volumes.first() else {
        return Err(VolumeError::invalid("a group of no volumes", "name at least one"));
    };
    if let Some(other) = volumes.iter().find(|one| one.dataset.pool() != first.dataset.pool()) {
        return Err(VolumeError::invalid(
            format!("{} and {} are in different pools", first.dataset, other.dataset),
            "take a snapshot in each pool",
        ));
    }
    let mut taken = take_or_find(tool, volumes, name, flush)?;
    for (one, volume) in taken.snapshots.iter_mut().zip(volumes) {
        one.check_owner(&volume.owner)?;
        if !one.listed {
            return Err(VolumeError::new(
                Fault::Exists,
                format!("snapshot {} is being deleted", one.snapshot),
                "delete it again, or choose another name",
            ));
        }
        if one.size_bytes == 0 {
            let size = format!("{SIZE}={}", volume.size_bytes);
            tool.run("zfs", &["set", &size, one.snapshot.as_str()])?;
            one.size_bytes = volume.size_bytes;
        }
    }
    Ok(taken)
}

/// Takes the snapshots of a group, without asking before: ZFS takes all of them or none, and
/// none where there is one of this name. That may be of a command which timed out, and has
/// waited for the pool since.
fn take_or_find(
    tool: &dyn Tool,
    volumes: &[VolumeRecord],
    name: &str,
    flush: impl FnOnce() -> Result<(), VolumeError>,
) -> Result<Taken, VolumeError> {
    let wanted = volumes.iter().map(|one| named(&one.dataset, name));
    let wanted = wanted.collect::<Result<Vec<_>, _>>()?;
    let names: Vec<&str> = wanted.iter().map(SnapshotName::as_str).collect();
    let made = match flush() {
        Ok(()) => match take(tool, volumes, name, &names) {
            Err(late) if late.is_late() => return Err(late.into()),
            made => made.map_err(VolumeError::from),
        },
        failed => failed,
    };
    let found = match &made {
        Ok(()) => listed_all(tool, &[], &names)?,
        Err(_) => {
            let datasets: Vec<&str> = volumes.iter().map(|one| one.dataset.as_str()).collect();
            listed_all(tool, &["-d", "1"], &datasets)?
        }
    };
    let of_name = |name: &SnapshotName| found.iter().find(|one| one.snapshot == *name).cloned();
    let snapshots: Vec<_> = wanted.iter().filter_map(of_name).collect();
    if snapshots.len() == wanted.len() {
        return Ok(Taken { snapshots, is_new: made.is_ok() });
    }
    Err(match (made, snapshots.first()) {
        (Ok(()), _) => VolumeError::new(
            Fault::Storage,
            format!("a snapshot {name} has vanished"),
            "send the request again",
        ),
        (Err(_), Some(one)) => VolumeError::new(
            Fault::Exists,
            format!("snapshot {} exists, and others of the group do not", one.snapshot),
            "choose another name",
        ),
        (Err(failed), None) => failed,
    })
}

/// Lists snapshots by their names, or those of datasets; none if one of these is gone.
fn listed_all(
    tool: &dyn Tool,
    depth: &[&str],
    names: &[&str],
) -> Result<Vec<VolumeSnapshot>, VolumeError> {
    let mut all = Vec::new();
    for some in names.chunks(MAX_ASKED_AT_ONCE) {
        match listing(tool, depth, some) {
            Err(error) if error.is_absent() => return Ok(Vec::new()),
            found => all.extend(found?),
        }
    }
    Ok(all)
}

fn take(
    tool: &dyn Tool,
    volumes: &[VolumeRecord],
    name: &str,
    names: &[&str],
) -> Result<(), ToolError> {
    // A command gives all its snapshots the same properties.
    let same_size = volumes.iter().all(|volume| volume.size_bytes == volumes[0].size_bytes);
    let mut options = vec![format!("{OWNER}={}", volumes[0].owner), format!("{SNAPSHOT}={name}")];
    options.extend(same_size.then(|| format!("{SIZE}={}", volumes[0].size_bytes)));
    let mut arguments = vec!["snapshot"];
    arguments.extend(options.iter().flat_map(|option| ["-o", option.as_str()]));
    arguments.extend(names);
    tool.run("zfs", &arguments).map(drop)
}

/// Deletes a snapshot. One that clones need becomes invisible and goes with the last clone.
/// False: there was none, or its pool is elsewhere.
///
/// # Errors
/// [`Fault::Forbidden`] if it is another owner's; [`Fault::InUse`] if somebody holds it:
/// it would stay, under its name; the error of `zfs`.
pub fn delete_snapshot(
    tool: &dyn Tool,
    volume: &DatasetName,
    name: &str,
    owner: &str,
) -> Result<bool, VolumeError> {
    check_name("snapshot", name)?;
    let wanted = named(volume, name)?;
    let all = snapshots_of(tool, volume)?;
    let Some(found) = all.into_iter().find(|one| one.snapshot == wanted) else { return Ok(false) };
    found.check_owner(owner)?;
    found.refuse_if_held()?;
    if found.clones.is_empty() {
        return destroy_deferred(tool, &wanted);
    }
    // First: from here on it is not listed, whatever happens.
    let mark = format!("{TEMPORARY}=deleted");
    if !was_there(tool.run("zfs", &["set", &mark, wanted.as_str()]))? {
        return Ok(false);
    }
    // Under its name, under which a repeated request finds it: what is renamed, nobody
    // would destroy any more.
    destroy_deferred(tool, &wanted)?;
    // The name is free for another snapshot. Without its clones it is gone already.
    let hidden = named(volume, &format!("{DELETED_PREFIX}{:016x}", found.guid))?;
    was_there(tool.run("zfs", &["rename", wanted.as_str(), hidden.as_str()]))
}

/// Destroys a snapshot: at once, or with the last clone that needs it. False: there was none.
fn destroy_deferred(tool: &dyn Tool, snapshot: &SnapshotName) -> Result<bool, VolumeError> {
    was_there(tool.run("zfs", &["destroy", "-d", snapshot.as_str()]))
}

fn was_there(outcome: Result<String, ToolError>) -> Result<bool, VolumeError> {
    match outcome {
        Err(error) if error.is_absent() => Ok(false),
        outcome => Ok(outcome.map(|_| true)?),
    }
}
