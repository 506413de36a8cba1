//! Pools that have not answered since the start, as after a takeover while ZFS is
//! blocked: nobody knows what they have, and their clients wait.

use super::imported_pools::ImportedPools;
use super::reconcile::{LATE_POOL_PAUSE, PoolAnswers, Reconciler};
use crate::exports::limits::UNKNOWN_PATIENCE;
use crate::exports::plan::Plan;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use zgate_control::{PoolName, ToolError};

/// Pause before such a pool is asked with the full time limit.
const UNKNOWN_POOL_PAUSE: Duration = Duration::from_secs(10);

impl Reconciler {
    /// Lists the imported pools. None: it takes too long while one of these has never
    /// answered, as at a start while ZFS is blocked. All of them are late then.
    pub(super) fn list_pools(
        &self,
        pools: &BTreeSet<PoolName>,
    ) -> Result<Option<ImportedPools>, ToolError> {
        let (is_late, is_unknown) = {
            let all = self.answers();
            let is_late = |pool: &PoolName| all.get(pool).is_some_and(PoolAnswers::is_late);
            let is_known = |pool: &PoolName| all.get(pool).is_some_and(|last| last.is_known);
            (pools.iter().all(is_late), !pools.iter().all(is_known))
        };
        let discovery = if is_late { &self.hasty } else { &self.discovery };
        match ImportedPools::list(&**discovery.tool()) {
            Err(error) if error.is_late() && is_unknown => {
                tracing::warn!(%error, "the pools are not listed: clients of their datasets wait");
                Ok(None)
            }
            listed => listed.map(Some),
        }
    }

    /// Returns the last answers of a pool that is late now. With `counts`, it is late for
    /// the next searches, too.
    pub(super) fn last_answers(&self, pool: &PoolName, counts: bool) -> PoolAnswers {
        let mut all = self.answers();
        let last = all.entry(pool.clone()).or_default();
        let pause = if last.is_known { LATE_POOL_PAUSE } else { UNKNOWN_POOL_PAUSE };
        let patient_at = last.patient_at.or_else(|| Some(Instant::now() + pause));
        if counts {
            last.patient_at = patient_at;
        }
        let mut answers = last.clone();
        answers.patient_at = patient_at;
        answers
    }

    /// Returns those of these pools of which nobody knows what they have: they have never
    /// answered, or are not among the imported ones, as far as those are known.
    pub(super) fn untold(
        &self,
        pools: &BTreeSet<PoolName>,
        imported: Option<&ImportedPools>,
    ) -> BTreeSet<PoolName> {
        let answers = self.answers();
        let has_told = |pool: &PoolName| answers.get(pool).is_some_and(|last| last.is_known);
        let is_away = |pool: &PoolName| imported.is_some_and(|all| !all.has(pool));
        pools.iter().filter(|&pool| is_away(pool) || !has_told(pool)).cloned().collect()
    }

    /// Returns whether clients wait for a pool that has never answered, and have done so
    /// for long enough.
    pub(super) fn gives_up(&self, now: Instant) -> bool {
        let state = self.state();
        state.shown.incomplete && !self.has_patience(&state.plan, now)
    }

    /// Returns whether clients may wait at `now` for pools that have never answered.
    pub(super) fn has_patience(&self, plan: &Plan, now: Instant) -> bool {
        now.saturating_duration_since(self.started) < plan.away.max(UNKNOWN_PATIENCE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exports::granted::AwaitedTargets;
    use crate::exports::open::Opening;
    use crate::nfs::tcp::tests::gateway_with;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use zgate_control::volume::model::Model;
    use zgate_control::{Discovery, Tool};
    use zgate_nfs::namespace::ExportId;

    /// A pool with one dataset, of which one of the programs does not answer.
    struct Late {
        model: Model,
        program: &'static str,
        is_late: AtomicBool,
    }

    impl Tool for Late {
        fn run(&self, program: &str, arguments: &[&str]) -> Result<String, ToolError> {
            if self.is_late.load(Ordering::Relaxed) && program == self.program {
                return Err(ToolError::TimedOut { command: program.to_owned(), seconds: 30 });
            }
            self.model.run(program, arguments)
        }
    }

    #[test]
    fn logins_to_disks_of_the_api_are_put_off_until_their_pools_have_told_them() {
        let dir = tempfile::tempdir().unwrap();
        let gateway = gateway_with(dir.path(), "");
        let config = "[iscsi]\nlisten = [\"127.0.0.1:0\"]\n\
            [[volumes.parent]]\ndataset = \"tank/k8s\"\ntarget = \"iqn.2026-11.test:late\"\n\
            [[volumes.parent]]\ndataset = \"gone/k8s\"\ntarget = \"iqn.2026-11.test:gone\"\n";
        let config = zgate_config::parse(config, std::path::Path::new("x")).unwrap();
        for program in ["zfs", "zpool"] {
            let model = Model::with(&["tank", "tank/k8s"]);
            let tool = Arc::new(Late { model, program, is_late: AtomicBool::new(true) });
            let discovery = || Discovery::new(Arc::<Late>::clone(&tool));
            let follow = Reconciler::with(discovery(), discovery());
            let prepared = follow.prepare(&config).unwrap();
            let first = prepared.outcome.awaited.clone();
            follow.adopt(prepared);
            let waits = |awaited: &AwaitedTargets| {
                let target = |of: &str| format!("iqn.2026-11.test:{of}:0000000000000007");
                ["late", "gone"].map(|of| awaited.may_include(&target(of)))
            };
            let shown = || waits(&gateway.shared.iscsi.awaited_targets());
            assert_eq!(waits(&first), [true, true], "{program}");
            follow.scan(&gateway).unwrap();
            assert_eq!(shown(), [true, true], "{program}");
            tool.is_late.store(false, Ordering::Relaxed);
            follow.scan(&gateway).unwrap();
            assert_eq!(shown(), [false, true], "{program}: the other pool is not imported");
            // What is known by now is not taken for unknown.
            tool.is_late.store(true, Ordering::Relaxed);
            let _ = follow.scan(&gateway);
            assert_eq!(shown(), [false, true], "{program}");
        }
    }

    #[test]
    fn what_a_pool_has_that_was_late_from_the_start_on_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let gateway = gateway_with(dir.path(), "");
        let config = "[[export]]\ndataset = \"tank/m/*\"\npseudo = \"/m\"\n";
        let config = zgate_config::parse(config, std::path::Path::new("x")).unwrap();
        for program in ["zfs", "zpool"] {
            let model = Model::with(&["tank", "tank/m", "tank/m/a"]);
            let tool = Arc::new(Late { model, program, is_late: AtomicBool::new(true) });
            let discovery = || Discovery::new(Arc::<Late>::clone(&tool));
            let follow = Reconciler::with(discovery(), discovery());
            let prepared = follow.prepare(&config).unwrap();
            gateway.replace_exports(&prepared.outcome.exports, Opening::Scan).unwrap();
            follow.adopt(prepared);
            // The number of any dataset that the pool may have.
            let waits = || gateway.shared.nfs.v4.namespace().may_appear(ExportId(4711));
            assert!(waits(), "{program}");
            let now = Instant::now();
            assert!(!follow.gives_up(now) && follow.gives_up(now + UNKNOWN_PATIENCE));
            follow.scan(&gateway).unwrap();
            assert!(waits(), "{program}");
            tool.is_late.store(false, Ordering::Relaxed);
            follow.scan(&gateway).unwrap();
            assert!(!waits(), "{program}");
            // What is known by now is not taken for unknown.
            tool.is_late.store(true, Ordering::Relaxed);
            assert_eq!(follow.scan(&gateway).is_err(), program == "zpool");
            assert!(!waits(), "{program}");
        }
    }
}
