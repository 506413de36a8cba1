//! Command line of the simulator; `cargo xtask simulate` builds and starts it.

use clap::Parser;
use serde_json::json;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;
use zgate_simulator::campaign::{Campaign, Result, campaign, silence_panics};
use zgate_simulator::invariant::Violation;
use zgate_simulator::mutant::Mutant;
use zgate_simulator::plan::Plan;
use zgate_simulator::run::run;
use zgate_simulator::shrink::{Kept, shrink};

/// A quarter of a run's time was the system's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Lines of the trace before a violation that are printed.
const HISTORY_LINES: usize = 60;
/// Seeds that once failed; each line has one, and why.
const ONCE_FAILED: &str = include_str!("../seeds");

/// Simulates the NFS server, its clients, network and disk on virtual time
#[derive(Parser, Debug)]
#[command(name = "cargo xtask simulate")]
struct Args {
    /// Number of seeds
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// First seed; without it a fresh one is chosen and printed
    #[arg(long)]
    seed: Option<u64>,
    /// Stop after this time, whatever number of seeds is left
    #[arg(long)]
    minutes: Option<f64>,
    /// Threads; each runs seeds of its own
    #[arg(long, default_value_t = 1)]
    jobs: usize,
    /// Stop after so many failed seeds
    #[arg(long, default_value_t = 1, conflicts_with = "mutants")]
    failures: usize,
    /// Build this fault in; `list` names them
    #[arg(long)]
    mutant: Option<String>,
    /// Build each fault in and print how many seeds find it
    #[arg(long)]
    mutants: bool,
    /// Only these steps and faults of the seed, as a report prints them
    #[arg(long)]
    keep: Option<String>,
    /// Print the whole trace of one seed
    #[arg(long)]
    trace: bool,
    /// The seeds that once failed, before the others
    #[arg(long)]
    once_failed: bool,
    /// Results as JSON, one object in a line
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    silence_panics();
    match execute(&args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let _ = writeln!(io::stderr(), "simulate: {error}");
            ExitCode::FAILURE
        }
    }
}

fn execute(args: &Args) -> io::Result<bool> {
    if args.mutant.as_deref() == Some("list") {
        for mutant in Mutant::ALL {
            writeln!(io::stdout(), "{}", mutant.name())?;
        }
        return Ok(true);
    }
    let mutant = args.mutant.as_deref().map(|name| {
        Mutant::named(name).ok_or_else(|| {
            io::Error::other(format!("--mutant {name} is not known; --mutant list names them"))
        })
    });
    let mutant = mutant.transpose()?;
    if args.mutants {
        return mutants(args);
    }
    if let (Some(seed), true) = (args.seed, args.trace || args.keep.is_some()) {
        return one(args, seed, mutant);
    }
    if args.once_failed && !once_failed(args)? {
        return Ok(false);
    }
    let first = args.seed.unwrap_or_else(fresh_seed);
    if !args.json {
        writeln!(io::stdout(), "seeds from {first}")?;
    }
    let done = campaign(&request(args, first, args.seeds, mutant));
    tell(args, first, &done)?;
    for (seed, violation) in &done.failed {
        report(args, *seed, violation, mutant)?;
    }
    Ok(done.failed.is_empty())
}

fn request(args: &Args, first: u64, count: u64, mutant: Option<Mutant>) -> Campaign {
    let limit = args.minutes.map(|minutes| Duration::from_secs_f64(60.0 * minutes.max(0.0)));
    let (jobs, failures) = (args.jobs, args.failures);
    Campaign { first, count, limit, jobs, failures, mutant, progress: !args.json }
}

/// The one number that does not come from a seed; it is printed.
fn fresh_seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(1, |since| since.as_micros() as u64)
}

fn tell(args: &Args, first: u64, done: &Result) -> io::Result<()> {
    let (seeds, rate) = (done.seeds, done.seeds_per_second());
    if args.json {
        let failed: Vec<_> = done
            .failed
            .iter()
            .map(|(seed, violation)| {
                json!({"seed": seed, "invariant": violation.invariant.name(), "text": violation.text})
            })
            .collect();
        let seconds = done.took.as_secs_f64();
        let line = json!({"first": first, "seeds": seeds, "seconds": seconds,
            "seeds_per_second": rate, "traces": done.traces, "failed": failed});
        return writeln!(io::stdout(), "{line}");
    }
    let failed = done.failed.len();
    writeln!(
        io::stdout(),
        "{seeds} seeds in {:.1} s, {rate:.0} a second, traces {}: {failed} failed",
        done.took.as_secs_f64(),
        done.traces
    )
}

/// Runs one seed, or a part of it, and prints its history.
fn one(args: &Args, seed: u64, mutant: Option<Mutant>) -> io::Result<bool> {
    let mut plan = Plan::new(seed);
    if let Some(text) = &args.keep {
        let kept = Kept::parse(text).ok_or_else(|| {
            io::Error::other(format!("--keep {text} is not a list like s1,s7,f2 of a report"))
        })?;
        plan = plan.only(&kept.steps, &kept.faults);
    }
    let outcome = run(&plan, mutant);
    let from = if args.trace { 0 } else { outcome.lines.len().saturating_sub(HISTORY_LINES) };
    let mut out = io::stdout().lock();
    for line in &outcome.lines[from..] {
        writeln!(out, "{line}")?;
    }
    writeln!(out, "seed {seed}, trace {}", outcome.hash)?;
    if let Some(violation) = &outcome.violation {
        writeln!(out, "{}: {}", violation.invariant.name(), violation.text)?;
    }
    Ok(outcome.violation.is_none())
}

/// Cuts a failing seed and prints what is left of it.
fn report(args: &Args, seed: u64, violation: &Violation, mutant: Option<Mutant>) -> io::Result<()> {
    if args.json {
        return Ok(());
    }
    let plan = Plan::new(seed);
    let all = Kept::all(&plan);
    let kept = shrink(&plan, violation.invariant, mutant);
    let outcome = run(&plan.only(&kept.steps, &kept.faults), mutant);
    let mut out = io::stdout().lock();
    writeln!(out, "\nseed {seed}: {}: {}", violation.invariant.name(), violation.text)?;
    writeln!(
        out,
        "cut from {} steps and {} faults to {} and {}:",
        all.steps.len(),
        all.faults.len(),
        kept.steps.len(),
        kept.faults.len()
    )?;
    let from = outcome.lines.len().saturating_sub(HISTORY_LINES);
    for line in &outcome.lines[from..] {
        writeln!(out, "{line}")?;
    }
    let planted = mutant.map(|mutant| format!(" --mutant {}", mutant.name())).unwrap_or_default();
    writeln!(out, "again: cargo xtask simulate --seed {seed}{planted} --keep {}", kept.text())?;
    writeln!(out, "whole: cargo xtask simulate --seed {seed}{planted} --trace")
}

/// Runs the seeds that once failed.
fn once_failed(args: &Args) -> io::Result<bool> {
    let mut clean = true;
    for line in ONCE_FAILED.lines() {
        let Some(seed) = line.split_whitespace().next().and_then(|word| word.parse().ok()) else {
            continue;
        };
        if let Some(violation) = run(&Plan::new(seed), None).violation {
            clean = false;
            report(args, seed, &violation, None)?;
        }
    }
    Ok(clean)
}

/// Builds in each fault in turn and tells how many seeds find it.
fn mutants(args: &Args) -> io::Result<bool> {
    let mut all = true;
    for mutant in Mutant::ALL {
        let first = args.seed.unwrap_or(1);
        let done = campaign(&request(args, first, args.seeds, Some(mutant)));
        let found = done.failed.first();
        all &= found.is_some();
        let invariant = found.map(|(_, violation)| violation.invariant.name());
        if args.json {
            let line = json!({"mutant": mutant.name(), "seeds": done.seeds, "found": invariant});
            writeln!(io::stdout(), "{line}")?;
        } else {
            let end = invariant.map_or_else(|| "not found".to_owned(), |name| name.to_owned());
            writeln!(io::stdout(), "{:<26} {:>6} seeds  {end}", mutant.name(), done.seeds)?;
        }
    }
    Ok(all)
}
