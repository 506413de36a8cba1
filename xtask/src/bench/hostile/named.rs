//! The host that an export and a target name: it reads, one request at a time
//! on each, and records the latency of every answer.

use crate::bench::stats::percentile;
use crate::bench::{iscsi, nfs};
use clap::Args;
use serde::{Deserialize, Serialize};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::time::Duration;

/// Name of the target it may use.
pub(super) const OUR_TARGET: &str = "iqn.2026-11.test.zgate:disk";
/// Size of the file and of the disk that are read.
pub(super) const READ_BYTES: u64 = 64 << 20;

/// Arguments of the named host.
#[derive(Args, Debug)]
pub(crate) struct NamedArgs {
    #[arg(long)]
    nfs: SocketAddr,
    #[arg(long)]
    portal: SocketAddr,
    #[arg(long)]
    seconds: u64,
}

/// Latencies of one protocol, in microseconds.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Latency {
    /// Number of reads answered.
    pub(crate) reads: u64,
    /// Median.
    pub(crate) p50_microseconds: u32,
    /// 99th percentile.
    pub(crate) p99_microseconds: u32,
    /// Maximum.
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

/// Latencies of both protocols.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Latencies {
    /// READ over NFSv4.1.
    pub(crate) nfs: Latency,
    /// READ(16) over iSCSI.
    pub(crate) iscsi: Latency,
}

/// Reads over both protocols for the given time, and prints the latencies.
///
/// # Errors
/// The error of either server or connection.
pub(crate) fn run(args: &NamedArgs) -> io::Result<()> {
    let duration = Duration::from_secs(args.seconds);
    let portal = (args.portal, OUR_TARGET);
    let disk = std::thread::spawn(move || iscsi::load::read_for(portal, READ_BYTES, duration));
    let files = nfs::load::read_for(args.nfs, READ_BYTES, duration);
    let disk = disk.join().map_err(|_| io::Error::other("the reader of the disk panicked"))?;
    let said = |what: &str, error: io::Error| io::Error::other(format!("{what}: {error}"));
    let latencies = Latencies {
        nfs: Latency::of(files.map_err(|error| said("NFS", error))?),
        iscsi: Latency::of(disk.map_err(|error| said("iSCSI", error))?),
    };
    writeln!(io::stdout(), "{}", serde_json::to_string(&latencies)?)
}
