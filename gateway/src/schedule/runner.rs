//! Times and results of schedules. The clock is an argument.

use serde::Serialize;
use std::time::Duration;
use utoipa::ToSchema;
use zgate_control::Tool;
use zgate_control::snapshot::{Done, Moment, Policy, carry_out};

/// Seconds between a failure and the next attempt.
const RETRY_SECONDS: i64 = 60;

/// State of one schedule for display.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = SnapshotSchedule)]
pub(crate) struct View {
    /// Dataset of the schedule.
    pub dataset: String,
    /// Set if it includes everything below.
    pub recursive: bool,
    /// Time of the last run, in UTC.
    pub looked: String,
    /// Time of the next run, in UTC.
    pub next: String,
    /// Snapshots taken by the last run.
    pub created: Vec<String>,
    /// Number of snapshots destroyed by the last run.
    pub pruned: usize,
    /// Errors of the last run.
    pub failed: Vec<String>,
    #[serde(flatten)]
    pub figures: Figures,
}

/// Results of a schedule since the gateway started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = SnapshotFigures)]
pub(crate) struct Figures {
    /// Number of snapshots at the beginning of the last run.
    pub snapshots: usize,
    /// Number of snapshots taken; one of a whole tree counts once.
    pub taken_total: u64,
    /// Number of snapshots destroyed.
    pub pruned_total: u64,
    /// Number of runs with an error.
    pub failures_total: u64,
    /// Last run without an error, in seconds since 1970; 0: none.
    pub last_success_unix_seconds: i64,
}

impl Figures {
    fn take(&mut self, now: Moment, done: &Done) {
        self.taken_total += done.created.len() as u64;
        self.pruned_total += done.pruned.len() as u64;
        if done.failed.is_empty() {
            self.snapshots = done.found;
            self.last_success_unix_seconds = now.0;
        } else {
            self.failures_total += 1;
        }
    }
}

#[derive(Debug)]
struct State {
    policy: Policy,
    looked: Option<Moment>,
    next: Option<Moment>,
    done: Done,
    figures: Figures,
}

/// All schedules.
#[derive(Debug)]
pub(super) struct Runner {
    states: Vec<State>,
    last: Moment,
}

impl Runner {
    pub(super) fn new(policies: Vec<Policy>) -> Self {
        let mut runner = Self { states: Vec::new(), last: Moment(i64::MIN) };
        runner.replace(policies);
        runner
    }

    /// Replaces the policies. Unchanged schedules keep their times; others run
    /// next.
    pub(super) fn replace(&mut self, policies: Vec<Policy>) {
        let mut before = std::mem::take(&mut self.states);
        self.states = policies
            .into_iter()
            .map(|policy| {
                let same = before.iter().position(|state| state.policy == policy);
                same.map(|index| before.swap_remove(index)).unwrap_or(State {
                    policy,
                    looked: None,
                    next: None,
                    done: Done::default(),
                    figures: Figures::default(),
                })
            })
            .collect();
    }

    /// Runs the schedules that are due.
    pub(super) fn step(
        &mut self,
        tool: &dyn Tool,
        now: Moment,
        flush: &mut dyn FnMut(&Policy) -> Result<(), String>,
    ) {
        // The clock was set back: times computed before are invalid.
        let back = now < self.last;
        self.last = now;
        for state in &mut self.states {
            if back || state.next.is_none_or(|next| next <= now) {
                state.look(tool, now, flush);
            }
        }
    }

    /// Returns the time until the next run.
    pub(super) fn pause(&self, now: Moment) -> Duration {
        let next = self.states.iter().filter_map(|state| state.next).min();
        let seconds = next.map_or(i64::MAX, |next| next.0.saturating_sub(now.0));
        Duration::from_secs(seconds.clamp(1, 86_400).unsigned_abs())
    }

    pub(super) fn views(&self) -> Vec<View> {
        let text = |moment: Option<Moment>| moment.map(|m| m.to_string()).unwrap_or_default();
        self.states
            .iter()
            .map(|state| View {
                dataset: state.policy.dataset.to_string(),
                recursive: state.policy.recursive,
                looked: text(state.looked),
                next: text(state.next),
                created: state.done.created.iter().map(ToString::to_string).collect(),
                pruned: state.done.pruned.len(),
                failed: state.done.failed.clone(),
                figures: state.figures,
            })
            .collect()
    }
}

impl State {
    fn look(
        &mut self,
        tool: &dyn Tool,
        now: Moment,
        flush: &mut dyn FnMut(&Policy) -> Result<(), String>,
    ) {
        let before = std::mem::take(&mut self.done.failed);
        self.done = carry_out(tool, now, &self.policy, flush)
            .unwrap_or_else(|error| Done { failed: vec![error.to_string()], ..Done::default() });
        self.figures.take(now, &self.done);
        let retry = Moment(now.0 + RETRY_SECONDS);
        let regular = self.policy.next_due(now).unwrap_or(Moment(now.0 + 3600));
        self.looked = Some(now);
        self.next = Some(if self.done.failed.is_empty() { regular } else { regular.min(retry) });
        let dataset = self.policy.dataset.as_str();
        for snapshot in &self.done.created {
            tracing::info!(%snapshot, "snapshot taken");
        }
        if !self.done.pruned.is_empty() {
            tracing::info!(dataset, count = self.done.pruned.len(), "old snapshots destroyed");
        }
        // Logged once, not with every attempt.
        for error in self.done.failed.iter().filter(|error| !before.contains(error)) {
            tracing::warn!(dataset, %error, "a snapshot schedule failed; it is retried in a minute");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zgate_control::tool::Recorded;

    const LIST: &str = "zfs list -Hp -t snapshot -o name,guid,creation,createtxg,used,referenced,userrefs,clones -s createtxg -d 1 p/v";

    fn policy() -> Policy {
        Policy {
            dataset: "p/v".parse().unwrap(),
            recursive: false,
            keep: [0, 2, 0, 0, 0, 0],
            frequent_minutes: 15,
            autosnap: true,
            autoprune: true,
        }
    }

    fn at(text: &str) -> Moment {
        text.parse().unwrap()
    }

    #[test]
    fn zfs_is_asked_only_when_something_is_due() {
        let line = |name: &str, txg: u32| format!("p/v@{name}\t1\t1\t{txg}\t0\t0\t0\t-\n");
        let first = line("zgate_2026-11-21_10:20:00_hourly", 1);
        let tool = Recorded::default()
            .then(LIST, "")
            .then("zfs snapshot p/v@zgate_2026-11-21_10:20:00_hourly", "")
            .then(LIST, &first)
            .then("zfs snapshot p/v@zgate_2026-11-21_11:00:03_hourly", "");
        let mut runner = Runner::new(vec![policy()]);
        let mut flush = |_: &Policy| Ok(());
        for time in ["10:20:00", "10:20:05", "10:59:59", "11:00:03", "11:00:08"] {
            runner.step(&tool, at(&format!("2026-11-21_{time}")), &mut flush);
        }
        assert!(tool.is_done());
        assert_eq!(runner.views()[0].next, "2026-11-21_12:00:00");
        assert_eq!(runner.pause(at("2026-11-21_11:59:58")).as_secs(), 2);
        runner.replace(vec![policy()]);
        assert_eq!(runner.views()[0].next, "2026-11-21_12:00:00", "a reload changes nothing");
    }

    #[test]
    fn a_failure_is_tried_again_and_a_clock_set_back_is_noticed() {
        let tool = Recorded::default()
            .then_fail(LIST, 1, "pool I/O is currently suspended")
            .then(LIST, "p/v@zgate_2026-11-21_10:00:00_hourly\t1\t1\t1\t0\t0\t0\t-\n")
            .then(LIST, "p/v@zgate_2026-11-21_10:00:00_hourly\t1\t1\t1\t0\t0\t0\t-\n")
            .then("zfs snapshot p/v@zgate_2026-11-21_07:00:00_hourly", "");
        let mut runner = Runner::new(vec![policy()]);
        let mut flush = |_: &Policy| Ok(());
        runner.step(&tool, at("2026-11-21_10:10:00"), &mut flush);
        assert!(runner.views()[0].failed[0].contains("suspended"));
        runner.step(&tool, at("2026-11-21_10:10:59"), &mut flush);
        runner.step(&tool, at("2026-11-21_10:11:00"), &mut flush);
        assert!(runner.views()[0].failed.is_empty());
        runner.step(&tool, at("2026-11-21_07:00:00"), &mut flush);
        assert!(tool.is_done());
        assert_eq!(runner.views()[0].created.len(), 1);
        let figures = runner.views()[0].figures;
        assert_eq!((figures.taken_total, figures.pruned_total, figures.failures_total), (1, 0, 1));
        assert_eq!(figures.snapshots, 1);
        assert_eq!(figures.last_success_unix_seconds, at("2026-11-21_07:00:00").0);
    }
}
