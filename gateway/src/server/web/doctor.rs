//! Findings of `zgate doctor` for the page and the API. They come from a process
//! of its own with a time limit: what hangs there delays nothing here. It runs
//! when somebody looks and the last findings are old.

use super::latest::{Collected, Latest};
use crate::server::limits::{DOCTOR_AGE, DOCTOR_SECONDS, MAX_API_ROWS};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use utoipa::ToSchema;
use zgate_control::{SystemTool, Tool, ToolError};

/// A finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(super) struct Finding {
    /// Side that was examined: `server` or `rdma`.
    pub(super) group: String,
    /// Name of the check, as in docs/DOCTOR.md.
    pub(super) check: String,
    /// `ok`, `warning` or `error`.
    pub(super) level: String,
    /// The state that was found.
    pub(super) what: String,
    /// Its consequence; empty if it is in order and needs no note.
    #[serde(default)]
    pub(super) why: String,
    /// Commands or steps against it.
    #[serde(default)]
    pub(super) fix: String,
}

/// Result of an examination.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Examination {
    pub(super) errors: usize,
    pub(super) warnings: usize,
    /// Checks, the worst first.
    #[serde(rename = "findings")]
    pub(super) items: Vec<Finding>,
    /// Reason for which there is nothing, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) problem: Option<String>,
}

/// The examination of this machine.
#[derive(Default)]
pub(crate) struct Doctor(OnceLock<Latest<Examination>>);

impl Doctor {
    /// Sets the configuration and the admin socket of this gateway: from now on
    /// there are findings.
    ///
    /// # Errors
    /// If the thread that waits for them cannot be started.
    pub(crate) fn open(&self, config: &Path, socket: &Path) -> io::Result<()> {
        let program = std::env::current_exe()?.display().to_string();
        let text = |path: &Path| path.display().to_string();
        let (config, socket) = (text(config), text(socket));
        let tool = SystemTool { limit_seconds: DOCTOR_SECONDS };
        let arguments = move |run: &dyn Fn(&[&str]) -> Examination| {
            let groups = ["--group", "server", "--group", "rdma", "--json"];
            let places = ["doctor", "--config", &config, "--socket", &socket];
            run(&[&places[..], &groups].concat())
        };
        let collect = move || arguments(&|all| examination(tool.run(&program, all)));
        // Set once, at the start.
        let _ = self.0.set(Latest::start("zgate-doctor", collect)?);
        Ok(())
    }

    /// Returns the last findings, and has newer ones made if they are old. Never
    /// waits.
    pub(super) fn last(&self) -> Option<Arc<Collected<Examination>>> {
        self.0.get()?.at_hand(DOCTOR_AGE)
    }
}

/// Reads the output of the command, whose status says what it has found.
fn examination(outcome: Result<String, ToolError>) -> Examination {
    let text = match outcome {
        Ok(text) => text,
        Err(ToolError::Failed { status: Some(1 | 2), said, .. }) => said,
        Err(error) => {
            return Examination { problem: Some(error.to_string()), ..Default::default() };
        }
    };
    // Lines of a log may come before.
    let begin = text.find('{').unwrap_or(0);
    match serde_json::from_str::<Examination>(&text[begin..]) {
        Ok(mut found) => {
            let rank = |finding: &Finding| match finding.level.as_str() {
                "error" => 0,
                "warning" => 1,
                _ => 2,
            };
            found.items.sort_by_key(rank);
            found.items.truncate(MAX_API_ROWS);
            found
        }
        Err(error) => {
            let problem = format!("the output of `zgate doctor` cannot be read: {error}");
            Examination { problem: Some(problem), ..Default::default() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = r#"{"errors": 1, "warnings": 0, "findings": [
        {"group": "server", "check": "ports", "level": "ok", "what": "free"},
        {"group": "server", "check": "pools", "level": "error", "what": "degraded", "why": "a disk",
         "fix": "replace it"}]}"#;

    #[test]
    fn the_worst_findings_come_first() {
        let failed = ToolError::Failed {
            command: "zgate doctor".to_owned(),
            status: Some(2),
            said: format!("WARN something\n{OUTPUT}"),
        };
        let found = examination(Err(failed));
        assert_eq!(found, examination(Ok(OUTPUT.to_owned())));
        assert_eq!((found.items[0].check.as_str(), found.errors), ("pools", 1));
        assert_eq!(found.problem, None);
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        let late = ToolError::TimedOut { command: "zgate doctor".to_owned(), seconds: 60 };
        for outcome in [Err(late), Ok(String::new()), Ok("{}".to_owned()), Ok("é{".to_owned())] {
            let found = examination(outcome);
            assert!(found.problem.is_some() && found.items.is_empty());
        }
    }
}
