//! `zgate doctor`: looks at a machine and says what is wrong, why that matters
//! and which command mends it.
//!
//! [`gather`] collects facts and judges nothing; the checks are pure functions
//! over [`facts`], listed in the tables of [`server`], [`client`], [`rdma`] and
//! [`path`].
//! docs/DOCTOR.md names them all, which a test watches over.

pub(crate) mod client;
pub(crate) mod facts;
pub(crate) mod gather;
pub(crate) mod path;
pub(crate) mod rdma;
pub(crate) mod report;
pub(crate) mod server;

use clap::ValueEnum;
use serde::Serialize;

/// What is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Group {
    /// The machine the gateway runs on
    Server,
    /// A machine that mounts exports
    Client,
    /// RDMA devices and what limits their speed
    Rdma,
    /// The network between them
    Path,
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    /// As it should be.
    Ok,
    /// It works, but not as well or as safely as it could.
    Warning,
    /// It does not work, or data is in danger.
    Error,
}

/// What a check found.
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

/// A finding before it is known whose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) level: Level,
    pub(crate) what: String,
    pub(crate) why: String,
    pub(crate) fix: String,
}

impl Verdict {
    /// All is well.
    pub(crate) fn ok(what: impl Into<String>) -> Self {
        Self { level: Level::Ok, what: what.into(), why: String::new(), fix: String::new() }
    }

    /// It works, but.
    pub(crate) fn warning(
        what: impl Into<String>,
        why: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self { level: Level::Warning, what: what.into(), why: why.into(), fix: fix.into() }
    }

    /// It does not work.
    pub(crate) fn error(
        what: impl Into<String>,
        why: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self { level: Level::Error, what: what.into(), why: why.into(), fix: fix.into() }
    }
}

/// A check over facts `F`. It says nothing about what does not apply.
pub(crate) struct Check<F: 'static> {
    /// Its name in reports, JSON and docs/DOCTOR.md.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_check_is_documented() {
        let docs = include_str!("../../../docs/DOCTOR.md");
        let server = server::CHECKS.iter().map(|check| check.name);
        let client = client::CHECKS.iter().map(|check| check.name);
        let path = path::CHECKS.iter().map(|check| check.name);
        let rdma = rdma::CHECKS.iter().map(|check| check.name);
        for name in server.chain(client).chain(path).chain(rdma) {
            assert!(docs.contains(&format!("| `{name}` |")), "{name} is missing");
        }
    }
}
