//! libnfs's tools, an independent client, over NFSv3 and NFSv4.0.

use crate::bridge::Bridge;
use crate::servers::scratch::run as succeed;
use crate::servers::{Scratch, zgate};
use crate::suite::pynfs::Over;
use crate::totals::Outcome;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;

/// Largest file that the tools can write over NFSv4, in bytes: above this,
/// libnfs 4.0 itself fails before anything is sent, against every server.
const V4_UPLOAD_BYTES: usize = 3000;

/// Sizes around the boundaries of transfers.
const SIZES: &[usize] = &[0, 1, 3000, 4096, 65_537, 1 << 20, (3 << 20) + 5];

struct Rig<'a> {
    scratch: &'a Scratch,
    port: u16,
    version: u32,
}

impl Rig<'_> {
    fn url(&self, path: &str) -> String {
        let port = self.port;
        let mount = if self.version == 3 { format!("&mountport={port}") } else { String::new() };
        format!("nfs://127.0.0.1/export/{path}?version={}&nfsport={port}{mount}", self.version)
    }

    /// Uploads with nfs-cp, downloads with nfs-cat, and compares with the file
    /// on disk.
    fn round_trip(&self, size: usize) -> io::Result<()> {
        let name = format!("v{}-{size}", self.version);
        let bytes: Vec<u8> = (0..size).map(|index| (index * 31 / 7) as u8).collect();
        let exported = self.scratch.export().join(&name);
        if self.version == 4 && size > V4_UPLOAD_BYTES {
            fs::write(&exported, &bytes)?;
        } else {
            let local = self.scratch.path().join("upload");
            fs::write(&local, &bytes)?;
            succeed(Command::new("nfs-cp").arg(&local).arg(self.url(&name)))?;
        }
        if fs::read(&exported)? != bytes {
            return Err(io::Error::other("the file on disk differs from what nfs-cp wrote"));
        }
        let output = Command::new("nfs-cat").arg(self.url(&name)).output()?;
        if !output.status.success() || output.stdout != bytes {
            return Err(io::Error::other("nfs-cat returned something else"));
        }
        Ok(())
    }

    /// Lists a directory of many names.
    fn listing(&self) -> io::Result<()> {
        let dir = self.scratch.export().join(format!("many{}", self.version));
        fs::create_dir_all(&dir)?;
        for number in 0..1000 {
            fs::write(dir.join(format!("entry-{number:04}")), b"")?;
        }
        let text = succeed(Command::new("nfs-ls").arg(self.url(&format!("many{}", self.version))))?;
        let mut names: Vec<&str> =
            text.split_whitespace().filter(|word| word.starts_with("entry-")).collect();
        names.sort_unstable();
        let before = names.len();
        names.dedup();
        if (before, names.len()) == (1000, 1000) {
            Ok(())
        } else {
            Err(io::Error::other(format!("{before} names listed, {} different", names.len())))
        }
    }

    fn missing(&self) -> io::Result<()> {
        let output = Command::new("nfs-cat").arg(self.url("no-such-file")).output()?;
        if output.status.success() {
            return Err(io::Error::other("a file that does not exist was read"));
        }
        Ok(())
    }
}

/// Runs all tests against a gateway of its own.
///
/// # Errors
/// If the gateway does not start.
pub(crate) fn run(binary: &Path, over: Over, outcome: &mut Outcome) -> io::Result<()> {
    let scratch = Scratch::new(256 << 20)?;
    let rdma_port = (over == Over::Rdma).then(zgate::free_port).transpose()?;
    let options =
        zgate::ZgateOptions { lease_seconds: 10, rdma_port, ..zgate::ZgateOptions::default() };
    let server = zgate::start(binary, &scratch, &options)?;
    let fabric = rdma_port.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    let bridge = fabric.map(Bridge::start).transpose()?;
    let port = bridge.as_ref().map_or(server.address.port(), |bridge| bridge.address.port());
    for version in [3, 4] {
        let rig = Rig { scratch: &scratch, port, version };
        let say = |result: io::Result<()>| result.map_err(|error| error.to_string());
        for size in SIZES {
            let name = format!("v{version} round trip of {size} bytes");
            outcome.check(&name, say(rig.round_trip(*size)));
        }
        outcome.check(&format!("v{version} listing of 1000 names"), say(rig.listing()));
        outcome.check(&format!("v{version} missing file"), say(rig.missing()));
    }
    if let Some(bridge) = &bridge {
        eprintln!("   {}", bridge.tally.line());
        for way in ["read chunks", "write chunks", "reply chunks"] {
            let used = if bridge.tally.count(way) > 0 { Ok(()) } else { Err("none".to_owned()) };
            outcome.check(way, used);
        }
    }
    drop(bridge);
    server.stop()
}
