//! The content of a snapshot as the present content of its volume.

use super::delete::is_scheduled;
use super::fault::{Fault, VolumeError};
use super::kind::VolumeKind;
use super::limits::MAX_DESTROYED_AT_ONCE;
use super::record::VolumeRecord;
use super::snapshot::{VolumeSnapshot, snapshots_of};
use crate::tool::{Tool, ToolError, command_line};

/// Rolls a volume that nobody uses back to a snapshot. Later snapshots prevent it,
/// because ZFS would destroy them; those of schedules are destroyed if
/// `destroy_scheduled` says so. `begins` is called before the content may change: not if the
/// rollback is refused before.
///
/// # Errors
/// [`Fault::NotFound`] without such a snapshot; [`Fault::InUse`] with later
/// snapshots or bookmarks; [`Fault::NoSpace`] if ZFS has no room for it; the error of
/// `zfs`. Only the last may come when snapshots were destroyed.
pub fn roll_back(
    tool: &dyn Tool,
    volume: &VolumeRecord,
    name: &str,
    destroy_scheduled: bool,
    begins: impl FnOnce(),
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
    if !to_destroy.is_empty() {
        refuse_what_zfs_refuses(tool, volume, &all[index], &to_destroy)?;
    }
    for some in to_destroy.chunks(MAX_DESTROYED_AT_ONCE) {
        let names: Vec<&str> = some.iter().map(|one| one.snapshot.name()).collect();
        let names = format!("{}@{}", volume.dataset, names.join(","));
        match tool.run("zfs", &["destroy", &names]) {
            Err(error) if !error.is_absent() => return Err(error.into()),
            _ => {}
        }
    }
    begins();
    // Without -r: one that was taken this moment is refused, not destroyed.
    tool.run("zfs", &["rollback", all[index].snapshot.as_str()])?;
    Ok(())
}

/// Returns whether nobody misses a snapshot that goes with a rollback.
fn may_go(snapshot: &VolumeSnapshot, destroy_scheduled: bool) -> bool {
    let unused = snapshot.temporary || (destroy_scheduled && is_scheduled(snapshot));
    unused && snapshot.clones.is_empty()
}

/// Refuses what ZFS would refuse when snapshots are gone already: they go first.
fn refuse_what_zfs_refuses(
    tool: &dyn Tool,
    volume: &VolumeRecord,
    target: &VolumeSnapshot,
    to_destroy: &[&VolumeSnapshot],
) -> Result<(), VolumeError> {
    to_destroy.iter().try_for_each(|one| one.refuse_if_held())?;
    refuse_if_bookmarks(tool, volume, target)?;
    if volume.kind == VolumeKind::Block {
        refuse_without_room(tool, volume, target)?;
    }
    Ok(())
}

fn refuse_if_bookmarks(
    tool: &dyn Tool,
    volume: &VolumeRecord,
    target: &VolumeSnapshot,
) -> Result<(), VolumeError> {
    let dataset = volume.dataset.as_str();
    let arguments = ["list", "-Hp", "-t", "bookmark", "-d", "1", "-o", "name,createtxg", dataset];
    let text = tool.run("zfs", &arguments)?;
    for line in text.lines() {
        let fields = line.split_once('\t');
        let parsed = fields.and_then(|(name, txg)| Some((name, txg.parse::<u64>().ok()?)));
        let (name, txg) = parsed.ok_or_else(|| not_parsed(&arguments, line))?;
        if txg > target.created_txg {
            let to = target.snapshot.name();
            return Err(VolumeError::new(
                Fault::InUse,
                format!("volume {dataset} cannot be rolled back to {to}: bookmark {name} is later"),
                "destroy the later bookmarks (`zfs list -t bookmark`), then send the request again",
            ));
        }
    }
    Ok(())
}

/// Refuses the rollback of a zvol for which ZFS has no room. During it, the present data
/// and the reservation count, both; `available` has the unused part of the reservation in
/// it, which is no room then.
fn refuse_without_room(
    tool: &dyn Tool,
    volume: &VolumeRecord,
    target: &VolumeSnapshot,
) -> Result<(), VolumeError> {
    let to = target.snapshot.name();
    let columns = format!("refreservation,usedbyrefreservation,available,written@{to}");
    let arguments = ["list", "-Hp", "-o", columns.as_str(), volume.dataset.as_str()];
    let text = tool.run("zfs", &arguments)?;
    let numbers = text.trim_end().split('\t').map(str::parse::<u64>).collect::<Result<Vec<_>, _>>();
    let Ok(&[reserved, unused, available, written]) = numbers.as_deref() else {
        return Err(not_parsed(&arguments, &text).into());
    };
    let (wanted, room) = (reserved.min(written), available.saturating_sub(unused));
    if wanted <= room {
        return Ok(());
    }
    Err(VolumeError::new(
        Fault::NoSpace,
        format!(
            "volume {} cannot be rolled back to {to}: its reservation takes {wanted} more bytes \
             meanwhile, and {room} are free",
            volume.dataset
        ),
        "free space, or lower its refreservation",
    ))
}

fn not_parsed(arguments: &[&str], text: &str) -> ToolError {
    ToolError::Answer {
        command: command_line("zfs", arguments),
        reason: format!("{text:?} cannot be parsed"),
    }
}
