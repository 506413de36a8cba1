//! Changes of a served unit's device or file: size, name, remaining space.
//! Initiators are informed of those that concern them.

use super::unit::Unit;
use crate::iscsi::limits::{SPACE_INTERVAL, WATCH_INTERVAL};
use tokio::time::Instant;
use zgate_block::{BackingKind, SpaceBelow};
use zgate_control::DatasetName;
use zgate_scsi::ThinSpace;
use zgate_store::BlockStore;

/// Knowledge of the space behind a unit.
#[derive(Debug)]
struct KnownSpace {
    /// Size of the unit at the last question, in bytes; none before the first.
    capacity_bytes: Option<u64>,
    /// When it was asked for.
    asked: Instant,
    /// Set once it was reported that it cannot be told.
    is_unknown: bool,
}

/// Checks a unit at intervals; never returns.
pub(crate) async fn watch(unit: &Unit) {
    let mut is_orphaned = false;
    let device = async || {
        follow_size(unit).await;
        tell_orphan(unit, &mut is_orphaned).await;
    };
    let mut known = KnownSpace { capacity_bytes: None, asked: Instant::now(), is_unknown: false };
    let space = async || look_at_space(unit, &mut known).await;
    watch_both(device, space).await;
}

/// Looks at a device, and at the space behind it, each at intervals. Questions about the space
/// wait for each other, and hosts are told of a new size meanwhile.
async fn watch_both(device: impl AsyncFnMut(), space: impl AsyncFnMut()) {
    tokio::join!(repeat(device), repeat(space));
}

async fn repeat(mut look: impl AsyncFnMut()) {
    loop {
        look().await;
        tokio::time::sleep(WATCH_INTERVAL).await;
    }
}

/// Has ZFS asked for the space behind a unit, if it is time.
async fn look_at_space(unit: &Unit, known: &mut KnownSpace) {
    // Of a unit that was just opened, or has another size, earlier answers tell nothing.
    let capacity_now = unit.volume.geometry().capacity_bytes;
    let is_new = known.capacity_bytes.replace(capacity_now) != Some(capacity_now);
    let now = Instant::now();
    let newer_than = if is_new {
        now
    } else if known.asked + SPACE_INTERVAL <= now {
        now.checked_sub(SPACE_INTERVAL).unwrap_or(known.asked)
    } else {
        return;
    };
    known.asked = follow_space(unit, &mut known.is_unknown, newer_than).await;
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

/// Reports once that the device or file is gone. `was_orphaned`: it was at the last look.
async fn tell_orphan(unit: &Unit, was_orphaned: &mut bool) {
    let orphaned = unit.volume.is_orphaned().await;
    if orphaned && !*was_orphaned {
        tracing::error!(
            target_name = %unit.target, lun = unit.config.number, path = %unit.config.path.display(),
            "the file or device of a LUN was removed or replaced; {}",
            way_out(unit.volume.kind())
        );
    }
    *was_orphaned = orphaned;
}

/// Returns what follows from the removal of a file or device, and the next step.
fn way_out(kind: BackingKind) -> &'static str {
    match kind {
        BackingKind::File => {
            "initiators keep using the open one and lose it when the gateway stops: copy its data \
             from a host now"
        }
        BackingKind::Zvol | BackingKind::Loop | BackingKind::Device => {
            "commands fail if it is gone, also when there is one again: open that by `zgate lun \
             remove` and `zgate lun add`, or a restart"
        }
    }
}

/// Informs initiators of the space behind a thin unit, and when it runs short, by an answer to a
/// question later than `newer_than`. Returns the time of the question.
async fn follow_space(unit: &Unit, is_unknown: &mut bool, newer_than: Instant) -> Instant {
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
                    if !std::mem::replace(is_unknown, true) {
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
    use std::cell::Cell;

    /// Many units that are opened one after the other wait for a question each.
    #[tokio::test(start_paused = true)]
    async fn a_look_at_a_device_does_not_wait_for_the_space_behind_it() {
        let looks = Cell::new(0);
        let device = async || looks.set(looks.get() + 1);
        let space = async || std::future::pending::<()>().await;
        let watched = watch_both(device, space);
        let ended = tokio::time::timeout(2 * WATCH_INTERVAL + WATCH_INTERVAL / 2, watched).await;
        assert!(ended.is_err() && looks.get() == 3, "{} looks", looks.get());
    }

    /// A device that comes back is another one for the kernel, which the open one never leads to.
    #[test]
    fn the_way_out_of_a_removal_is_that_of_its_kind() {
        assert!(way_out(BackingKind::File).contains("copy its data"));
        for kind in [BackingKind::Zvol, BackingKind::Loop, BackingKind::Device] {
            assert!(way_out(kind).contains("`zgate lun remove`"), "{kind:?}");
        }
    }

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
