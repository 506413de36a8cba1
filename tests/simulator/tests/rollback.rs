//! A rollback to a snapshot under clients that have not committed, and that hold delegations.

use zgate_simulator::executor::{MILLISECOND, SECOND};
use zgate_simulator::invariant::Invariant;
use zgate_simulator::mutant::Mutant;
use zgate_simulator::plan::{Fault, Plan, PlannedFault, PlannedStep, Step, Version};
use zgate_simulator::run::run;

/// Number of seeds: they decide about delays, transports and Kerberos.
const SEEDS: u64 = 8;

fn steps(steps: &[(u64, Step)], first: u32) -> Vec<PlannedStep> {
    let numbered = (first..).zip(steps.iter().copied());
    numbered.map(|(number, (pause, step))| PlannedStep { number, pause, step }).collect()
}

/// An NFSv3 client writes a version of a block before the snapshot, and another one, stable or
/// not, 1 s behind it. The rollback is 9 s behind the snapshot; 2 s later the client commits.
fn plan(seed: u64, stable: bool, reader: &[(u64, Step)]) -> Plan {
    let block = 0;
    let mut writer = vec![
        (SECOND, Step::Write { block, stable: true }),
        (2 * SECOND, Step::Write { block, stable }),
    ];
    if !stable {
        writer.push((10 * SECOND, Step::Commit));
    }
    let fault = Fault::Rollback { after: 8 * SECOND, away: SECOND };
    Plan {
        seed,
        clients: vec![Version::V3, Version::V4(1)],
        steps: vec![vec![steps(&writer, 1), Vec::new()], vec![steps(reader, 11), Vec::new()]],
        hosts: Vec::new(),
        loader: None,
        tls: None,
        faults: vec![PlannedFault { number: 1, at: 2 * SECOND, fault }],
    }
}

/// The first violation of some seeds; without one they are all clean.
fn violated(mutant: Option<Mutant>, plan: impl Fn(u64) -> Plan) -> Option<Invariant> {
    (1..=SEEDS).find_map(|seed| {
        let outcome = run(&plan(seed), mutant);
        let has_rolled_back = outcome.lines.iter().any(|line| line.contains("rollback:"));
        assert!(has_rolled_back || outcome.violation.is_some(), "{:#?}", outcome.lines);
        outcome.violation.map(|violation| violation.invariant)
    })
}

#[test]
fn what_is_committed_behind_a_rollback_is_there() {
    let read = [(15 * SECOND, Step::Read { client: 0, block: 0 })];
    let unstable = |seed| plan(seed, false, &read);
    assert_eq!(violated(None, unstable), None);
    let kept = violated(Some(Mutant::RollbackKeepsVerifier), unstable);
    assert_eq!(kept, Some(Invariant::VerifierChanges));
}

#[test]
fn nobody_reads_from_a_cache_for_long_what_a_rollback_took_away() {
    let read = [
        // Beyond the time for which a write without an open prevents delegations.
        (7500 * MILLISECOND, Step::Delegate { client: 0 }),
        (28 * SECOND, Step::ReadCached { client: 0, block: 0 }),
    ];
    let stable = |seed| plan(seed, true, &read);
    assert_eq!(violated(None, stable), None);
    let kept = violated(Some(Mutant::RollbackRecallsNothing), stable);
    assert_eq!(kept, Some(Invariant::FreshDelegation));
}
