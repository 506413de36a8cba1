//! `cargo xtask golden record`: requests of pynfs and libiscsi to a gateway,
//! callbacks of pynfs, and PDUs of tgt to libiscsi.

use super::harvest::{Message, harvest};
use super::proxy::{Recorder, Recording};
use super::{callbacks, calls};
use crate::packages::{self, ISCSI_TOOLS, Tool};
use crate::servers::scratch::run as succeed;
use crate::servers::{Scratch, tgt, zgate};
use crate::suite::iscsi::disks::{Backing, OPEN, Rig, Transport, lun};
use crate::suite::pynfs::checkout::Checkout;
use clap::Args;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use zgate_golden::Kind;

/// Our requests, encoded by pynfs.
const PYNFS_CLIENT: &str = "tests/golden/record/pynfs_client.py";
/// A server's callbacks, encoded by pynfs.
const PYNFS_SERVER: &str = "tests/golden/record/pynfs_server.py";
/// Tests of libiscsi that send what kernels do not: aborts of tasks, and data
/// without a request to transfer it.
const REQUEST_TESTS: [&str; 2] =
    ["iSCSITMF.AbortTaskSimpleAsync", "iSCSIdatasn.iSCSIDataSnInvalid"];
/// Tests that a target answers with R2Ts, data, statuses and results of aborts.
const RESPONSE_TESTS: [&str; 2] = ["iSCSITMF.AbortTaskSimpleAsync", "Write10.Simple"];
/// QEMU sends a NOP-Out every five seconds.
const QEMU_WAIT: &str = "sleep 6000";
const TARGET_TOOLS: &[Tool] =
    &[Tool { program: "tgtd", package: "tgt" }, Tool { program: "qemu-io", package: "qemu-utils" }];
/// Time limit of a client, in seconds.
const CLIENT_SECONDS: &str = "240";
const IMAGE_BYTES: u64 = 512 << 20;
const DISK_BYTES: u64 = 64 << 20;

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

/// Records all of them and writes the files that are missing.
///
/// # Errors
/// A client or server that fails, a file that cannot be written, or a message
/// that our codec does not read and write as it was.
pub(super) fn run(args: &RecordArgs) -> io::Result<()> {
    packages::ensure(&[ISCSI_TOOLS, TARGET_TOOLS].concat())?;
    let binary = match &args.binary {
        Some(binary) => fs::canonicalize(binary)?,
        None => zgate::build()?,
    };
    let checkout = Checkout::prepare(&args.pynfs, false)?;
    harvest(pynfs(&binary, &checkout)?, &commit_of(&args.pynfs))?;
    harvest(libiscsi(&binary)?, &format!("libiscsi {}", version_of("libiscsi-bin")?))?;
    harvest(from_pynfs(&checkout)?, &commit_of(&args.pynfs))?;
    harvest(from_tgt()?, &format!("tgt {}", version_of("tgt")?))
}

/// The commit of a checkout of pynfs.
fn commit_of(dir: &Path) -> String {
    let mut command = Command::new("git");
    let commit = succeed(command.arg("-C").arg(dir).args(["rev-parse", "--short", "HEAD"]));
    commit.map_or_else(|_| "pynfs".to_owned(), |commit| format!("pynfs {}", commit.trim()))
}

fn version_of(package: &str) -> io::Result<String> {
    let mut command = Command::new("dpkg-query");
    Ok(succeed(command.args(["-W", "-f=${Version}", package]))?.trim().to_owned())
}

/// Requests of pynfs to a gateway.
fn pynfs(binary: &Path, checkout: &Checkout) -> io::Result<Vec<Message>> {
    let scratch = Scratch::new(IMAGE_BYTES)?;
    let options = zgate::ZgateOptions { lease_seconds: 10, ..zgate::ZgateOptions::default() };
    let server = zgate::start(binary, &scratch, &options)?;
    let recordings = pynfs_client(checkout, server.address)?;
    server.stop()?;
    let found = recordings.iter().flat_map(|recording| calls(&recording.sent));
    Ok(found.map(|(kind, bytes)| Message { kind, bytes, source: PYNFS_CLIENT.into() }).collect())
}

/// Callbacks of pynfs as a server, to itself.
fn from_pynfs(checkout: &Checkout) -> io::Result<Vec<Message>> {
    let port = zgate::free_port()?;
    let recorder = Recorder::start(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
    let mut command = checkout.command("nfs4.1");
    command.arg(fs::canonicalize(PYNFS_SERVER)?);
    command.args([recorder.address.port(), port].map(|port| port.to_string()));
    succeed(&mut limited(&command))?;
    let recordings = recorder.finish()?;
    let found = recordings.iter().flat_map(|recording| callbacks(&recording.sent));
    let message =
        |bytes| Message { kind: Kind::CallbackCall, bytes, source: PYNFS_SERVER.to_owned() };
    Ok(found.map(message).collect())
}

fn pynfs_client(checkout: &Checkout, server: SocketAddr) -> io::Result<Vec<Recording>> {
    let recorder = Recorder::start(server)?;
    let mut command = checkout.command("nfs4.1");
    command.arg(fs::canonicalize(PYNFS_CLIENT)?);
    command.args([recorder.address.ip().to_string(), recorder.address.port().to_string()]);
    succeed(&mut limited(&command))?;
    recorder.finish()
}

/// Requests of libiscsi to a gateway.
fn libiscsi(binary: &Path) -> io::Result<Vec<Message>> {
    let rig = Rig::start(binary, Backing::File, Transport::Tcp)?;
    let unit = format!("{OPEN}/{}", lun::SMALL_PHYSICAL);
    let mut found = Vec::new();
    for test in REQUEST_TESTS {
        for recording in iscsi_client(rig.server.address, &libiscsi_test(test, &unit))? {
            let source = format!("iscsi-test-cu ALL.{test}");
            let pdus = recording.sent.requests().into_iter();
            found.extend(pdus.map(|bytes| Message {
                kind: Kind::Iscsi,
                bytes,
                source: source.clone(),
            }));
        }
    }
    Ok(found)
}

/// PDUs of tgt to libiscsi and QEMU.
fn from_tgt() -> io::Result<Vec<Message>> {
    let scratch = Scratch::new(IMAGE_BYTES)?;
    let disk = scratch.path().join("disk");
    fs::File::create(&disk)?.set_len(DISK_BYTES)?;
    let server = tgt::start(&scratch, &disk)?;
    let unit = format!("{}/1", tgt::TARGET);
    let mut found = Vec::new();
    let mut clients: Vec<Vec<String>> =
        RESPONSE_TESTS.iter().map(|test| libiscsi_test(test, &unit)).collect();
    clients.push(["iscsi-ls", "iscsi://PORTAL"].map(str::to_owned).to_vec());
    let image = format!("driver=iscsi,transport=tcp,portal=PORTAL,target={},lun=1", tgt::TARGET);
    clients.push(["qemu-io", "--image-opts", &image, "-c", QEMU_WAIT].map(str::to_owned).to_vec());
    for client in clients {
        let source = format!("{} to tgt", client[0]);
        for recording in iscsi_client(server.address, &client)? {
            let pdus = recording.received.responses().into_iter();
            found.extend(pdus.map(|bytes| Message {
                kind: Kind::IscsiTarget,
                bytes,
                source: source.clone(),
            }));
        }
    }
    Ok(found)
}

/// The command of a test; `PORTAL` stands for the address.
fn libiscsi_test(test: &str, unit: &str) -> Vec<String> {
    let (test, url) = (format!("--test=ALL.{test}"), format!("iscsi://PORTAL/{unit}"));
    ["iscsi-test-cu", "--dataloss", &test, &url].map(str::to_owned).to_vec()
}

fn iscsi_client(server: SocketAddr, client: &[String]) -> io::Result<Vec<Recording>> {
    let recorder = Recorder::start(server)?;
    let portal = recorder.address.to_string();
    let words = client.iter().map(|word| word.replace("PORTAL", &portal));
    succeed(Command::new("timeout").arg(CLIENT_SECONDS).args(words))?;
    recorder.finish()
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
