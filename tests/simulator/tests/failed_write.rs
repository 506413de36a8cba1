//! A write that has failed, as its client was told, although an earlier attempt stored it.

use zgate_simulator::executor::{MILLISECOND, SECOND};
use zgate_simulator::plan::{Fault, Plan, PlannedFault, PlannedStep, Step, Version};
use zgate_simulator::run::run;

/// Number of seeds: they decide about delays, transports and Kerberos.
const SEEDS: u64 = 16;

/// A client of NFSv4.1 writes a block, not stable, and 1 s later its next version, stable, which
/// the disk stores after 3 s. In the middle of that the connection breaks. The client repeats the
/// request until it learns that it has run, and that the reply was not kept: it sends another
/// one, mostly when the disk is full. When there is space again, it commits.
fn plan(seed: u64) -> Plan {
    let read = Step::Read { client: 0, block: 0 };
    let steps = [
        (SECOND, Step::Write { block: 0, stable: false }),
        (SECOND, Step::Write { block: 0, stable: true }),
        (SECOND, read),
        (4 * SECOND, Step::Commit),
        (SECOND, read),
    ];
    let steps = (1..).zip(steps).map(|(number, (pause, step))| PlannedStep { number, pause, step });
    let faults = [
        (1500 * MILLISECOND, Fault::HoldWrite { length: 3 * SECOND }),
        (3 * SECOND, Fault::Cut { client: 0 }),
        (5100 * MILLISECOND, Fault::Full { length: 3 * SECOND }),
    ];
    let faults = (1..).zip(faults).map(|(number, (at, fault))| PlannedFault { number, at, fault });
    Plan {
        seed,
        clients: vec![Version::V4(1), Version::V3],
        steps: vec![vec![steps.collect(), Vec::new()], vec![Vec::new(), Vec::new()]],
        hosts: Vec::new(),
        loader: None,
        tls: None,
        faults: faults.collect(),
    }
}

#[test]
fn the_version_before_a_failed_write_is_not_written_over_it() {
    let is_stored_and_failed = |seed: &u64| {
        let outcome = run(&plan(*seed), None);
        assert_eq!(outcome.violation, None, "{:#?}", outcome.lines);
        let has = |text: &str| outcome.lines.iter().any(|line| line.contains(text));
        has("WRITE 2: Failed") && has("READ Register { client: 0, block: 0 }: Some(2)")
    };
    let shown = (1..=SEEDS).filter(is_stored_and_failed).count();
    assert!(shown > 0, "no seed had a write that was stored and failed");
}
