//! A client of Kerberos that breaks the rules: `tests/kerberos/hostile.py`.

use super::checkout::Checkout;
use crate::servers::kdc::Kdc;
use crate::servers::{Scratch, zgate};
use crate::totals::Outcome;
use std::io;
use std::path::Path;

const SCRIPT: &str = "tests/kerberos/hostile.py";
/// Least number of checks; fewer are a failure.
const LEAST: usize = 8;

/// Runs the client against a gateway of its own.
///
/// # Errors
/// If the gateway does not start, or the client cannot be started.
pub(super) fn run(
    binary: &Path,
    checkout: &Checkout,
    kdc: &Kdc,
    outcome: &mut Outcome,
) -> io::Result<()> {
    let scratch = Scratch::new(64 << 20)?;
    let options = zgate::ZgateOptions {
        keytab: Some(kdc.keytab()),
        environment: kdc.environment().to_vec(),
        ..zgate::ZgateOptions::default()
    };
    let server = zgate::start(binary, &scratch, &options)?;
    let mut command = checkout.python();
    command.arg(SCRIPT).arg(server.address.port().to_string()).envs(kdc.environment());
    let output = command.output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut checks = 0;
    for line in text.lines() {
        let Some((verdict, name)) = line.split_once(' ') else { continue };
        let said = || format!("{verdict} {name}");
        outcome.check(name, if verdict == "PASS" { Ok(()) } else { Err(said()) });
        checks += 1;
    }
    if checks < LEAST {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        outcome.failed.push(format!("only {checks} of {LEAST} checks ran: {said}"));
    }
    server.stop()
}
