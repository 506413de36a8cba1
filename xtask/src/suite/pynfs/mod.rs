//! pynfs, the protocol's own conformance suite, from a checkout outside the
//! repository.

pub(crate) mod checkout;
mod known;
mod report;
mod runs;

use crate::totals::{Outcome, Totals};
use checkout::Checkout;
use clap::ValueEnum;
use report::Verdict;
use runs::{MINOR_ONE_AND_TWO, MINOR_ZERO, Plan, Run};
use std::io;
use std::path::Path;
use std::time::Instant;

/// Transport of the suite's calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Over {
    /// TCP, which the suite speaks itself.
    Tcp,
    /// RPC-over-RDMA on the emulated fabric, through a bridge.
    Rdma,
}

/// Runs everything: minor version 0 on one file system, 1 and 2 on another,
/// concurrently, because both sleep most of the time.
///
/// # Errors
/// If the checkout cannot be used, or `only` names no run.
pub(crate) fn run(
    binary: &Path,
    dir: &Path,
    over: Over,
    only: &[String],
    totals: &mut Totals,
) -> io::Result<()> {
    let named = |name: &&str| only.iter().any(|wanted| wanted == name);
    let names = || MINOR_ZERO.iter().chain(MINOR_ONE_AND_TWO).map(|run| run.name);
    if names().filter(named).count() < only.len() {
        let known = names().collect::<Vec<_>>().join("\", \"");
        return Err(io::Error::other(format!("--only takes a run of pynfs: \"{known}\"")));
    }
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
