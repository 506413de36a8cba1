//! Execution of a schedule's plan.

use super::list::list;
use super::moment::Moment;
use super::plan::{Policy, Spared, plan};
use crate::name::SnapshotName;
use crate::tool::{Tool, ToolError};
use serde::Serialize;

/// Result of an execution.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Done {
    /// Number of snapshots before.
    pub found: usize,
    /// Snapshots created.
    pub created: Vec<SnapshotName>,
    /// Snapshots destroyed.
    pub pruned: Vec<SnapshotName>,
    /// Snapshots kept although they exceed the limit.
    pub spared: Vec<Spared>,
    /// Errors of operations that failed; the others were carried out.
    pub failed: Vec<String>,
}

/// Takes one snapshot, or with `recursive` those of a whole tree atomically in
/// one transaction group.
///
/// # Errors
/// The error of `zfs`.
pub fn create(tool: &dyn Tool, snapshot: &SnapshotName, recursive: bool) -> Result<(), ToolError> {
    let mut arguments = vec!["snapshot"];
    if recursive {
        arguments.push("-r");
    }
    arguments.push(snapshot.as_str());
    tool.run("zfs", &arguments).map(drop)
}

/// Takes the snapshots that are due and destroys those above the limits.
/// `flush` is called first; if it fails, no snapshot is taken, because the
/// snapshot would miss acknowledged writes. Holds are respected twice: by the
/// plan, and by `zfs destroy`, which is never forced.
///
/// # Errors
/// If the snapshots cannot be listed; nothing was done then.
pub fn carry_out(
    tool: &dyn Tool,
    now: Moment,
    policy: &Policy,
    flush: &mut dyn FnMut(&Policy) -> Result<(), String>,
) -> Result<Done, ToolError> {
    let existing = list(tool, Some(&policy.dataset), policy.recursive)?;
    let mut wanted = plan(now, policy, &existing);
    let mut done = Done { found: existing.len(), ..Done::default() };
    if let Some(refused) = wanted.refused.take() {
        done.failed.push(format!("{}: {refused}", policy.dataset));
        return Ok(done);
    }
    if !wanted.create.is_empty()
        && let Err(error) = flush(policy)
    {
        done.failed.push(format!("{}: no snapshot was taken: {error}", policy.dataset));
        wanted = plan(now, &Policy { autosnap: false, ..policy.clone() }, &existing);
    }
    for creation in &wanted.create {
        match create(tool, &creation.snapshot, creation.recursive) {
            Ok(()) => done.created.push(creation.snapshot.clone()),
            Err(error) => done.failed.push(error.to_string()),
        }
    }
    if done.created.len() < wanted.create.len() {
        // A snapshot that was not taken must not displace an existing one.
        wanted = plan(now, &Policy { autosnap: false, ..policy.clone() }, &existing);
    }
    for removal in &wanted.prune {
        match tool.run("zfs", &["destroy", removal.snapshot.as_str()]) {
            Ok(_) => done.pruned.push(removal.snapshot.clone()),
            // It went meanwhile: with its volume, or by hand.
            Err(error) if error.is_absent() => {}
            Err(error) => done.failed.push(error.to_string()),
        }
    }
    done.spared = wanted.spared;
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::Recorded;

    const LIST: &str = "zfs list -Hp -t snapshot -o name,guid,creation,createtxg,used,referenced,userrefs,clones -s createtxg -r p/v";
    const OLD: &str = "p/v@zgate_2026-11-21_08:00:00_hourly\t1\t1\t1\t0\t0\t0\t-\n\
                       p/v@zgate_2026-11-21_09:00:00_hourly\t2\t2\t2\t0\t0\t0\t-\n";

    fn policy() -> Policy {
        Policy {
            dataset: "p/v".parse().unwrap(),
            recursive: true,
            keep: [0, 2, 0, 0, 0, 0],
            frequent_minutes: 15,
            autosnap: true,
            autoprune: true,
        }
    }

    fn now() -> Moment {
        "2026-11-21_10:00:00".parse().unwrap()
    }

    #[test]
    fn flushed_then_taken_then_pruned() {
        let tool = Recorded::default()
            .then(LIST, OLD)
            .then("zfs snapshot -r p/v@zgate_2026-11-21_10:00:00_hourly", "")
            .then("zfs destroy p/v@zgate_2026-11-21_08:00:00_hourly", "");
        let mut flushed = 0;
        let mut flush = |_: &Policy| {
            flushed += 1;
            Ok(())
        };
        let done = carry_out(&tool, now(), &policy(), &mut flush).unwrap();
        assert!(tool.is_done());
        assert_eq!((done.created.len(), done.pruned.len(), done.failed.len()), (1, 1, 0));
        assert_eq!(flushed, 1);
    }

    #[test]
    fn what_cannot_be_taken_pushes_nothing_out() {
        let tool = Recorded::default().then(LIST, OLD).then_fail(
            "zfs snapshot -r p/v@zgate_2026-11-21_10:00:00_hourly",
            1,
            "cannot create snapshots : out of space",
        );
        let done = carry_out(&tool, now(), &policy(), &mut |_| Ok(())).unwrap();
        assert!(tool.is_done());
        assert_eq!((done.pruned.len(), done.failed.len()), (0, 1));
    }

    #[test]
    fn without_a_flush_there_is_no_snapshot() {
        let tool = Recorded::default().then(LIST, OLD);
        let done = carry_out(&tool, now(), &policy(), &mut |_| Err("lun 0: I/O error".into()));
        let done = done.unwrap();
        assert!(tool.is_done() && done.created.is_empty() && done.pruned.is_empty());
        assert!(done.failed[0].contains("lun 0"));
    }

    #[test]
    fn a_wrong_clock_is_reported_and_does_nothing() {
        let tool = Recorded::default().then(LIST, OLD);
        let mut policy = policy();
        policy.keep[1] = 1;
        let wrong = "1970-01-01_00:00:20".parse().unwrap();
        let done = carry_out(&tool, wrong, &policy, &mut |_| Ok(())).unwrap();
        assert!(tool.is_done() && done.created.is_empty() && done.pruned.is_empty());
        assert!(done.failed[0].contains("clock"), "{:?}", done.failed);
    }

    #[test]
    fn a_hold_that_came_meanwhile_is_reported() {
        let mut policy = policy();
        policy.keep[1] = 1;
        policy.autosnap = false;
        let tool = Recorded::default().then(LIST, OLD).then_fail(
            "zfs destroy p/v@zgate_2026-11-21_08:00:00_hourly",
            1,
            "cannot destroy snapshot: it's being held",
        );
        let done = carry_out(&tool, now(), &policy, &mut |_| Ok(())).unwrap();
        assert!(done.failed[0].contains("held"));
    }

    #[test]
    fn a_snapshot_that_went_meanwhile_is_no_failure() {
        let mut policy = policy();
        policy.keep[1] = 1;
        policy.autosnap = false;
        for said in [
            "could not find any snapshots to destroy; check snapshot names.",
            "cannot open 'p/v': dataset does not exist",
        ] {
            let destroy = "zfs destroy p/v@zgate_2026-11-21_08:00:00_hourly";
            let tool = Recorded::default().then(LIST, OLD).then_fail(destroy, 1, said);
            let done = carry_out(&tool, now(), &policy, &mut |_| Ok(())).unwrap();
            assert!(tool.is_done());
            assert!(done.failed.is_empty() && done.pruned.is_empty(), "{:?}", done.failed);
        }
    }
}
