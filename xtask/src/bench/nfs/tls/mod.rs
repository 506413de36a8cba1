//! `cargo xtask bench nfs --tls`: what TLS costs in zgate, beside stunnel in
//! front of a server that has none, and beside this machine's AES-GCM.
//!
//! The client's TLS is in this process, on threads of its own: rates over TLS
//! include it, CPU time is that of the server and its proxy alone.

mod report;
mod setup;

use super::work::Work;
use super::{BenchArgs, binary, measure_at, tell};
use crate::servers::scratch::run as run_command;
use crate::servers::{Scratch, ServerProcess};
use setup::Setup;
use std::io;
use std::process::Command;

/// Loads, in the order they run.
const WORKS: [Work; 3] = [Work::ReadOne, Work::Read, Work::Write];

/// Ciphers whose speed is measured, by their name in OpenSSL.
const CIPHERS: [&str; 2] = ["aes-128-gcm", "aes-256-gcm"];

/// Bytes that are encrypted at once: the most of a record.
const RECORD_BYTES: &str = "16384";

/// Runs the benchmark.
///
/// # Errors
/// A message naming what is missing or failed.
pub(crate) fn run(args: &BenchArgs) -> io::Result<()> {
    crate::packages::ensure(crate::packages::TLS_PEERS)?;
    if !args.alone {
        crate::packages::ensure(crate::packages::NFS_PEERS)?;
    }
    let binary = binary(args)?;
    let scratch = Scratch::new((args.size_mib * 7 + 1024) << 20)?;
    let Setup { contenders, mut report } = Setup::start(args, &binary, &scratch)?;
    for one in &contenders {
        // A file that is written for the first time costs more.
        measure_at(args, (one.address, one.dir), Work::Write, &[])?;
    }
    for round in 0..args.rounds {
        eprintln!("round {} of {}", round + 1, args.rounds);
        for cipher in CIPHERS {
            report.ciphers.entry(cipher).or_default().push(cipher_speed(cipher)?);
        }
        for work in WORKS {
            // The order rotates from round to round.
            for index in 0..contenders.len() {
                let one = &contenders[(index + round) % contenders.len()];
                let processes: Vec<&ServerProcess> =
                    one.processes.iter().map(|process| &**process).collect();
                let figure = measure_at(args, (one.address, one.dir), work, &processes)?;
                report.figures.entry((work, one.name.clone())).or_default().push(figure);
            }
        }
    }
    tell(args, "nfs-tls", &report.to_json(), || report.table())
}

/// Returns the bytes a second that OpenSSL encrypts on one core, in records of
/// TLS.
fn cipher_speed(cipher: &str) -> io::Result<f64> {
    let mut command = Command::new("openssl");
    command.args(["speed", "-mr", "-seconds", "1", "-bytes", RECORD_BYTES, "-evp", cipher]);
    let said = run_command(&mut command)?;
    parse_speed(&said).ok_or_else(|| io::Error::other(format!("openssl speed says: {said}")))
}

/// Parses the form that OpenSSL prints for machines: `+F:25:AES-256-GCM:BYTES`.
fn parse_speed(said: &str) -> Option<f64> {
    let line = said.lines().find(|line| line.starts_with("+F:"))?;
    line.rsplit(':').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::parse_speed;

    #[test]
    fn the_speed_of_a_cipher_is_found() {
        let said = "+H:16384\n+F:25:AES-256-GCM:3598581760.00\n";
        assert_eq!(parse_speed(said), Some(3_598_581_760.0));
        assert_eq!(parse_speed("no such cipher"), None);
    }
}
