//! Warnings derived from samples: each is reported once when it is raised and
//! once when it is cleared.

use super::{PoolHealth, PoolState};
use crate::pools::{Pool, VdevClass};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// Capacity thresholds of the warnings, in percent.
pub const CAPACITY_PERCENT: [u8; 3] = [80, 90, 95];
/// Distance below a threshold at which the warning is cleared, in percent of
/// the pool.
pub const HYSTERESIS_PERCENT: f64 = 2.0;
/// Capacity threshold of special vdevs, in percent. Above it small blocks go to
/// the ordinary vdevs (`zfs_special_class_metadata_reserve_pct` keeps 25 % for
/// metadata).
pub const SPECIAL_PERCENT: u8 = 75;

/// Kind of a warning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum WarningKind {
    /// I/O of the pool is suspended.
    Suspended,
    /// The pool is not ONLINE.
    State,
    /// Blocks are damaged beyond repair.
    DataErrors,
    /// Devices had errors.
    DeviceErrors,
    /// The pool fills up.
    Capacity,
    /// The special vdevs fill up.
    Special,
}

/// A warning about a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Warning {
    /// Kind of the warning.
    pub kind: WarningKind,
    /// Severity: a percentage or a count.
    pub level: u64,
    /// Message for people.
    pub text: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Change caused by a sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A warning was raised, or became more severe.
    Raised(Warning),
    /// A warning was cleared.
    Cleared(WarningKind),
}

/// Active warnings of one pool.
#[derive(Debug, Clone, Default)]
pub struct Watch {
    active: BTreeMap<WarningKind, Warning>,
}

/// Returns the used share of a pool, in percent.
#[must_use]
pub fn used_percent(pool: &Pool) -> f64 {
    percent(pool.allocated_bytes, pool.size_bytes)
}

/// Returns the used share of all vdevs of a class together, in percent; none if
/// the pool has none.
#[must_use]
pub fn class_percent(pool: &Pool, class: VdevClass) -> Option<f64> {
    let sizes = pool.of_class(class).map(|vdev| (vdev.allocated_bytes, vdev.size_bytes));
    let (taken, size) = sizes.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    (size > 0).then(|| percent(taken, size))
}

fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}

/// Returns the highest threshold that is crossed: upwards at once, downwards
/// only at a distance, so that a pool near a threshold does not warn
/// repeatedly.
#[must_use]
pub fn crossed(used_percent: f64, thresholds: &[u8], before: u64) -> u64 {
    let holds = |threshold: &u8| {
        let limit = f64::from(*threshold);
        let slack = if u64::from(*threshold) <= before { HYSTERESIS_PERCENT } else { 0.0 };
        used_percent >= limit - slack
    };
    thresholds.iter().copied().filter(|threshold| holds(threshold)).max().map_or(0, u64::from)
}

impl Watch {
    /// Lists the active warnings.
    pub fn active(&self) -> impl Iterator<Item = &Warning> {
        self.active.values()
    }

    /// Returns the capacity threshold that is crossed, in percent; 0 for none.
    #[must_use]
    pub fn capacity_level(&self) -> u64 {
        self.level(WarningKind::Capacity)
    }

    fn level(&self, kind: WarningKind) -> u64 {
        self.active.get(&kind).map_or(0, |warning| warning.level)
    }

    /// Processes the state that the kernel reports, which is known even when
    /// `zpool` hangs.
    pub fn observe_state(&mut self, state: PoolState) -> Vec<Change> {
        let suspended = u64::from(state == PoolState::Suspended);
        let text = || {
            "I/O is suspended after failures; repair the devices, then run `zpool clear`".to_owned()
        };
        self.set(WarningKind::Suspended, suspended, text).into_iter().collect()
    }

    /// Processes a sample.
    pub fn observe(&mut self, health: &PoolHealth) -> Vec<Change> {
        let status = &health.status;
        let mut changes = self.observe_state(status.state);
        let level = match status.state {
            PoolState::Online | PoolState::Suspended => 0,
            state => state.code() as u64,
        };
        let failed: Vec<_> =
            status.failed_devices().map(|vdev| format!("{} {}", vdev.name, vdev.state)).collect();
        let text = || format!("the pool is {}: {}", status.state, failed.join(", "));
        changes.extend(self.set(WarningKind::State, level, text));
        let text = || format!("{} blocks are damaged beyond repair", status.data_errors);
        changes.extend(self.set(WarningKind::DataErrors, status.data_errors.min(1), text));
        let with_errors: Vec<_> =
            status.devices_with_errors().map(|vdev| vdev.name.as_str()).collect();
        let text = || format!("errors were counted on {}", with_errors.join(", "));
        changes.extend(self.set(WarningKind::DeviceErrors, with_errors.len() as u64, text));
        let percent = used_percent(&health.pool);
        let level = crossed(percent, &CAPACITY_PERCENT, self.level(WarningKind::Capacity));
        let text = || format!("the pool is {percent:.0} % full");
        changes.extend(self.set(WarningKind::Capacity, level, text));
        let percent = class_percent(&health.pool, VdevClass::Special).unwrap_or(0.0);
        let level = crossed(percent, &[SPECIAL_PERCENT], self.level(WarningKind::Special));
        let text = || format!("its special vdevs are {percent:.0} % full");
        changes.extend(self.set(WarningKind::Special, level, text));
        changes
    }

    /// Updates the text; only a change of level is reported.
    fn set(
        &mut self,
        kind: WarningKind,
        level: u64,
        text: impl FnOnce() -> String,
    ) -> Option<Change> {
        let before = self.level(kind);
        if level == 0 {
            return self.active.remove(&kind).map(|_| Change::Cleared(kind));
        }
        let warning = Warning { kind, level, text: text() };
        self.active.insert(kind, warning.clone());
        (level > before).then_some(Change::Raised(warning))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::{Device, PoolStatus};
    use crate::pools;
    use crate::properties::OutputForm::Columns;

    fn health(percent: u64) -> PoolHealth {
        let (taken, free) = (percent * 10, 1000 - percent * 10);
        let list = format!(
            "tank\t1\tONLINE\t1000\t{taken}\t{free}\t{percent}\t0\t1.00\toff\toff\t12\t-\n"
        );
        PoolHealth {
            status: PoolStatus {
                name: "tank".to_owned(),
                state: PoolState::Online,
                problem: String::new(),
                action: String::new(),
                scan: None,
                data_errors: 0,
                devices: Vec::new(),
            },
            pool: pools::parse(Columns, &list).unwrap().remove(0),
            freeing_bytes: 0,
            leaked_bytes: 0,
            latencies: Vec::new(),
        }
    }

    #[test]
    fn a_threshold_warns_once_and_goes_with_some_distance() {
        let mut watch = Watch::default();
        let mut told = |percent| {
            let changes = watch.observe(&health(percent));
            (changes.len(), watch.capacity_level())
        };
        assert_eq!(told(79), (0, 0));
        assert_eq!(told(80), (1, 80));
        assert_eq!(told(79), (0, 80), "within the distance");
        assert_eq!(told(80), (0, 80), "not again");
        assert_eq!(told(96), (1, 95), "straight to the highest");
        assert_eq!(told(94), (0, 95));
        assert_eq!(told(92), (0, 90), "milder is no news");
        assert_eq!(told(94), (0, 90));
        assert_eq!(told(95), (1, 95));
        assert_eq!(told(50), (1, 0), "gone");
    }

    #[test]
    fn states_and_errors_come_and_go() {
        let mut watch = Watch::default();
        let mut sick = health(10);
        sick.status.state = PoolState::Degraded;
        sick.status.data_errors = 3;
        sick.status.devices.push(Device {
            name: "sda".to_owned(),
            state: PoolState::Faulted,
            class: VdevClass::Data,
            depth: 1,
            is_group: false,
            read_errors: 1,
            write_errors: 0,
            checksum_errors: 0,
        });
        let raised = watch.observe(&sick);
        assert_eq!(raised.len(), 3, "{raised:?}");
        assert!(watch.active().any(|warning| warning.text.contains("sda FAULTED")));
        assert!(watch.observe(&sick).is_empty());
        assert_eq!(watch.observe_state(PoolState::Suspended).len(), 1);
        assert_eq!(watch.observe(&health(10)).len(), 4);
        assert_eq!(watch.active().count(), 0);
    }
}
