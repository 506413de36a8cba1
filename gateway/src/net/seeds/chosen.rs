//! The seeds of a test, and the report of one that fails.

use std::panic::AssertUnwindSafe;

/// Environment variable with the only seed to run.
const ONE: &str = "ZGATE_SEED";
/// Environment variable with the number of seeds to run.
const MANY: &str = "ZGATE_SEEDS";

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text}: must be a number")))
}

/// Runs a test with each chosen seed: the first `usual` ones, unless the environment says
/// otherwise. `test` is its path in the crate.
///
/// # Panics
/// With the seed that fails, the reason, and the command that runs it again.
pub(crate) fn for_each_seed<T>(test: &str, usual: u64, run: impl Fn(u64) -> Result<T, String>) {
    let seeds = match number(ONE) {
        Some(one) => one..=one,
        None => 1..=number(MANY).unwrap_or(usual),
    };
    for seed in seeds {
        if let Err(violation) = caught(|| run(seed)) {
            panic!(
                "seed {seed}: {violation}\nagain: {ONE}={seed} cargo test -p zgate-gateway --lib \
                 {test} -- --exact"
            );
        }
    }
}

/// Runs a seed; a panic is an error, too.
pub(crate) fn caught<T>(run: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    std::panic::catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        Err(format!("panicked: {}", text.unwrap_or_default()))
    })
}

/// Returns the first seed with which a test fails, out of `most`, and the reason.
pub(crate) fn first_failure<T>(
    most: u64,
    run: impl Fn(u64) -> Result<T, String>,
) -> Option<(u64, String)> {
    (1..=most).find_map(|seed| caught(|| run(seed)).err().map(|reason| (seed, reason)))
}
