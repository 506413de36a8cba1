//! What a schedule does now. Pure: the clock is an argument.
//!
//! * A kind is due when the newest snapshot of that kind was taken in another
//!   period than this one. *Newest* goes by transaction group, so a clock that
//!   jumps back costs one extra snapshot and no gap; after a pause of many
//!   periods one snapshot is taken, not one for each.
//! * Of each kind and dataset as many are kept as the policy says, again by
//!   transaction group. What is held or cloned stays and counts.
//! * What we did not name is not looked at.

use super::list::Snapshot;
use super::moment::Moment;
use super::naming::{Kind, OurName};
use crate::name::{DatasetName, SnapshotName};
use serde::Serialize;
use std::collections::BTreeMap;

/// How many of each kind to keep of a dataset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Of what.
    pub dataset: DatasetName,
    /// And of everything below it, each time in one transaction group.
    pub recursive: bool,
    /// How many to keep, in the order of [`Kind::ALL`]; 0: none are taken.
    pub keep: [u32; 6],
    /// Minutes between two of [`Kind::Frequently`].
    pub frequent_minutes: u32,
    /// Take snapshots.
    pub autosnap: bool,
    /// Destroy those above the numbers.
    pub autoprune: bool,
}

impl Policy {
    /// How many of a kind to keep.
    #[must_use]
    pub fn kept(&self, kind: Kind) -> u32 {
        self.keep[kind as usize]
    }

    /// When something is due next, if nothing is missing now.
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
    /// Of everything below as well, at the same moment.
    pub recursive: bool,
    /// What for.
    pub kind: Kind,
}

/// A snapshot to destroy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Removal {
    /// Its name.
    pub snapshot: SnapshotName,
    /// What it was taken for.
    pub kind: Kind,
    /// Space that only it holds, in bytes.
    pub used_bytes: u64,
}

/// Why a snapshot stays that would be destroyed otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SpareReason {
    /// Somebody holds it (`zfs holds`).
    Held,
    /// Something was cloned from it.
    Cloned,
}

/// A snapshot that stays for a reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Spared {
    /// Its name.
    pub snapshot: SnapshotName,
    /// Why.
    pub reason: SpareReason,
}

/// What to do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// To take, longest period first.
    pub create: Vec<Creation>,
    /// To destroy once the others are taken, oldest first for each dataset.
    pub prune: Vec<Removal>,
    /// To leave.
    pub spared: Vec<Spared>,
}

/// What to do at `now`, given the snapshots of the policy's datasets. Names in
/// `existing` that are not ours, or of datasets the policy is not about, have
/// no effect.
#[must_use]
pub fn plan(now: Moment, policy: &Policy, existing: &[Snapshot]) -> Plan {
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
    // After a clock was set back the name may be taken, here or below: the
    // next second of the period serves as well.
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
