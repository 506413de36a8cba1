//! `cargo xtask golden record`: requests of pynfs and libiscsi to a gateway of
//! their own.

use super::calls;
use super::harvest::{Message, harvest};
use super::proxy::Recorder;
use super::stream::Stream;
use crate::packages::{self, ISCSI_TOOLS};
use crate::servers::scratch::run as succeed;
use crate::servers::{Scratch, zgate};
use crate::suite::iscsi::disks::{Backing, OPEN, Rig, Transport, lun};
use crate::suite::pynfs::checkout::Checkout;
use clap::Args;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use zgate_golden::Kind;

/// Our requests, encoded by pynfs.
const PYNFS_CLIENT: &str = "tests/golden/record/pynfs_client.py";
/// Tests of libiscsi that send what kernels do not: aborts of tasks, and data
/// without a request to transfer it.
const LIBISCSI_TESTS: [&str; 2] =
    ["iSCSITMF.AbortTaskSimpleAsync", "iSCSIdatasn.iSCSIDataSnInvalid"];
/// Time limit of a client, in seconds.
const CLIENT_SECONDS: &str = "240";
const IMAGE_BYTES: u64 = 512 << 20;

/// Arguments of `cargo xtask golden record`.
#[derive(Args, Debug)]
pub(crate) struct RecordArgs {
    /// A checkout of pynfs, which is copied
    #[arg(long, value_name = "DIR")]
    pynfs: PathBuf,
    /// Use this gateway instead of building one
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
}

/// Records both clients and writes the files that are missing.
///
/// # Errors
/// A client that fails, a file that cannot be written, or a message that our
/// codec does not read and write as it was.
pub(super) fn run(args: &RecordArgs) -> io::Result<()> {
    let binary = match &args.binary {
        Some(binary) => fs::canonicalize(binary)?,
        None => zgate::build()?,
    };
    harvest(nfs(&binary, &args.pynfs)?, &pynfs_version(&args.pynfs))?;
    packages::ensure(ISCSI_TOOLS)?;
    harvest(iscsi(&binary)?, &libiscsi_version()?)
}

/// The commit of a checkout.
fn pynfs_version(dir: &Path) -> String {
    let mut command = Command::new("git");
    let commit = succeed(command.arg("-C").arg(dir).args(["rev-parse", "--short", "HEAD"]));
    commit.map_or_else(|_| "pynfs".to_owned(), |commit| format!("pynfs {}", commit.trim()))
}

fn libiscsi_version() -> io::Result<String> {
    let mut command = Command::new("dpkg-query");
    let version = succeed(command.args(["-W", "-f=${Version}", "libiscsi-bin"]))?;
    Ok(format!("libiscsi {}", version.trim()))
}

fn nfs(binary: &Path, pynfs: &Path) -> io::Result<Vec<Message>> {
    let checkout = Checkout::prepare(pynfs)?;
    let scratch = Scratch::new(IMAGE_BYTES)?;
    let options = zgate::ZgateOptions { lease_seconds: 10, ..zgate::ZgateOptions::default() };
    let server = zgate::start(binary, &scratch, &options)?;
    let recorder = Recorder::start(server.address)?;
    let mut command = checkout.command("nfs4.1");
    command.arg(fs::canonicalize(PYNFS_CLIENT)?);
    command.args([recorder.address.ip().to_string(), recorder.address.port().to_string()]);
    succeed(&mut limited(&command))?;
    let streams = recorder.finish()?;
    server.stop()?;
    let found = streams.iter().flat_map(calls);
    let message = |(kind, bytes)| Message { kind, bytes, source: PYNFS_CLIENT.to_owned() };
    Ok(found.map(message).collect())
}

fn iscsi(binary: &Path) -> io::Result<Vec<Message>> {
    let rig = Rig::start(binary, Backing::File, Transport::Tcp)?;
    let mut found = Vec::new();
    for test in LIBISCSI_TESTS {
        let recorder = Recorder::start(rig.server.address)?;
        let url = format!("iscsi://{}/{OPEN}/{}", recorder.address, lun::SMALL_PHYSICAL);
        let mut command = Command::new("iscsi-test-cu");
        command.arg("--dataloss").arg(format!("--test=ALL.{test}")).arg(url);
        succeed(&mut limited(&command))?;
        let streams = recorder.finish()?;
        let source = format!("iscsi-test-cu ALL.{test}");
        found.extend(streams.iter().flat_map(Stream::pdus).map(|bytes| Message {
            kind: Kind::Iscsi,
            bytes,
            source: source.clone(),
        }));
    }
    Ok(found)
}

/// The same command with a time limit.
fn limited(command: &Command) -> Command {
    let mut limited = Command::new("timeout");
    limited.arg(CLIENT_SECONDS).arg(command.get_program()).args(command.get_args());
    if let Some(dir) = command.get_current_dir() {
        limited.current_dir(dir);
    }
    limited
}
