//! Reports of findings for people and for programs.

use crate::{Finding, Group, Level};
use clap::ValueEnum;
use serde::Serialize;
use std::fmt::Write;

/// Output of `--json`.
#[derive(Debug, Serialize)]
struct Report<'a> {
    errors: usize,
    warnings: usize,
    findings: &'a [Finding],
}

fn count(findings: &[Finding], level: Level) -> usize {
    findings.iter().filter(|finding| finding.level == level).count()
}

/// Returns the exit code: 0: no faults, 1: warnings, 2: errors.
pub(crate) fn exit_code(findings: &[Finding]) -> u8 {
    match findings.iter().map(|finding| finding.level).max() {
        None | Some(Level::Ok) => 0,
        Some(Level::Warning) => 1,
        Some(Level::Error) => 2,
    }
}

/// Returns one JSON document.
///
/// # Errors
/// None in practice.
pub(crate) fn json(findings: &[Finding]) -> serde_json::Result<String> {
    let (errors, warnings) = (count(findings, Level::Error), count(findings, Level::Warning));
    serde_json::to_string_pretty(&Report { errors, warnings, findings })
}

/// Returns lines for people.
pub(crate) fn text(findings: &[Finding]) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    for group in Group::value_variants() {
        let of_group = || findings.iter().filter(|finding| finding.group == *group);
        if of_group().next().is_none() {
            continue;
        }
        let _ = writeln!(out, "{}", format!("{group:?}").to_lowercase());
        for finding in of_group() {
            let mark = match finding.level {
                Level::Ok => '✓',
                Level::Warning => '!',
                Level::Error => '✗',
            };
            let _ = writeln!(out, "  {mark} {}: {}", finding.check, finding.what);
            for (word, text) in [("why", &finding.why), ("fix", &finding.fix)] {
                if !text.is_empty() {
                    let _ = writeln!(out, "      {word}: {text}");
                }
            }
        }
    }
    let (errors, warnings) = (count(findings, Level::Error), count(findings, Level::Warning));
    let _ = match (errors, warnings) {
        (0, 0) => writeln!(out, "no faults: {} checks", findings.len()),
        _ => writeln!(out, "{errors} errors, {warnings} warnings"),
    };
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(level: Level) -> Finding {
        Finding {
            group: Group::Server,
            check: "ports",
            level,
            what: "taken".into(),
            why: if level == Level::Ok { String::new() } else { "because".into() },
            fix: if level == Level::Ok { String::new() } else { "free it".into() },
        }
    }

    #[test]
    fn the_worst_decides_the_exit_code() {
        assert_eq!(exit_code(&[]), 0);
        assert_eq!(exit_code(&[finding(Level::Ok)]), 0);
        assert_eq!(exit_code(&[finding(Level::Warning), finding(Level::Ok)]), 1);
        assert_eq!(exit_code(&[finding(Level::Error), finding(Level::Warning)]), 2);
    }

    #[test]
    fn findings_of_every_group_are_shown() {
        for group in Group::value_variants() {
            let shown = text(&[Finding { group: *group, ..finding(Level::Error) }]);
            let name = format!("{group:?}").to_lowercase();
            assert!(shown.starts_with(&format!("{name}\n  ✗ ports: taken\n")), "{shown}");
        }
    }

    #[test]
    fn what_why_and_fix_are_shown() {
        let shown = text(&[finding(Level::Ok), finding(Level::Error)]);
        assert!(shown.contains("server\n  ✓ ports: taken\n  ✗ ports: taken\n      why: because\n      fix: free it\n"), "{shown}");
        assert!(shown.ends_with("1 errors, 0 warnings\n"), "{shown}");
        let value: serde_json::Value =
            serde_json::from_str(&json(&[finding(Level::Warning)]).unwrap()).unwrap();
        assert_eq!(
            (&value["warnings"], &value["findings"][0]["fix"]),
            (&1.into(), &"free it".into())
        );
    }
}
