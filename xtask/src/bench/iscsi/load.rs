//! Load generator: one session and one thread, in a separate process.

use crate::bench::stats::percentile;
use bytes::Bytes;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use zgate_test_initiator::{LoginScript, Lun, Session, read16, synchronize16, write16};

const BLOCK_BYTES: u64 = 512;

/// One kind of load.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, ValueEnum, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Work {
    /// Sequential 1 MiB reads, queue depth 8.
    Read,
    /// Sequential 1 MiB writes, queue depth 8.
    Write,
    /// 4 KiB random reads, one at a time.
    RandomReadOne,
    /// 4 KiB random reads, queue depth 32.
    RandomRead,
    /// 4 KiB random writes, queue depth 32.
    RandomWrite,
}

impl Work {
    /// All loads, in the order they run.
    pub(crate) const ALL: [Self; 5] =
        [Self::Read, Self::Write, Self::RandomReadOne, Self::RandomRead, Self::RandomWrite];

    /// Returns the name in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Read => "1 MiB read, 8 under way",
            Self::Write => "1 MiB write, 8 under way",
            Self::RandomReadOne => "4 KiB random read, 1",
            Self::RandomRead => "4 KiB random read, 32",
            Self::RandomWrite => "4 KiB random write, 32",
        }
    }

    /// Returns whether MB/s are compared; operations per second otherwise.
    pub(crate) fn is_bulk(self) -> bool {
        matches!(self, Self::Read | Self::Write)
    }

    fn writes(self) -> bool {
        matches!(self, Self::Write | Self::RandomWrite)
    }

    fn bytes(self) -> u64 {
        if self.is_bulk() { 1 << 20 } else { 4 << 10 }
    }

    fn depth(self) -> u64 {
        match self {
            Self::Read | Self::Write => 8,
            Self::RandomReadOne => 1,
            Self::RandomRead | Self::RandomWrite => 32,
        }
    }
}

/// Report of a load process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LoadReport {
    /// Number of commands.
    pub(crate) operations: u64,
    /// Bytes of data.
    pub(crate) bytes: u64,
    /// Time from the first command to the last answer.
    pub(crate) seconds: f64,
    /// Median latency in microseconds.
    pub(crate) p50_microseconds: u32,
    /// 99th percentile of the latency in microseconds.
    pub(crate) p99_microseconds: u32,
}

/// Parameters of one run of the generator.
#[derive(Clone, Debug)]
pub(crate) struct LoadRequest {
    pub(crate) address: SocketAddr,
    pub(crate) target: String,
    pub(crate) lun: u64,
    pub(crate) work: Work,
    /// Size of the disk in bytes.
    pub(crate) size: u64,
    /// Number of random commands.
    pub(crate) operations: u64,
}

fn script(target: &str) -> LoginScript {
    let script = LoginScript::normal("iqn.2026-11.test.zgate:load", target);
    [
        ("HeaderDigest", "None"),
        ("DataDigest", "None"),
        ("InitialR2T", "No"),
        ("ImmediateData", "Yes"),
        ("MaxRecvDataSegmentLength", "1048576"),
        ("MaxBurstLength", "1048576"),
        ("FirstBurstLength", "262144"),
        ("MaxOutstandingR2T", "1"),
    ]
    .into_iter()
    .fold(script, |script, (key, value)| script.with(key, value))
}

/// Runs the load.
///
/// # Errors
/// The error of the target or the connection.
pub(crate) fn run(request: &LoadRequest) -> io::Result<LoadReport> {
    let mut session = Session::login(request.address, &script(&request.target))?;
    let (work, lun) = (request.work, Lun(request.lun << 48));
    // Consume the unit attentions of a new session.
    session.run(lun, &[0; 6], 0, &Bytes::new())?;
    let places = request.size / work.bytes();
    let count = if work.is_bulk() { places } else { request.operations };
    let data = Bytes::from_iter((0..work.bytes()).map(|at| (at * 31 / 7) as u8));
    let blocks = (work.bytes() / BLOCK_BYTES) as u32;
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut begin = |session: &mut Session, number: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        let place = if work.is_bulk() { number } else { seed % places };
        let lba = place * u64::from(blocks);
        if work.writes() {
            session.start(lun, &write16(lba, blocks, false), 0, data.clone())
        } else {
            session.start(lun, &read16(lba, blocks), work.bytes() as u32, Bytes::new())
        }
    };
    let mut sent = HashMap::new();
    let mut samples: Vec<u32> = Vec::new();
    let begun = Instant::now();
    let mut next = 0;
    for _ in 0..count {
        while next < count && (sent.len() as u64) < work.depth() {
            sent.insert(begin(&mut session, next), Instant::now());
            next += 1;
        }
        let done = session.wait()?;
        if done.status != 0 {
            return Err(io::Error::other(format!("status {:#x}: {:?}", done.status, done.sense)));
        }
        if let Some(at) = sent.remove(&done.itt) {
            samples.push(at.elapsed().as_micros().min(u128::from(u32::MAX)) as u32);
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    if work.writes() {
        session.run(lun, &synchronize16(), 0, &Bytes::new())?;
    }
    samples.sort_unstable();
    Ok(LoadReport {
        operations: count,
        bytes: count * work.bytes(),
        seconds,
        p50_microseconds: percentile(&samples, 0.50),
        p99_microseconds: percentile(&samples, 0.99),
    })
}

/// Measures latencies in microseconds of 4 KiB random reads, one at a time, for
/// `duration`.
///
/// # Errors
/// The error of the target or the connection.
pub(crate) fn read_for(
    (address, target): (SocketAddr, &str),
    size: u64,
    duration: Duration,
) -> io::Result<Vec<u32>> {
    let mut session = Session::login(address, &script(target))?;
    let bytes = Work::RandomRead.bytes();
    let blocks = (bytes / BLOCK_BYTES) as u32;
    let mut samples = Vec::new();
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let begun = Instant::now();
    while begun.elapsed() < duration {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        let lba = seed % (size / bytes) * u64::from(blocks);
        let sent = Instant::now();
        session.run(Lun(0), &read16(lba, blocks), bytes as u32, &Bytes::new())?;
        samples.push(sent.elapsed().as_micros().min(u128::from(u32::MAX)) as u32);
    }
    Ok(samples)
}
