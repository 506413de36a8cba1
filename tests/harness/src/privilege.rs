//! Tests that need more than every machine has.

use std::io::Write;

/// Returns whether a test that cannot run here is a failure, as in CI.
fn is_everything_required() -> bool {
    std::env::var("ZGATE_TEST_LOOP").is_ok_and(|value| value == "require")
}

/// Prints a note that a test does not run here, past the harness that captures the
/// output of passing tests.
///
/// # Panics
/// Where everything is required.
pub fn not_run(test: &str, why: &str) {
    assert!(!is_everything_required(), "{test} does not run: {why}");
    // A note that cannot be written has no effect.
    let _ = writeln!(std::io::stderr(), "note: {test} not run: {why}");
}

/// Returns whether clients' state survives the gateway's process. Without root
/// it cannot, because file handles end with the process.
///
/// # Panics
/// Without root, where everything is required.
pub fn handles_survive_restarts(test: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        let why = "file handles end with a process that lacks CAP_DAC_READ_SEARCH; run it as root";
        not_run(test, why);
    }
    root
}
