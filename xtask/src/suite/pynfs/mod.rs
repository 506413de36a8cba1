//! pynfs, the protocol's own conformance suite, from a checkout outside the
//! repository.

pub(crate) mod checkout;
mod kerberos_clients;
mod known;
mod report;
mod runs;

use crate::packages::{self, KERBEROS_TOOLS};
use crate::servers::kdc::Kdc;
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

/// Security flavour of the suite's calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Security {
    /// AUTH_SYS.
    Sys,
    /// Kerberos: headers are signed.
    Krb5,
    /// Kerberos: arguments and results are signed, too.
    Krb5i,
    /// Kerberos: arguments and results are encrypted.
    Krb5p,
}

impl Security {
    /// Returns its name in options of the suite.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sys => "sys",
            Self::Krb5 => "krb5",
            Self::Krb5i => "krb5i",
            Self::Krb5p => "krb5p",
        }
    }
}

/// Reason why runs in which the gateway is killed are not run under Kerberos.
const KEEPS_ITS_CONTEXT: &str = "the suite goes on with its context, which a server that has \
    restarted does not know (RFC 2203 section 5.3.3.3: RPCSEC_GSS_CREDPROBLEM)";

/// Way of the suite's calls to the gateway.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Calls<'a> {
    pub(crate) over: Over,
    pub(crate) security: Security,
    /// The realm; `None`: AUTH_SYS.
    pub(crate) kdc: Option<&'a Kdc>,
}

/// Runs everything: minor version 0 on one file system, 1 and 2 on another,
/// concurrently, because both sleep most of the time.
///
/// # Errors
/// If the checkout cannot be used, or `only` names no run.
pub(crate) fn run(
    binary: &Path,
    dir: &Path,
    (over, security): (Over, Security),
    only: &[String],
    totals: &mut Totals,
) -> io::Result<()> {
    let named = |name: &&str| only.iter().any(|wanted| wanted == name);
    let names = || MINOR_ZERO.iter().chain(MINOR_ONE_AND_TWO).map(|run| run.name);
    if names().filter(named).count() < only.len() {
        let known = names().collect::<Vec<_>>().join("\", \"");
        return Err(io::Error::other(format!("--only takes a run of pynfs: \"{known}\"")));
    }
    let kdc = if security == Security::Sys { None } else { Some(start_kdc()?) };
    let checkout = Checkout::prepare(dir, kdc.is_some())?;
    let calls = Calls { over, security, kdc: kdc.as_ref() };
    if let Some(kdc) = &kdc
        && only.is_empty()
    {
        for script in kerberos_clients::SCRIPTS {
            totals.run(script.name, |outcome| {
                kerberos_clients::run(script, binary, &checkout, kdc, outcome)
            });
        }
    }
    let results = std::thread::scope(|scope| {
        let halves = [MINOR_ZERO, MINOR_ONE_AND_TWO].map(|runs| {
            let checkout = &checkout;
            scope.spawn(move || -> Vec<(Outcome, std::time::Duration)> {
                let chosen =
                    |run: &&Run| only.is_empty() || only.iter().any(|name| name == run.name);
                runs.iter().filter(chosen).map(|run| one(binary, checkout, run, calls)).collect()
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

fn start_kdc() -> io::Result<Kdc> {
    packages::ensure(KERBEROS_TOOLS)?;
    Kdc::start()
}

fn one(
    binary: &Path,
    checkout: &Checkout,
    run: &Run,
    calls: Calls<'_>,
) -> (Outcome, std::time::Duration) {
    let begun = Instant::now();
    let over_rdma = if calls.over == Over::Rdma { " over RDMA" } else { "" };
    let by = calls.kdc.map_or(String::new(), |_| format!(" {}", calls.security.name()));
    let mut outcome = Outcome::new(format!("pynfs {}{by}{over_rdma}", run.name));
    if calls.kdc.is_some() && run.kills_the_gateway() {
        let skipped = run.tests.iter().map(|code| format!("{code}: {KEEPS_ITS_CONTEXT}"));
        outcome.skipped.extend(skipped);
        return (outcome, begun.elapsed());
    }
    let result = Plan::new(binary, checkout, run, calls).and_then(|plan| {
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
        Ok(verdicts) => judge(run, calls.security, &verdicts, &mut outcome),
        Err(error) => outcome.failed.push(error.to_string()),
    }
    (outcome, begun.elapsed())
}

fn judge(run: &Run, security: Security, verdicts: &[Verdict], outcome: &mut Outcome) {
    for verdict in verdicts {
        let named = format!("{} {}", verdict.code, verdict.name);
        match verdict.result.as_str() {
            "PASS" => outcome.passed += 1,
            result => match known::reason(&verdict.code, run.minor, security) {
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
