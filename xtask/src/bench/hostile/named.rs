//! The host that an export and a target name: it reads, one request at a time
//! on each, and notes how long every answer took.

use crate::bench::stats::percentile;
use crate::bench::{iscsi, nfs};
use clap::Args;
use serde::{Deserialize, Serialize};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::time::Duration;

/// The target it may use.
pub(super) const OUR_TARGET: &str = "iqn.2026-11.test.zgate:disk";

/// What it is told.
#[derive(Args, Debug)]
pub(crate) struct NamedArgs {
    #[arg(long)]
    nfs: SocketAddr,
    #[arg(long)]
    portal: SocketAddr,
    #[arg(long)]
    seconds: u64,
}

/// Answers of one protocol, in microseconds.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Latency {
    /// Reads that were answered.
    pub(crate) reads: u64,
    /// Half of them took no longer.
    pub(crate) p50_microseconds: u32,
    /// 99 of 100 took no longer.
    pub(crate) p99_microseconds: u32,
    /// The slowest one.
    pub(crate) longest_microseconds: u32,
}

impl Latency {
    fn of(mut samples: Vec<u32>) -> Self {
        samples.sort_unstable();
        Self {
            reads: samples.len() as u64,
            p50_microseconds: percentile(&samples, 0.50),
            p99_microseconds: percentile(&samples, 0.99),
            longest_microseconds: samples.last().copied().unwrap_or_default(),
        }
    }
}

/// Answers of both.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Latencies {
    /// READ over NFSv4.1.
    pub(crate) nfs: Latency,
    /// READ(16) over iSCSI.
    pub(crate) iscsi: Latency,
}

/// Reads for as long as it is told, both at once, and prints the latencies.
///
/// # Errors
/// What either server or connection says.
pub(crate) fn run(args: &NamedArgs) -> io::Result<()> {
    let duration = Duration::from_secs(args.seconds);
    let portal = (args.portal, OUR_TARGET);
    let disk =
        std::thread::spawn(move || iscsi::load::read_for(portal, super::READ_BYTES, duration));
    let files = nfs::load::read_for(args.nfs, super::READ_BYTES, duration);
    let disk = disk.join().map_err(|_| io::Error::other("the reader of the disk panicked"))?;
    let said = |what: &str, error: io::Error| io::Error::other(format!("{what}: {error}"));
    let latencies = Latencies {
        nfs: Latency::of(files.map_err(|error| said("NFS", error))?),
        iscsi: Latency::of(disk.map_err(|error| said("iSCSI", error))?),
    };
    writeln!(io::stdout(), "{}", serde_json::to_string(&latencies)?)
}
