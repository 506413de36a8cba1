//! Clients of Kerberos of our own, with MIT's library: one that breaks the rules, and
//! one that is called back (`tests/kerberos`).

use super::checkout::Checkout;
use crate::servers::kdc::Kdc;
use crate::servers::{Scratch, zgate};
use crate::totals::Outcome;
use std::io;
use std::path::Path;

/// A client: its script, and the least number of its checks; fewer are a failure.
#[derive(Clone, Copy, Debug)]
pub(super) struct Script {
    pub(super) name: &'static str,
    path: &'static str,
    least: usize,
}

/// All of them.
pub(super) const SCRIPTS: [Script; 2] = [
    Script { name: "a hostile client of Kerberos", path: "tests/kerberos/hostile.py", least: 8 },
    Script { name: "callbacks under Kerberos", path: "tests/kerberos/callbacks.py", least: 7 },
];

/// Runs a client against a gateway of its own.
///
/// # Errors
/// If the gateway does not start, or the client cannot be started.
pub(super) fn run(
    script: Script,
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
    command.arg(script.path).arg(server.address.port().to_string());
    command.arg(kdc.process_id().to_string());
    command.envs(kdc.environment()).env("CLIENT_KEYTAB", kdc.client_keytab());
    let output = command.output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut checks = 0;
    for line in text.lines() {
        let Some((verdict, name)) = line.split_once(' ') else { continue };
        let said = || format!("{verdict} {name}");
        outcome.check(name, if verdict == "PASS" { Ok(()) } else { Err(said()) });
        checks += 1;
    }
    if checks < script.least {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        outcome.failed.push(format!("only {checks} of {} checks ran: {said}", script.least));
    }
    server.stop()
}
