//! The first command of the README, with a short run time.

use crate::servers::scratch::run as succeed;
use crate::servers::zgate::free_port;
use crate::totals::Outcome;
use std::io;
use std::path::Path;
use std::process::Command;

/// Runs `zgate demo --once`, with generated files and with a given directory.
///
/// # Errors
/// The error of the operating system.
pub(crate) fn run(binary: &Path, outcome: &mut Outcome) -> io::Result<()> {
    let (port, metrics) = (free_port()?, free_port()?);
    let demo = |extra: &[&str]| {
        let mut command = Command::new(binary);
        command
            .args(["demo", "--once", "--json"])
            .args(["--port", &port.to_string(), "--metrics-port", &metrics.to_string()])
            .args(extra);
        succeed(&mut command).map(|_| ()).map_err(|error| error.to_string())
    };
    outcome.check("generated model", demo(&["--size", "64MiB"]));
    let dir = tempfile::tempdir()?;
    std::fs::write(dir.path().join("config.json"), b"{}")?;
    std::fs::write(dir.path().join("weights.bin"), vec![7; 3 << 20])?;
    let path = dir.path().display().to_string();
    outcome.check("a directory of one's own", demo(&["--model", &path]));
    Ok(())
}
