//! Changes of a served unit's device or file: size, name, remaining space.
//! Initiators are informed of those that concern them.

use super::unit::Unit;
use crate::iscsi::limits::{SPACE_INTERVAL, WATCH_INTERVAL};
use tokio::time::Instant;
use zgate_block::{BackingKind, SpaceBelow};
use zgate_control::DatasetName;
use zgate_scsi::ThinSpace;
use zgate_store::BlockStore;

/// Reports already made for a unit.
#[derive(Debug, Default)]
struct Said {
    orphaned: bool,
    unknown_space: bool,
}

/// Checks a unit at intervals; never returns.
pub(crate) async fn watch(unit: &Unit) {
    let mut said = Said::default();
    let (mut capacity_bytes, mut asked) = (None, Instant::now());
    loop {
        follow_size(unit).await;
        tell_orphan(unit, &mut said).await;
        // Of a unit that was just opened, or has another size, earlier answers tell nothing.
        let capacity_now = unit.volume.geometry().capacity_bytes;
        let is_new = capacity_bytes.replace(capacity_now) != Some(capacity_now);
        let now = Instant::now();
        if is_new {
            asked = follow_space(unit, &mut said, now).await;
        } else if asked + SPACE_INTERVAL <= now {
            let newer_than = now.checked_sub(SPACE_INTERVAL).unwrap_or(asked);
            asked = follow_space(unit, &mut said, newer_than).await;
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

/// Informs initiators of the space behind a thin unit, and when it runs short, by an answer to a
/// question later than `newer_than`. Returns the time of the question.
async fn follow_space(unit: &Unit, said: &mut Said, newer_than: Instant) -> Instant {
    let mut asked = Instant::now();
    if !unit.config.thin {
        return asked;
    }
    let space = match unit.volume.kind() {
        BackingKind::File => unit.volume.space_below().await.ok().flatten(),
        // Its path may not name its dataset.
        BackingKind::Zvol => match DatasetName::of_device(&unit.config.path) {
            Some(dataset) => {
                let told = unit.zvol_spaces.of(&dataset, newer_than).await;
                asked = told.asked;
                told.space.unwrap_or_else(|error| {
                    if !std::mem::replace(&mut said.unknown_space, true) {
                        tracing::warn!(
                            %error, target_name = %unit.target, lun = unit.config.number,
                            "cannot determine the space behind a LUN; initiators will not be warned"
                        );
                    }
                    None
                })
            }
            None => None,
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
    asked
}

fn thin_space(space: &SpaceBelow, percent: u8) -> ThinSpace {
    ThinSpace {
        available_bytes: space.available_bytes,
        used_bytes: space.used_bytes,
        threshold_bytes: space.total_bytes / 100 * u64::from(percent),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn space_runs_short_below_its_part_of_the_pool() {
        let thin = |available_bytes| {
            let space = SpaceBelow { available_bytes, total_bytes: 5000, used_bytes: 70 };
            thin_space(&space, 10)
        };
        assert_eq!((thin(500).threshold_bytes, thin(500).is_short()), (500, true));
        assert!(!thin(501).is_short());
    }
}
