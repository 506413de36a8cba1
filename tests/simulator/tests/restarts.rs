//! A client that restarts in the middle of a request holds nothing of what its old self
//! was granted, and does not say so.

use zgate_simulator::executor::{MILLISECOND, SECOND};
use zgate_simulator::plan::{Fault, Plan, PlannedFault, PlannedStep, Step, Version};
use zgate_simulator::run::run;

fn step(number: u32, pause: u64, step: Step) -> PlannedStep {
    PlannedStep { number, pause, step }
}

/// A client restarts after this time, while it makes its first session, locks a range, and
/// ends the session. Its next one ends its old self's state, and it cannot hear of that while
/// the export is away. Another client gets the range.
fn plan(seed: u64, restart: u64) -> Plan {
    let lock = |write| Step::Lock { range: 1, write };
    let first = vec![
        step(1, restart, Step::Restart),
        step(2, 8 * MILLISECOND, lock(false)),
        step(3, 900 * MILLISECOND, Step::EndSession),
    ];
    let share = vec![step(4, MILLISECOND, Step::Share { access: 1, deny: 3 })];
    let second = vec![step(5, 400 * MILLISECOND, lock(true))];
    let fault = Fault::ExportAway { length: 8 * SECOND };
    Plan {
        seed,
        clients: vec![Version::V4(1), Version::V4(1)],
        steps: vec![vec![first, share], vec![second, Vec::new()]],
        hosts: Vec::new(),
        loader: None,
        tls: None,
        faults: vec![PlannedFault { number: 1, at: 300 * MILLISECOND, fault }],
    }
}

#[test]
fn a_restart_in_the_middle_of_the_first_session_leaves_no_lock_to_believe_in() {
    for quarter in 8..32 {
        let outcome = run(&plan(quarter, quarter * MILLISECOND / 4), None);
        assert_eq!(outcome.violation, None, "{:#?}", outcome.lines);
    }
}
