//! A seed has one trace, byte for byte: in one process and in two.

use std::process::Command;
use zgate_simulator::campaign::{Campaign, campaign};
use zgate_simulator::plan::Plan;
use zgate_simulator::run::run;

/// Seeds with faults of several kinds.
const SEEDS: [u64; 7] = [1, 2, 3, 4, 322, 858, 900];

#[test]
fn a_seed_has_one_trace_in_one_process() {
    for seed in SEEDS {
        let (first, second) = (run(&Plan::new(seed), None), run(&Plan::new(seed), None));
        assert_eq!(first.lines, second.lines, "seed {seed}");
        assert_eq!(first.hash, second.hash, "seed {seed}");
        assert_eq!(first.violation, None, "seed {seed}");
    }
    assert!(SEEDS.iter().any(|seed| Plan::new(*seed).loader.is_some()), "a loader is among them");
    let with_tls: Vec<_> = SEEDS.iter().filter_map(|seed| Plan::new(*seed).tls).collect();
    assert!(with_tls.iter().any(|tls| tls.is_mutual), "certificates are among them");
    assert_ne!(run(&Plan::new(1), None).hash, run(&Plan::new(2), None).hash);
}

#[test]
fn a_seed_has_one_trace_in_two_processes() {
    for seed in SEEDS {
        let here = run(&Plan::new(seed), None).hash;
        let output = Command::new(env!("CARGO_BIN_EXE_zgate-simulator"))
            .args(["--trace", "--seed", &seed.to_string()])
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{text}");
        let last = text.lines().last().unwrap();
        assert_eq!(last, format!("seed {seed}, trace {here}"));
    }
}

#[test]
fn the_sum_of_traces_does_not_depend_on_the_number_of_threads() {
    let sum = |first, jobs| {
        let (limit, mutant) = (None, None);
        let all = Campaign { first, count: 12, limit, jobs, failures: 1, mutant, progress: false };
        campaign(&all).traces
    };
    assert_eq!(sum(40, 1), sum(40, 3));
    assert_ne!(sum(40, 1), sum(41, 1));
}
