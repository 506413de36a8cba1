//! `iscsi-test-cu`, one process per test.

use super::disks::{OPEN, Rig};
use super::known::{self, MAX_SKIPS};
use crate::servers::scratch::run as succeed;
use crate::totals::Outcome;
use std::io;
use std::process::Command;

/// Time limit of a test, in seconds.
const TIMEOUT_SECONDS: &str = "240";

/// Result of a test.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Passed,
    Skipped(String),
    Failed(String),
}

/// Runs all tests.
///
/// # Errors
/// If the tests cannot be listed.
pub(crate) fn run(rig: &Rig, outcome: &mut Outcome) -> io::Result<()> {
    let tests = list()?;
    if tests.is_empty() {
        return Err(io::Error::other("iscsi-test-cu --list names no test"));
    }
    let mut skips = 0;
    for test in &tests {
        match judge(rig, test)? {
            Verdict::Passed => outcome.passed += 1,
            Verdict::Skipped(said) => match known::skip(test) {
                Some(reason) => {
                    skips += 1;
                    outcome.skipped.push(format!("{test}: {reason}"));
                }
                None => outcome.failed.push(format!("{test}: skipped without a reason: {said}")),
            },
            Verdict::Failed(said) => match known::wrong(test) {
                Some(reason) => {
                    skips += 1;
                    outcome.skipped.push(format!("{test}: {reason}"));
                }
                None => outcome.failed.push(format!("{test}: {said}")),
            },
        }
    }
    if skips > MAX_SKIPS {
        outcome.failed.push(format!("{skips} tests left out, at most {MAX_SKIPS} may be"));
    }
    Ok(())
}

/// Lists the tests without their family: the tests of every family are in ALL.
fn list() -> io::Result<Vec<String>> {
    let text = succeed(Command::new("iscsi-test-cu").arg("--list"))?;
    let names = text.lines().filter_map(|line| line.trim().strip_prefix("ALL."));
    Ok(names.filter(|name| name.contains('.')).map(str::to_owned).collect())
}

fn judge(rig: &Rig, test: &str) -> io::Result<Verdict> {
    let url = rig.url("", OPEN, known::disk(test), "");
    let mut command = Command::new("timeout");
    command.args([TIMEOUT_SECONDS, "iscsi-test-cu", "--dataloss", "--Verbose-scsi"]);
    if test.starts_with("Sanitize.") {
        command.arg("--allow-sanitize");
    }
    command.arg(format!("--test=ALL.{test}")).arg(&url);
    if test.starts_with("MultipathIO.") {
        command.arg(&url);
    }
    let output = command.output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    Ok(verdict(&text, output.status.code()))
}

/// Parses CUnit's summary, which has a line
/// `tests TOTAL RAN PASSED FAILED INACTIVE`. Other output of a test, such as
/// `[FAILED]`, is not a result.
fn verdict(text: &str, code: Option<i32>) -> Verdict {
    let summary = text.lines().rev().find_map(|line| {
        let numbers = line.trim().strip_prefix("tests ")?;
        let numbers: Vec<usize> =
            numbers.split_whitespace().map_while(|number| number.parse().ok()).collect();
        (numbers.len() >= 4).then_some((numbers[1], numbers[2], numbers[3]))
    });
    let last = |mark: &str| {
        let line = text.lines().rev().find(|line| line.contains(mark));
        line.map(|line| line.trim().to_owned()).unwrap_or_default()
    };
    match (summary, code) {
        (_, Some(124)) => Verdict::Failed("the time limit was exceeded".to_owned()),
        (Some((1, 1, 0)), Some(0)) if text.contains("[SKIPPED]") => {
            Verdict::Skipped(last("[SKIPPED]"))
        }
        (Some((1, 1, 0)), Some(0)) => Verdict::Passed,
        (Some(_), _) => Verdict::Failed(last("CU_")),
        (None, code) => Verdict::Failed(format!("no summary, exit code {code:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_decides() {
        let text = |passed: u8, failed: u8| {
            format!(
                "  [FAILED] logged\n  1. a.c:1 - CU_FAIL(x)\n  tests      1      1      {passed}      {failed}        0\n"
            )
        };
        assert_eq!(verdict(&text(1, 0), Some(0)), Verdict::Passed);
        let failed = Verdict::Failed("1. a.c:1 - CU_FAIL(x)".to_owned());
        assert_eq!(verdict(&text(0, 1), Some(1)), failed);
        assert!(matches!(verdict(&text(1, 0), Some(124)), Verdict::Failed(_)));
        assert!(matches!(verdict("", Some(0)), Verdict::Failed(_)));
        let skipped = text(1, 0) + "[SKIPPED] not here\n";
        assert_eq!(verdict(&skipped, Some(0)), Verdict::Skipped("[SKIPPED] not here".to_owned()));
    }
}
