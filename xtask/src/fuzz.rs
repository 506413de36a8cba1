//! Runs every fuzz target for some time, with random inputs.

use crate::cargo;
use clap::Args;
use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::Stdio;

/// Arguments of `cargo xtask fuzz`.
#[derive(Args, Debug)]
pub(crate) struct FuzzArgs {
    /// Total time in seconds, without building
    #[arg(long, default_value_t = 60)]
    seconds: u64,
}

/// Runs all targets and prints one line for each.
///
/// # Errors
/// If a target fails, does not build, or is not heard of.
pub(crate) fn run(args: &FuzzArgs) -> io::Result<()> {
    let programs = programs(Path::new("tests/fuzz/tests"))?;
    let least = programs.len();
    let each_milliseconds =
        args.seconds.saturating_mul(1000) / u64::try_from(programs.len()).unwrap_or(1).max(1);
    // Of the workspace, not of the package: what `cargo test --workspace` has built is
    // used, where the package alone has other features of shared dependencies, and is
    // built once more.
    let mut test =
        ["test", "--quiet", "--workspace", "--no-fail-fast"].map(OsString::from).to_vec();
    for program in programs {
        test.extend(["--test".into(), program]);
    }
    if !cargo::command().args(&test).arg("--no-run").status()?.success() {
        return Err(io::Error::other("the fuzz targets do not build"));
    }
    let mut child = cargo::command()
        .args(&test)
        .args(["--", "--nocapture"])
        .env("BOLERO_RANDOM_TEST_TIME_MS", each_milliseconds.max(1).to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let (Some(stdout), Some(mut stderr)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(io::Error::other("cargo has no output"));
    };
    // Targets write their details there; they are shown if one fails.
    let details = std::thread::spawn(move || {
        let mut details = Vec::new();
        stderr.read_to_end(&mut details).map(|_| details)
    });
    let mut targets = 0;
    for line in BufReader::new(stdout).lines() {
        let line = line?;
        if let Some(said) = report(&line) {
            targets += 1;
            writeln!(io::stdout(), "{said}")?;
        }
    }
    let details = details.join().map_err(|_| io::Error::other("cannot read cargo's output"))??;
    if !child.wait()?.success() {
        io::stderr().write_all(&details)?;
        return Err(io::Error::other(
            "a fuzz target failed; BOLERO_RANDOM_SEED above repeats its input",
        ));
    }
    // Each program has one at least: what a target prints is not understood otherwise.
    if targets < least.max(1) {
        let heard = format!("{targets} targets were heard of {least} programs");
        return Err(io::Error::other(heard));
    }
    writeln!(io::stdout(), "{targets} targets, no failure")
}

/// Returns the names of the test programs, which run one after the other.
fn programs(dir: &Path) -> io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        let is_program = path.extension().is_some_and(|extension| extension == "rs")
            || path.join("main.rs").is_file();
        names.extend(path.file_stem().filter(|_| is_program).map(OsStr::to_owned));
    }
    Ok(names)
}

/// Returns the line that a target prints at its end, wherever it stands among
/// the harness's dots.
fn report(line: &str) -> Option<&str> {
    let at = line.find("fuzz ")?;
    let said = line.get(at + "fuzz ".len()..)?;
    (said.contains(" inputs in ")).then_some(said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_heard() {
        let said = "xdr_decoder: 400 inputs in 0.1 s";
        assert_eq!(report(&format!(".fuzz {said}")), Some(said));
        assert_eq!(report("test xdr_decoder ... ok"), None);
    }
}
