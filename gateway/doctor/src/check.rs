//! Checks and their findings.

use clap::ValueEnum;
use serde::Serialize;

/// Group of checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Group {
    /// The machine of the gateway
    Server,
    /// A machine that mounts exports
    Client,
    /// RDMA devices and what limits their speed
    Rdma,
    /// The network between them
    Path,
    /// A machine of a pair: would a takeover work now?
    Pair,
}

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    /// No fault.
    Ok,
    /// Works, but not as well or as safely as it could.
    Warning,
    /// Does not work, or data is in danger.
    Error,
}

/// Finding of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    pub(crate) group: Group,
    pub(crate) check: &'static str,
    pub(crate) level: Level,
    pub(crate) what: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) why: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) fix: String,
}

/// A finding without the name of its check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) level: Level,
    pub(crate) what: String,
    pub(crate) why: String,
    pub(crate) fix: String,
}

impl Verdict {
    /// Reports that there is no fault.
    pub(crate) fn ok(what: impl Into<String>) -> Self {
        Self { level: Level::Ok, what: what.into(), why: String::new(), fix: String::new() }
    }

    /// Reports no fault, but a choice that has a price.
    pub(crate) fn note(
        what: impl Into<String>,
        why: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self { level: Level::Ok, what: what.into(), why: why.into(), fix: fix.into() }
    }

    /// Reports something that works with restrictions.
    pub(crate) fn warning(
        what: impl Into<String>,
        why: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self { level: Level::Warning, what: what.into(), why: why.into(), fix: fix.into() }
    }

    /// Reports something that does not work.
    pub(crate) fn error(
        what: impl Into<String>,
        why: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self { level: Level::Error, what: what.into(), why: why.into(), fix: fix.into() }
    }
}

/// A check over facts `F`. It returns nothing if it does not apply.
pub(crate) struct Check<F: 'static> {
    /// Name in reports, JSON and docs/DOCTOR.md.
    pub(crate) name: &'static str,
    pub(crate) run: fn(&F) -> Vec<Verdict>,
}

/// Runs a table of checks.
pub(crate) fn examine<F>(group: Group, checks: &[Check<F>], facts: &F) -> Vec<Finding> {
    let run = |check: &Check<F>| {
        let name = check.name;
        (check.run)(facts).into_iter().map(move |verdict| Finding {
            group,
            check: name,
            level: verdict.level,
            what: verdict.what,
            why: verdict.why,
            fix: verdict.fix,
        })
    };
    checks.iter().flat_map(run).collect()
}
