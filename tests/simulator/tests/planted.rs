//! Planted faults are found, and what is left of their seeds still shows them.

use zgate_simulator::campaign::{Campaign, campaign, silence_panics};
use zgate_simulator::invariant::Invariant;
use zgate_simulator::mutant::Mutant;
use zgate_simulator::plan::Plan;
use zgate_simulator::run::run;
use zgate_simulator::shrink::{Kept, shrink};

/// The seed that finds a planted fault, and the invariant that it violates.
fn found(mutant: Mutant, seeds: u64) -> (u64, Invariant) {
    let (limit, mutant) = (None, Some(mutant));
    let request = Campaign { first: 1, count: seeds, limit, jobs: 2, mutant, progress: false };
    let done = campaign(&request);
    let (seed, violation) =
        done.failed.first().unwrap_or_else(|| panic!("{mutant:?} is not found by {seeds} seeds"));
    (*seed, violation.invariant)
}

#[test]
fn planted_faults_are_found() {
    silence_panics();
    for (mutant, seeds) in [
        (Mutant::StableWriteUnstable, 30),
        (Mutant::VerifierKeptAtStart, 100),
        (Mutant::WriteBehindAnswer, 100),
        (Mutant::ClockRunsFast, 60),
        (Mutant::ReplyLost, 60),
        (Mutant::NoRecallByV3, 100),
        (Mutant::NoTick, 20),
        (Mutant::EpochReused, 100),
        (Mutant::NamesNotSynced, 30),
        (Mutant::ReservationIgnored, 60),
        (Mutant::FlushIgnored, 60),
        (Mutant::AbortAnsweredEarly, 300),
        (Mutant::DenyIgnored, 60),
        (Mutant::FenceIgnored, 600),
        (Mutant::KeyReused, 60),
        (Mutant::CreditsDoubled, 400),
        (Mutant::ReplySentTwice, 60),
        (Mutant::ReadAfterAbort, 100),
    ] {
        found(mutant, seeds);
    }
}

#[test]
fn a_failing_seed_is_cut_and_still_fails() {
    silence_panics();
    let mutant = Mutant::StableWriteUnstable;
    let (seed, invariant) = found(mutant, 30);
    let plan = Plan::new(seed);
    let (all, kept) = (Kept::all(&plan), shrink(&plan, invariant, Some(mutant)));
    assert!(kept.steps.len() < all.steps.len() / 4, "{kept:?} of {all:?}");
    let outcome = run(&plan.only(&kept.steps, &kept.faults), Some(mutant));
    assert_eq!(outcome.violation.map(|violation| violation.invariant), Some(invariant));
}
