//! Plan of a schedule at one moment. Pure: the clock is an argument.
//!
//! * A kind is due when the newest snapshot of that kind was taken in an
//!   earlier period. *Newest* goes by transaction group, so a clock that jumps
//!   back costs one extra snapshot and leaves no gap; after a pause of many
//!   periods one snapshot is taken, not one for each.
//! * For each kind and dataset the policy's number of snapshots is kept, again
//!   by transaction group. Held or cloned snapshots stay and count.
//! * Snapshots with other names are ignored.
//! * Before `EARLIEST_CLOCK` nothing is due, and nothing is destroyed.

use super::list::Snapshot;
use super::moment::Moment;
use super::naming::{Kind, OurName};
use crate::name::{DatasetName, SnapshotName};
use serde::Serialize;
use std::collections::BTreeMap;

/// Time before which no clock is right: this program is younger. A machine without a
/// battery starts in 1970 or at the date of its firmware, until it has asked the network.
/// A snapshot of each kind would be due then, and again when the clock is set; both push
/// out older ones, which for `yearly` are years of restore points.
const EARLIEST_CLOCK: Moment = Moment(1_767_225_600);

/// Number of snapshots of each kind to keep of a dataset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Dataset the policy applies to.
    pub dataset: DatasetName,
    /// Includes everything below it, each time in one transaction group.
    pub recursive: bool,
    /// Number to keep of each kind, in the order of [`Kind::ALL`]; 0: none are
    /// taken.
    pub keep: [u32; 6],
    /// Minutes between two snapshots of [`Kind::Frequently`].
    pub frequent_minutes: u32,
    /// Takes snapshots.
    pub autosnap: bool,
    /// Destroys snapshots above the numbers.
    pub autoprune: bool,
}

impl Policy {
    /// Returns the number to keep of a kind.
    #[must_use]
    pub fn kept(&self, kind: Kind) -> u32 {
        self.keep[kind as usize]
    }

    /// Returns the time at which the next snapshot is due, provided that none
    /// is due now.
    #[must_use]
    pub fn next_due(&self, now: Moment) -> Option<Moment> {
        let wanted = Kind::ALL.into_iter().filter(|kind| self.kept(*kind) > 0);
        wanted.map(|kind| kind.period(now, self.frequent_minutes).1).min()
    }
}

/// A snapshot to take.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Creation {
    /// Its name.
    pub snapshot: SnapshotName,
    /// Includes everything below, at the same moment.
    pub recursive: bool,
    /// Kind of the snapshot.
    pub kind: Kind,
}

/// A snapshot to destroy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Removal {
    /// Its name.
    pub snapshot: SnapshotName,
    /// Kind of the snapshot.
    pub kind: Kind,
    /// Space held only by this snapshot, in bytes.
    pub used_bytes: u64,
}

/// Reason for which a snapshot is kept although it exceeds the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SpareReason {
    /// It is held (`zfs holds`).
    Held,
    /// It has clones.
    Cloned,
}

/// A snapshot that is kept for a reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Spared {
    /// Its name.
    pub snapshot: SnapshotName,
    /// Reason.
    pub reason: SpareReason,
}

/// Operations that are due.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// Snapshots to take, longest period first.
    pub create: Vec<Creation>,
    /// Snapshots to destroy after those are taken, oldest first for each
    /// dataset.
    pub prune: Vec<Removal>,
    /// Snapshots kept although they exceed the number.
    pub spared: Vec<Spared>,
    /// Reason for which nothing is done, and the next step.
    pub refused: Option<String>,
}

/// Returns the operations that are due at `now`, given the snapshots of the
/// policy's datasets. Names in `existing` that are not of a schedule, or of
/// other datasets, have no effect.
#[must_use]
pub fn plan(now: Moment, policy: &Policy, existing: &[Snapshot]) -> Plan {
    if now < EARLIEST_CLOCK {
        let refused = format!(
            "the clock of this machine is wrong, it is before {EARLIEST_CLOCK}: no snapshot is \
             taken or destroyed; set it (`timedatectl`)"
        );
        return Plan { refused: Some(refused), ..Plan::default() };
    }
    let mut ours: BTreeMap<(DatasetName, Kind), Vec<(&Snapshot, OurName)>> = BTreeMap::new();
    for snapshot in existing {
        let dataset = snapshot.name.dataset();
        let about =
            dataset == policy.dataset || policy.recursive && dataset.is_within(&policy.dataset);
        if let (true, Some(name)) = (about, OurName::parse(snapshot.name.name())) {
            ours.entry((dataset, name.kind)).or_default().push((snapshot, name));
        }
    }
    for group in ours.values_mut() {
        group.sort_by_key(|(snapshot, _)| snapshot.createtxg);
    }
    let mut plan = Plan::default();
    for kind in Kind::ALL.into_iter().rev() {
        let newest = ours.get(&(policy.dataset.clone(), kind)).and_then(|group| group.last());
        plan.create.extend(due(now, policy, kind, newest.map(|(_, name)| name.taken), existing));
    }
    if policy.autoprune {
        for ((_, kind), group) in &ours {
            let coming = plan.create.iter().any(|creation| creation.kind == *kind);
            prune(policy, *kind, group, usize::from(coming), &mut plan.prune, &mut plan.spared);
        }
    }
    plan
}

fn due(
    now: Moment,
    policy: &Policy,
    kind: Kind,
    newest: Option<Moment>,
    existing: &[Snapshot],
) -> Option<Creation> {
    let start = |moment| kind.period(moment, policy.frequent_minutes).0;
    if !policy.autosnap
        || policy.kept(kind) == 0
        || newest.is_some_and(|taken| start(taken) == start(now))
    {
        return None;
    }
    // After a clock was set back the name may exist already, here or below: use
    // the next free second of the period.
    let free = |name: &String| existing.iter().all(|known| known.name.name() != name);
    let name = (0..60)
        .map(|later| Moment(now.0 + later))
        .take_while(|taken| start(*taken) == start(now))
        .map(|taken| OurName { taken, kind }.to_string())
        .find(free)?;
    let snapshot = policy.dataset.snapshot(&name).ok()?;
    Some(Creation { snapshot, recursive: policy.recursive, kind })
}

fn prune(
    policy: &Policy,
    kind: Kind,
    group: &[(&Snapshot, OurName)],
    coming: usize,
    removals: &mut Vec<Removal>,
    spared: &mut Vec<Spared>,
) {
    let kept = policy.kept(kind) as usize;
    let excess = (group.len() + coming).saturating_sub(kept).min(group.len());
    for (snapshot, _) in &group[..excess] {
        let reason = if snapshot.holds > 0 {
            Some(SpareReason::Held)
        } else if !snapshot.clones.is_empty() {
            Some(SpareReason::Cloned)
        } else {
            None
        };
        let name = snapshot.name.clone();
        match reason {
            Some(reason) => spared.push(Spared { snapshot: name, reason }),
            None => {
                removals.push(Removal { snapshot: name, kind, used_bytes: snapshot.used_bytes });
            }
        }
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
