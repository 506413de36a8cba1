//! Verdict on the gateway and its storage, with the problems it is based on.

use super::shared::Shared;
use super::status::ExportStatus;
use crate::exports::absent::AbsentKind;
use crate::net::memory_quota::MemoryLevel;
use serde::Serialize;
use utoipa::ToSchema;

/// Verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Verdict {
    /// Everything works.
    Healthy,
    /// Everything is served; something needs attention.
    Degraded,
    /// Something is not served.
    Failing,
}

/// Verdict and problems in `zgate status`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct HealthReport {
    pub(super) verdict: Verdict,
    pub(super) problems: Vec<Problem>,
}

/// A problem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(super) struct Problem {
    pub(super) severity: Verdict,
    pub(super) text: String,
}

impl HealthReport {
    /// Derives the verdict: the worst of the problems.
    fn of(mut problems: Vec<Problem>) -> Self {
        problems.sort_by_key(|problem| std::cmp::Reverse(problem.severity));
        let verdict = problems.first().map_or(Verdict::Healthy, |problem| problem.severity);
        Self { verdict, problems }
    }
}

/// Returns the verdict. `silent_cores` are those that did not answer a ping.
pub(crate) fn health(
    shared: &Shared,
    exports: &[ExportStatus],
    silent_cores: &[usize],
) -> HealthReport {
    let mut problems = Vec::new();
    let mut add = |severity, text| problems.push(Problem { severity, text });
    for core in silent_cores {
        add(Verdict::Failing, format!("core {core} does not answer; its connections hang"));
    }
    for (unusable, text) in shared.pools.problems() {
        add(if unusable { Verdict::Failing } else { Verdict::Degraded }, text);
    }
    for export in exports {
        let path = &export.pseudo_path;
        if export.condition == Some("away") {
            let reason = "its dataset is not mounted, or was released; clients are told to retry";
            add(Verdict::Failing, format!("export {path}: {reason}"));
        }
        if let Some(warning) = export.dataset.as_ref().and_then(|dataset| dataset.warning()) {
            add(Verdict::Degraded, format!("export {path}: {warning}"));
        }
    }
    for item in shared.absent.views() {
        let (kind, text) = item.problem();
        // Of an entry without a host, the export itself is served.
        let severity =
            if kind == AbsentKind::Client { Verdict::Degraded } else { Verdict::Failing };
        add(severity, text);
    }
    if let Some(report) = shared.network.rdma.report() {
        if let Some(problem) = &report.problem {
            add(Verdict::Failing, format!("RDMA: {problem}"));
        }
        for portal in report.portals.iter().filter(|portal| !portal.listening) {
            let reason = portal.problem.as_deref().unwrap_or("its device is missing");
            let text = format!("RDMA address {} is not served: {reason}", portal.address);
            add(Verdict::Failing, text);
        }
    }
    let level = shared.network.quota.level();
    if level > MemoryLevel::Plenty {
        let effect =
            if level == MemoryLevel::Full { "nothing new is accepted" } else { "clients wait" };
        let next = "raise server.memory_max, or the limit of the control group";
        add(Verdict::Degraded, format!("memory runs short: {effect}; {next}"));
    }
    let schedules = shared.schedules.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    for schedule in schedules.iter() {
        for error in &schedule.failed {
            add(Verdict::Degraded, format!("snapshots of {}: {error}", schedule.dataset));
        }
    }
    HealthReport::of(problems)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_problem_is_the_verdict_and_comes_first() {
        let problem = |severity, text: &str| Problem { severity, text: text.to_owned() };
        let problems = vec![problem(Verdict::Degraded, "slow"), problem(Verdict::Failing, "gone")];
        let report = HealthReport::of(problems);
        assert_eq!((report.verdict, report.problems[0].text.as_str()), (Verdict::Failing, "gone"));
        assert_eq!(HealthReport::of(Vec::new()).verdict, Verdict::Healthy);
        let json = serde_json::to_value(report).unwrap();
        assert_eq!(json["verdict"], "failing");
    }
}
