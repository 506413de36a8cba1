//! pynfs, the protocol's own conformance suite, from a checkout that is not
//! part of the repository.

mod known;
mod report;
mod runs;

use crate::packages::{self, PYTHON_TOOLS};
use crate::servers::scratch::run as succeed;
use crate::totals::{Outcome, Totals};
use clap::ValueEnum;
use report::Verdict;
use runs::{MINOR_ONE_AND_TWO, MINOR_ZERO, Plan, Run};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// What the judge's calls go over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Over {
    /// TCP, as the judge speaks it.
    Tcp,
    /// RPC-over-RDMA on the emulated fabric, through a bridge.
    Rdma,
}

/// A built checkout and the Python that runs it.
#[derive(Clone, Debug)]
pub(crate) struct Checkout {
    dir: PathBuf,
    python: PathBuf,
}

impl Checkout {
    /// Makes a virtual environment with what pynfs needs and builds the
    /// checkout in place.
    ///
    /// # Errors
    /// Naming what is missing.
    pub(crate) fn prepare(dir: &Path) -> io::Result<Self> {
        let dir = std::fs::canonicalize(dir).map_err(|error| {
            io::Error::new(error.kind(), format!("no pynfs checkout at {}: {error}", dir.display()))
        })?;
        packages::ensure(PYTHON_TOOLS)?;
        let target =
            std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
        let venv = std::path::absolute(target.join("pynfs-venv"))?;
        let python = venv.join("bin/python3");
        if !python.is_file() {
            succeed(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
            let install = ["-m", "pip", "install", "--quiet", "ply", "setuptools<81"];
            succeed(Command::new(&python).args(install))?;
        }
        if !dir.join("nfs4.1/xdrdef/nfs4_type.py").is_file() {
            let build = &mut Command::new(&python);
            succeed(build.args(["setup.py", "build"]).current_dir(&dir))?;
        }
        Ok(Self { dir, python })
    }
}

/// Runs everything: minor version 0 on one file system, 1 and 2 on another,
/// side by side, because both sleep most of the time.
///
/// # Errors
/// When the checkout cannot be used.
pub(crate) fn run(
    binary: &Path,
    dir: &Path,
    over: Over,
    only: &[String],
    totals: &mut Totals,
) -> io::Result<()> {
    let checkout = Checkout::prepare(dir)?;
    let results = std::thread::scope(|scope| {
        let halves = [MINOR_ZERO, MINOR_ONE_AND_TWO].map(|runs| {
            let checkout = &checkout;
            scope.spawn(move || -> Vec<(Outcome, std::time::Duration)> {
                let chosen =
                    |run: &&Run| only.is_empty() || only.iter().any(|name| name == run.name);
                runs.iter().filter(chosen).map(|run| one(binary, checkout, run, over)).collect()
            })
        });
        halves.map(|half| half.join())
    });
    for half in results {
        let half = half.map_err(|_| io::Error::other("a pynfs run panicked"))?;
        for (outcome, took) in half {
            totals.add(outcome, took);
        }
    }
    Ok(())
}

fn one(
    binary: &Path,
    checkout: &Checkout,
    run: &Run,
    over: Over,
) -> (Outcome, std::time::Duration) {
    let begun = Instant::now();
    let over_rdma = if over == Over::Rdma { " over RDMA" } else { "" };
    let mut outcome = Outcome::new(format!("pynfs {}{over_rdma}", run.name));
    let result = Plan::new(binary, checkout, run, over).and_then(|plan| {
        let verdicts = plan.execute()?;
        if let Some(tally) = plan.tally() {
            eprintln!("   {}: {}", run.name, tally.line());
            if let Some(way) = run.ways.iter().find(|way| tally.count(way) == 0) {
                outcome.failed.push(format!("no {way} in the whole run"));
            }
        }
        Ok(verdicts)
    });
    match result {
        Ok(verdicts) => judge(run, &verdicts, &mut outcome),
        Err(error) => outcome.failed.push(error.to_string()),
    }
    (outcome, begun.elapsed())
}

fn judge(run: &Run, verdicts: &[Verdict], outcome: &mut Outcome) {
    for verdict in verdicts {
        let named = format!("{} {}", verdict.code, verdict.name);
        match verdict.result.as_str() {
            "PASS" => outcome.passed += 1,
            result => match known::reason(&verdict.code, run.minor) {
                Some(reason) if result != "FAILURE" => {
                    outcome.skipped.push(format!("{named}: {reason}"));
                }
                _ => outcome.failed.push(format!("{named}: {result} {}", verdict.said)),
            },
        }
    }
    if verdicts.len() < run.least {
        outcome.failed.push(format!("only {} tests ran, {} expected", verdicts.len(), run.least));
    }
}
