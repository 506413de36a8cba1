//! Many seeds, one after the other, on several threads: each run has one.

use crate::executor::lock;
use crate::invariant::Violation;
use crate::mutant::Mutant;
use crate::plan::Plan;
use crate::run::run;
use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Time between two lines of progress.
const PROGRESS_PERIOD: Duration = Duration::from_secs(10);

/// Real time after which a seed counts as endless: one takes milliseconds, a second
/// on a busy machine.
const LONGEST_SEED: Duration = Duration::from_secs(120);

/// Time between two looks at the seeds that run.
const LOOK_PERIOD: Duration = Duration::from_millis(20);

/// Most that counts of the time between two looks: for the rest the process was stopped, or
/// the machine.
const LONGEST_LOOK: Duration = Duration::from_secs(1);

/// Seeds to run.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// First seed.
    pub first: u64,
    /// Number of seeds.
    pub count: u64,
    /// Seeds begun after this time are left out.
    pub limit: Option<Duration>,
    /// Threads.
    pub jobs: usize,
    /// Failed seeds after which it stops.
    pub failures: usize,
    /// Planted fault.
    pub mutant: Option<Mutant>,
    /// Write lines of progress to standard error.
    pub progress: bool,
}

/// Result of a campaign.
#[derive(Clone, Debug)]
pub struct Result {
    /// Seeds that ran.
    pub seeds: u64,
    /// Real time.
    pub took: Duration,
    /// Sum of the hashes of all traces, modulo 2^128, in hexadecimal digits: the same on
    /// every machine, in whatever order the seeds ran.
    pub traces: String,
    /// Seeds that failed, in order.
    pub failed: Vec<(u64, Violation)>,
}

impl Result {
    /// Seeds in a second.
    #[must_use]
    pub fn seeds_per_second(&self) -> f64 {
        self.seeds as f64 / self.took.as_secs_f64().max(0.001)
    }
}

/// Panics of runs are reported as violations, without a message of their own.
pub fn silence_panics() {
    std::panic::set_hook(Box::new(|_| {}));
}

/// Runs seeds until they are all done, the time is over, or enough have failed.
#[must_use]
pub fn campaign(campaign: &Campaign) -> Result {
    let began = Instant::now();
    let (next, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let (stop, failed) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    let (running, traces) = (Mutex::new(BTreeMap::new()), Mutex::new(0));
    let awake = Mutex::new(Duration::ZERO);
    let worker = || {
        while !stop.load(Ordering::Acquire) {
            let late = campaign.limit.is_some_and(|limit| began.elapsed() >= limit);
            let number = next.fetch_add(1, Ordering::AcqRel);
            if late || number >= campaign.count {
                return;
            }
            let seed = campaign.first.wrapping_add(number);
            let begun = *lock(&awake);
            lock(&running).insert(seed, begun);
            let outcome = run(&Plan::new(seed), campaign.mutant);
            lock(&running).remove(&seed);
            done.fetch_add(1, Ordering::AcqRel);
            add_trace(&mut lock(&traces), &outcome.hash);
            if let Some(violation) = outcome.violation {
                if campaign.progress && campaign.failures > 1 {
                    tell(&format!("seed {seed}: {}\n", violation.invariant.name()));
                }
                let mut failed = lock(&failed);
                failed.push((seed, violation));
                stop.fetch_or(failed.len() >= campaign.failures, Ordering::AcqRel);
            }
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..campaign.jobs.max(1)).map(|_| scope.spawn(worker)).collect();
        let (mut told, mut looked) = (Instant::now(), Instant::now());
        while workers.iter().any(|worker| !worker.is_finished()) {
            std::thread::sleep(LOOK_PERIOD);
            let now = *lock(&awake) + looked.elapsed().min(LONGEST_LOOK);
            *lock(&awake) = now;
            looked = Instant::now();
            end_if_endless(&lock(&running), now);
            if campaign.progress && told.elapsed() >= PROGRESS_PERIOD {
                told = Instant::now();
                progress(done.load(Ordering::Acquire), began.elapsed());
            }
        }
    });
    let mut failed = lock(&failed).clone();
    failed.sort_by_key(|(seed, _)| *seed);
    let traces = format!("{:032x}", *lock(&traces));
    Result { seeds: done.load(Ordering::Acquire), took: began.elapsed(), traces, failed }
}

/// Adds the hash of a trace, 32 hexadecimal digits, to the sum.
fn add_trace(sum: &mut u128, hash: &str) {
    let hash = u128::from_str_radix(hash, 16).expect("a trace's hash has 32 hexadecimal digits");
    *sum = sum.wrapping_add(hash);
}

/// Returns a seed that has run for too long; `now` and what they began at are times in which
/// the process ran.
fn endless(running: &BTreeMap<u64, Duration>, now: Duration) -> Option<u64> {
    let late = |begun: &Duration| now.saturating_sub(*begun) > LONGEST_SEED;
    running.iter().find(|(_, begun)| late(begun)).map(|(seed, _)| *seed)
}

/// Ends the process when a seed does not end: nothing else ends its thread.
fn end_if_endless(running: &BTreeMap<u64, Duration>, now: Duration) {
    if let Some(seed) = endless(running, now) {
        tell(&format!("seed {seed} has not ended after {} s\n", LONGEST_SEED.as_secs()));
        std::process::exit(1);
    }
}

fn progress(done: u64, took: Duration) {
    let rate = done as f64 / took.as_secs_f64();
    let end = if io::stderr().is_terminal() { '\r' } else { '\n' };
    tell(&format!("{done} seeds, {rate:.0} a second{end}"));
}

/// Writes to standard error. If nobody reads it, only progress is missed: the result
/// and the exit status say the rest.
fn tell(text: &str) {
    let _ = write!(io::stderr(), "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_endless_by_the_time_in_which_the_process_ran() {
        let running = BTreeMap::from([(7, Duration::from_secs(5)), (8, Duration::from_secs(6))]);
        assert_eq!(endless(&running, LONGEST_SEED + Duration::from_secs(5)), None);
        assert_eq!(endless(&running, LONGEST_SEED + Duration::from_secs(6)), Some(7));
    }
}
