//! tgt as packaged by Debian: the peer of the iSCSI benchmark.

use super::{Scratch, ServerProcess, scratch::run};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;

/// Name in tables.
pub(crate) const NAME: &str = "tgt";

/// Name of its target.
pub(crate) const TARGET: &str = "iqn.2026-11.test.tgt:disk";

/// Returns an unused control port.
fn control() -> String {
    (1000 + std::process::id() % 30_000).to_string()
}

fn tgtadm(args: &[&str]) -> io::Result<()> {
    run(Command::new("tgtadm").args(["-C", &control(), "--lld", "iscsi"]).args(args)).map(|_| ())
}

/// Starts it with `disk` as LUN 1, open to everyone on the loopback interface.
///
/// # Errors
/// If it is not installed or does not start.
pub(crate) fn start(scratch: &Scratch, disk: &Path) -> io::Result<ServerProcess> {
    let port = super::zgate::free_port()?;
    let mut command = Command::new("tgtd");
    let portal = format!("portal=127.0.0.1:{port}");
    command.args(["-f", "-C", &control(), "--iscsi", &portal]);
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let server = ServerProcess::start(NAME, command, address, &scratch.path().join("tgt.log"))?;
    let disk = disk.display().to_string();
    tgtadm(&["--op", "new", "--mode", "target", "--tid", "1", "-T", TARGET])?;
    let unit = ["--op", "new", "--mode", "logicalunit", "--tid", "1", "--lun", "1", "-b", &disk];
    tgtadm(&unit)?;
    tgtadm(&["--op", "bind", "--mode", "target", "--tid", "1", "-I", "ALL"])?;
    Ok(server)
}
