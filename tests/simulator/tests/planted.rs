//! Planted faults are found, and what is left of their seeds still shows them.

use zgate_simulator::campaign::{Campaign, campaign, silence_panics};
use zgate_simulator::invariant::Invariant;
use zgate_simulator::mutant::Mutant;
use zgate_simulator::plan::Plan;
use zgate_simulator::run::run;
use zgate_simulator::shrink::{Kept, shrink};

/// Most seeds for a planted fault. One limit for all: each change of the schedule moves the
/// first seed of a fault, and says nothing about the checks.
const SEEDS: u64 = 600;

/// The seed that finds a planted fault, and the invariant that it violates.
fn found(mutant: Mutant) -> (u64, Invariant) {
    let (limit, mutant) = (None, Some(mutant));
    let request =
        Campaign { first: 1, count: SEEDS, limit, jobs: 2, failures: 1, mutant, progress: false };
    let done = campaign(&request);
    let (seed, violation) =
        done.failed.first().unwrap_or_else(|| panic!("{mutant:?} is not found by {SEEDS} seeds"));
    (*seed, violation.invariant)
}

/// Those that a few seeds find: without optimisation a seed takes a quarter of a second.
/// `cargo xtask simulate --mutants` has all.
#[test]
fn planted_faults_are_found() {
    silence_panics();
    for mutant in [
        Mutant::StableWriteUnstable,
        Mutant::VerifierKeptAtStart,
        Mutant::ClockRunsFast,
        Mutant::ReplyLost,
        Mutant::NoRecallByV3,
        Mutant::NoTick,
        Mutant::EpochReused,
        Mutant::NamesNotSynced,
        Mutant::ReservationIgnored,
        Mutant::FlushIgnored,
        Mutant::DenyIgnored,
        Mutant::FenceIgnored,
        Mutant::KeyReused,
        Mutant::CreditsDoubled,
        Mutant::ReplySentTwice,
        Mutant::ReadAfterAbort,
        Mutant::LostDataNotMissed,
        Mutant::WindowBeforeMic,
        Mutant::ReplayServed,
        Mutant::ContextOfAnother,
        Mutant::ReplyOfAnother,
        Mutant::ContextsKept,
        Mutant::OffsetAfterReconnect,
        Mutant::DelegationKept,
        Mutant::LeavesWithoutAWord,
        Mutant::PlainServed,
        Mutant::CertificateIgnored,
        Mutant::TagNotChecked,
        Mutant::RecordReplayed,
        Mutant::InjectedBeforeTls,
        Mutant::StallKept,
        Mutant::RevokedServes,
    ] {
        found(mutant);
    }
}

#[test]
fn a_failing_seed_is_cut_and_still_fails() {
    silence_panics();
    let mutant = Mutant::StableWriteUnstable;
    let (seed, invariant) = found(mutant);
    let plan = Plan::new(seed);
    let (all, kept) = (Kept::all(&plan), shrink(&plan, invariant, Some(mutant)));
    assert!(kept.steps.len() < all.steps.len() / 4, "{kept:?} of {all:?}");
    let outcome = run(&plan.only(&kept.steps, &kept.faults), Some(mutant));
    assert_eq!(outcome.violation.map(|violation| violation.invariant), Some(invariant));
}
