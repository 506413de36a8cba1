//! `cargo test` over the workspace.

use crate::totals::Outcome;
use std::io::{self, BufRead, BufReader};
use std::process::{Command, Stdio};

/// Runs all unit and integration tests.
///
/// # Errors
/// When cargo cannot be started.
pub(crate) fn run(outcome: &mut Outcome) -> io::Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut child = Command::new(cargo)
        .args(["test", "--workspace", "--no-fail-fast", "--quiet"])
        .stdout(Stdio::piped())
        .spawn()?;
    let Some(stdout) = child.stdout.take() else {
        return Err(io::Error::other("cargo has no output"));
    };
    let mut tail: Vec<String> = Vec::new();
    for line in BufReader::new(stdout).lines() {
        let line = line?;
        count(&line, outcome);
        tail.push(line);
    }
    if !child.wait()?.success() && outcome.failed.is_empty() {
        outcome.failed.push("the tests do not build; see above".to_owned());
    }
    if !outcome.failed.is_empty() {
        for line in &tail {
            eprintln!("   {line}");
        }
    }
    Ok(())
}

/// Reads a line of the test harness.
fn count(line: &str, outcome: &mut Outcome) {
    if let Some(result) = line.strip_prefix("test result: ") {
        let number = |word: &str| {
            let mut fields = result.split([' ', ';']).filter(|field| !field.is_empty());
            let mut last = "0";
            fields.find_map(|field| {
                let found = (field == word).then_some(last);
                last = field;
                found
            })
        };
        let parse = |word| number(word).and_then(|n| n.parse::<usize>().ok()).unwrap_or(0);
        outcome.passed += parse("passed");
        for index in 0..parse("ignored") {
            outcome.skipped.push(format!("ignored test {}", index + 1));
        }
    } else if line.starts_with("---- ") && line.ends_with(" stdout ----") {
        outcome.failed.push(line.trim_matches('-').trim().trim_end_matches(" stdout").to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_counted() {
        let mut outcome = Outcome::new("x");
        count(
            "test result: FAILED. 12 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out",
            &mut outcome,
        );
        count("---- drc::tests::a stdout ----", &mut outcome);
        assert_eq!((outcome.passed, outcome.skipped.len()), (12, 2));
        assert_eq!(outcome.failed, ["drc::tests::a"]);
    }
}
