//! Results of a run: a table for people, JSON and JUnit XML for machines.

use super::image::Image;
use crate::output;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Result of a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Status {
    /// All steps passed.
    Pass,
    /// A step failed.
    Fail,
    /// Exceeded its time limit.
    Hung,
    /// The machine stopped before it.
    Missing,
    /// Skipped: cannot run here.
    Skip,
}

/// One step of a scenario.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Step {
    pub(crate) name: String,
    pub(crate) passed: bool,
    pub(crate) seconds: f64,
    /// Last lines of a failed step.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) detail: String,
}

/// A measurement.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) value: f64,
    pub(crate) unit: String,
}

/// Result of a scenario with its details.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Outcome {
    pub(crate) scenario: String,
    pub(crate) title: String,
    pub(crate) status: Status,
    pub(crate) seconds: f64,
    /// Number of machines that stopped during it: their kernels panicked or the
    /// emulator failed, and another boot retried.
    #[serde(skip_serializing_if = "is_none_lost")]
    pub(crate) machines_lost: u32,
    /// Reason for skipping it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) reason: String,
    pub(crate) steps: Vec<Step>,
    pub(crate) figures: Vec<Figure>,
    /// Complete output; in the JUnit file for failures only.
    #[serde(skip)]
    pub(crate) log: String,
}

impl Outcome {
    fn failed(&self) -> bool {
        matches!(self.status, Status::Fail | Status::Hung | Status::Missing)
    }

    fn complaint(&self) -> String {
        let mut text = String::new();
        for step in self.steps.iter().filter(|step| !step.passed) {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{}: {}", step.name, step.detail);
        }
        match self.status {
            Status::Hung => text.push_str("exceeded its time limit\n"),
            Status::Missing => text.push_str("the machine stopped before it\n"),
            _ => {}
        }
        text
    }
}

/// Results of a whole run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Summary {
    accel: &'static str,
    image: String,
    versions: BTreeMap<String, String>,
    scenarios: Vec<Outcome>,
}

impl Summary {
    /// Builds the summary.
    pub(crate) fn new(accel: &'static str, image: &Image, mut scenarios: Vec<Outcome>) -> Self {
        scenarios.sort_by(|a, b| a.scenario.cmp(&b.scenario));
        let versions = image.versions().into_iter().collect();
        Self { accel, image: image.key.clone(), versions, scenarios }
    }

    /// Returns the number of failed scenarios.
    pub(crate) fn failed(&self) -> usize {
        self.scenarios.iter().filter(|one| one.failed()).count()
    }

    /// Returns the number of skipped scenarios.
    pub(crate) fn skipped(&self) -> usize {
        self.scenarios.iter().filter(|one| one.status == Status::Skip).count()
    }

    /// Writes `results.json`, `junit.xml` and each scenario's own files; prints
    /// the table.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(crate) fn write(
        &self,
        out: &Path,
        left_by: impl Fn(&str) -> Option<PathBuf>,
    ) -> io::Result<()> {
        fs::create_dir_all(out)?;
        fs::write(out.join("results.json"), serde_json::to_string_pretty(self)? + "\n")?;
        fs::write(out.join("junit.xml"), self.junit())?;
        for one in &self.scenarios {
            let to = out.join(&one.scenario);
            if to.exists() {
                fs::remove_dir_all(&to)?;
            }
            if let Some(from) = left_by(&one.scenario).filter(|dir| dir.exists()) {
                fs::create_dir_all(&to)?;
                crate::servers::scratch::run(Command::new("cp").arg("-rT").arg(&from).arg(&to))?;
            }
        }
        output::print(&self.text())
    }

    fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        for one in &self.scenarios {
            let passed = one.steps.iter().filter(|step| step.passed).count();
            let _ = writeln!(
                text,
                "{:8} {:24} {:3}/{:<3} steps {:7.1} s  {}",
                format!("{:?}", one.status).to_lowercase(),
                one.scenario,
                passed,
                one.steps.len(),
                one.seconds,
                if one.reason.is_empty() { &one.title } else { &one.reason },
            );
            for line in one.complaint().lines() {
                let _ = writeln!(text, "         {line}");
            }
            if one.machines_lost > 0 {
                let lost = one.machines_lost;
                let _ = writeln!(text, "         machines that stopped under it: {lost}");
            }
        }
        let _ = writeln!(
            text,
            "lab: {} scenarios, {} failed, {} skipped",
            self.scenarios.len(),
            self.failed(),
            self.skipped()
        );
        text
    }

    fn junit(&self) -> String {
        let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
        let seconds: f64 = self.scenarios.iter().map(|one| one.seconds).sum();
        // Writing to a string cannot fail.
        let _ = writeln!(
            xml,
            "<testsuite name=\"lab\" tests=\"{}\" failures=\"{}\" skipped=\"{}\" time=\"{seconds:.1}\">",
            self.scenarios.len(),
            self.failed(),
            self.skipped(),
        );
        for one in &self.scenarios {
            let _ = writeln!(
                xml,
                "  <testcase classname=\"lab\" name=\"{}\" time=\"{:.1}\">",
                escaped(&one.scenario),
                one.seconds
            );
            xml.push_str(&properties(&one.figures));
            if one.failed() {
                let complaint = one.complaint();
                let first = complaint.lines().next().unwrap_or("failed");
                let _ = writeln!(
                    xml,
                    "    <failure message=\"{}\">{}</failure>\n    <system-out>{}</system-out>",
                    escaped(first),
                    escaped(&complaint),
                    escaped(&one.log)
                );
            } else if one.status == Status::Skip {
                let _ = writeln!(xml, "    <skipped message=\"{}\"/>", escaped(&one.reason));
            }
            xml.push_str("  </testcase>\n");
        }
        xml.push_str("</testsuite>\n");
        xml
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_none_lost(count: &u32) -> bool {
    *count == 0
}

/// Returns the measurements as properties of a test case.
fn properties(figures: &[Figure]) -> String {
    if figures.is_empty() {
        return String::new();
    }
    let mut xml = String::from("    <properties>\n");
    for one in figures {
        let _ = writeln!(
            xml,
            "      <property name=\"{} ({})\" value=\"{}\"/>",
            escaped(&one.name),
            escaped(&one.unit),
            one.value
        );
    }
    xml.push_str("    </properties>\n");
    xml
}

/// Escapes text for XML; control characters that XML does not allow are
/// dropped.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' | '\t' => out.push(character),
            other if other.is_control() => {}
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_carry_their_steps_and_xml_stays_xml() {
        let outcome = Outcome {
            scenario: "nfs/x".into(),
            title: "t".into(),
            status: Status::Hung,
            seconds: 1.0,
            machines_lost: 0,
            reason: String::new(),
            steps: vec![Step {
                name: "a < b".into(),
                passed: false,
                seconds: 0.5,
                detail: "\"no\"\u{1b}".into(),
            }],
            figures: vec![Figure { name: "a&b".into(), value: 1.5, unit: "s".into() }],
            log: "x & y".into(),
        };
        let summary = Summary {
            accel: "tcg",
            image: "0".into(),
            versions: BTreeMap::new(),
            scenarios: vec![outcome],
        };
        assert_eq!(summary.failed(), 1);
        let xml = summary.junit();
        assert!(xml.contains("failures=\"1\""));
        assert!(xml.contains("a &lt; b: &quot;no&quot;"));
        assert!(xml.contains("x &amp; y"));
        assert!(xml.contains("<property name=\"a&amp;b (s)\" value=\"1.5\"/>"));
        assert!(!xml.contains('\u{1b}'));
    }
}
