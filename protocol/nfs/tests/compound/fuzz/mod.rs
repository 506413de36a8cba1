//! Requests nobody would send, and sequences nobody thought of.
//!
//! Every run with the same `PROPTEST_RNG_SEED` (default 1) is the same run;
//! `PROPTEST_CASES` makes it longer.

mod bytes;
mod model;
mod walk;

use proptest::test_runner::{Config, RngSeed};

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// How many cases to run, and from which seed; the seed is printed.
fn config(cases: u32) -> Config {
    let seed = number("PROPTEST_RNG_SEED").unwrap_or(1);
    println!("PROPTEST_RNG_SEED={seed}");
    Config {
        cases: number("PROPTEST_CASES").map_or(cases, |cases| cases as u32),
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: None,
        max_shrink_iters: 2000,
        ..Config::default()
    }
}
