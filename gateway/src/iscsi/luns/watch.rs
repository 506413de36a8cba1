//! Changes of a served unit's device or file: size, name, remaining space.
//! Initiators are informed of those that concern them.

use super::unit::Unit;
use crate::iscsi::limits::{SPACE_INTERVAL, WATCH_INTERVAL};
use std::path::Path;
use tokio::time::Instant;
use zgate_block::{BackingKind, SpaceBelow};
use zgate_control::{DatasetName, SystemTool, Tool, ToolError};
use zgate_scsi::ThinSpace;
use zgate_store::BlockStore;

/// Time limit of a `zfs` query for the space of a volume, in seconds.
const ZFS_SECONDS: u64 = 10;

/// Reports already made for a unit.
#[derive(Debug, Default)]
struct Said {
    orphaned: bool,
    unknown_space: bool,
}

/// Checks a unit at intervals; never returns.
pub(crate) async fn watch(unit: &Unit) {
    let mut said = Said::default();
    let mut space_due = Instant::now();
    loop {
        follow_size(unit).await;
        tell_orphan(unit, &mut said).await;
        if space_due <= Instant::now() {
            follow_space(unit, &mut said).await;
            space_due = Instant::now() + SPACE_INTERVAL;
        }
        tokio::time::sleep(WATCH_INTERVAL).await;
    }
}

/// Adopts a size that another program gave to the device or file.
async fn follow_size(unit: &Unit) {
    let before = unit.volume.geometry().capacity_bytes;
    let least = u64::from(unit.config.block_bytes).max(unit.volume.unit_bytes());
    // A device that is being removed has no size any more: errors of the disk
    // are better than a disk without size.
    let changed = matches!(unit.volume.size_below().await,
        Ok(now) if now >= least && now - now % unit.volume.unit_bytes() != before);
    if !changed {
        return;
    }
    match unit.resize(None).await {
        Ok(now) if now < before => tracing::warn!(
            target_name = %unit.target, lun = unit.config.number, before, now,
            "the device of a LUN became smaller; data beyond its new end is lost"
        ),
        Ok(now) => tracing::info!(
            target_name = %unit.target, lun = unit.config.number, before, now,
            "a LUN has a new size; initiators are informed"
        ),
        Err(error) => tracing::warn!(%error, "cannot adopt a LUN's new size"),
    }
}

async fn tell_orphan(unit: &Unit, said: &mut Said) {
    let orphaned = unit.volume.is_orphaned().await;
    if orphaned && !said.orphaned {
        tracing::error!(
            target_name = %unit.target, lun = unit.config.number, path = %unit.config.path.display(),
            "the file or device of a LUN was removed or replaced; initiators keep using the open \
             one and lose it when the gateway stops: copy its data from a host now"
        );
    }
    said.orphaned = orphaned;
}

/// Informs initiators of the space behind a thin unit, and when it runs short.
async fn follow_space(unit: &Unit, said: &mut Said) {
    if !unit.config.thin {
        return;
    }
    let space = match unit.volume.kind() {
        BackingKind::File => unit.volume.space_below().await.ok().flatten(),
        BackingKind::Zvol => match zvol_space(&unit.config.path).await {
            Ok(space) => space,
            Err(error) => {
                if !std::mem::replace(&mut said.unknown_space, true) {
                    tracing::warn!(
                        %error, target_name = %unit.target, lun = unit.config.number,
                        "cannot determine the space behind a LUN; initiators will not be warned"
                    );
                }
                None
            }
        },
        BackingKind::Loop | BackingKind::Device => None,
    };
    let thin = space.map(|space| thin_space(&space, unit.thin_warning_percent));
    if unit.disk.set_thin_space(thin) {
        tracing::warn!(
            target_name = %unit.target, lun = unit.config.number,
            available_bytes = thin.map_or(0, |thin| thin.available_bytes),
            "the space behind a LUN runs short; initiators are warned"
        );
    }
}

fn thin_space(space: &SpaceBelow, percent: u8) -> ThinSpace {
    ThinSpace {
        available_bytes: space.available_bytes,
        used_bytes: space.used_bytes,
        threshold_bytes: space.total_bytes / 100 * u64::from(percent),
    }
}

/// Returns the space of a zvol; `None` if its path does not name its dataset,
/// or all of its space is reserved.
async fn zvol_space(path: &Path) -> Result<Option<SpaceBelow>, ToolError> {
    let Some(dataset) = DatasetName::of_device(path) else { return Ok(None) };
    let asked = tokio::task::spawn_blocking(move || {
        ask_zfs(&SystemTool { limit_seconds: ZFS_SECONDS }, &dataset)
    });
    asked.await.unwrap_or(Ok(None))
}

const PROPERTIES: &str = "available,used,usedbydataset,volsize,refreservation";

fn ask_zfs(tool: &dyn Tool, dataset: &DatasetName) -> Result<Option<SpaceBelow>, ToolError> {
    let name = dataset.to_string();
    let pool = name.split('/').next().unwrap_or(&name);
    let said =
        tool.run("zfs", &["get", "-Hp", "-o", "name,property,value", PROPERTIES, &name, pool])?;
    let value = |of: &str, property: &str| -> Option<u64> {
        let line = said.lines().find(|line| line.starts_with(&format!("{of}\t{property}\t")))?;
        line.rsplit('\t').next()?.parse().ok()
    };
    let reserved = value(&name, "refreservation").zip(value(&name, "volsize"));
    if reserved.is_some_and(|(reserved, size)| reserved >= size) {
        return Ok(None);
    }
    let space = || {
        Some(SpaceBelow {
            available_bytes: value(&name, "available")?,
            total_bytes: value(pool, "available")?.saturating_add(value(pool, "used")?),
            used_bytes: value(&name, "usedbydataset")?,
        })
    };
    Ok(space())
}

#[cfg(test)]
mod tests {
    use super::*;
    use zgate_control::tool::Recorded;

    #[test]
    fn the_space_of_a_zvol_is_its_pools() {
        let command = format!("zfs get -Hp -o name,property,value {PROPERTIES} tank/vm/disk0 tank");
        let answer = |reserved: u64| {
            format!(
                "tank/vm/disk0\tavailable\t500\ntank/vm/disk0\tused\t80\n\
                 tank/vm/disk0\tusedbydataset\t70\ntank/vm/disk0\tvolsize\t1000\n\
                 tank/vm/disk0\trefreservation\t{reserved}\n\
                 tank\tavailable\t500\ntank\tused\t4500\ntank\tusedbydataset\t1\n\
                 tank\tvolsize\t-\ntank\trefreservation\t0\n"
            )
        };
        let dataset = "tank/vm/disk0".parse().unwrap();
        let tool = Recorded::default().then(&command, &answer(0)).then(&command, &answer(1000));
        let space = ask_zfs(&tool, &dataset).unwrap().unwrap();
        assert_eq!((space.available_bytes, space.total_bytes, space.used_bytes), (500, 5000, 70));
        let thin = thin_space(&space, 10);
        assert_eq!((thin.threshold_bytes, thin.is_short()), (500, true));
        assert_eq!(ask_zfs(&tool, &dataset).unwrap(), None, "nothing can run short");
    }
}
