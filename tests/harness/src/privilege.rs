//! Tests that need more rights than an ordinary user has.

use std::io::Write;

/// Returns whether clients' state survives the gateway's process. Without root
/// it cannot, because file handles end with the process. Prints a note then,
/// past the harness that captures the output of passing tests.
pub fn handles_survive_restarts(test: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        let why = "file handles end with a process that lacks CAP_DAC_READ_SEARCH; run it as root";
        // A note that cannot be written has no effect.
        let _ = writeln!(std::io::stderr(), "note: {test} not run: {why}");
    }
    root
}
