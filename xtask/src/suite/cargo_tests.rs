//! `cargo test` over the workspace.

use crate::cargo;
use crate::totals::Outcome;
use std::io::{self, BufRead, BufReader};
use std::process::Stdio;

/// Runs all unit and integration tests.
///
/// # Errors
/// If cargo cannot be started.
pub(crate) fn run(outcome: &mut Outcome) -> io::Result<()> {
    let mut child = cargo::command()
        .args(["test", "--workspace", "--no-fail-fast", "--quiet"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(io::Error::other("cargo has no output"));
    };
    let notes = std::thread::spawn(move || notes(stderr));
    let mut tail: Vec<String> = Vec::new();
    for line in BufReader::new(stdout).lines() {
        let line = line?;
        count(&line, outcome);
        tail.push(line);
    }
    outcome.skipped.extend(notes.join().unwrap_or_default());
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

/// Collects notes: tests that cannot run here print `note: WHAT not run: WHY`
/// past the harness. All other output is passed on. Notes with the same reason
/// are reported once.
fn notes(stderr: impl io::Read) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    for line in BufReader::new(stderr).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line).into_owned();
        match line.strip_prefix("note: ").and_then(|note| note.split_once(" not run: ")) {
            Some((what, _)) if notes.iter().any(|known| known.starts_with(what)) => {}
            Some((what, why)) => notes.push(format!("{what}: {why}")),
            None => eprintln!("{line}"),
        }
    }
    notes
}

/// Parses a line of the test harness.
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
    fn what_could_not_run_is_named_once() {
        let said = b"note: loop test not run: losetup is needed\nnote: loop test not run: again\n\
                     note: crash test not run: run it as root\n";
        let expected = ["loop test: losetup is needed", "crash test: run it as root"];
        assert_eq!(notes(&said[..]), expected);
    }

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
