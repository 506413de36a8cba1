//! `cargo xtask bench nfs`: zgate, NFS-Ganesha and a bare sendfile loop, one
//! after the other in every round, on one scratch file system.

pub(crate) mod load;
mod metadata;
mod report;
pub(crate) mod tls;
pub(crate) mod work;

use crate::bench::chart;
use crate::bench::{BEFORE, default_out, sendfile, stats::median};
use crate::servers::{Scratch, ServerProcess, ganesha, scratch, zgate};
use clap::Args;
use report::{Figure, Report};
use serde_json::Value;
use std::fs;
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;
use work::{LoadReport, Work};

/// Arguments of `bench nfs`.
#[derive(Args, Debug)]
pub(crate) struct BenchArgs {
    /// Rounds; every server runs every load in each
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Size of the big file in MiB
    #[arg(long, default_value_t = 512)]
    size_mib: u64,
    /// Random reads per round
    #[arg(long, default_value_t = 60_000)]
    random: u64,
    /// Files created, looked up, opened and removed per round
    #[arg(long, default_value_t = 2_000)]
    files: u64,
    /// Only these loads
    #[arg(long, value_enum)]
    only: Vec<Work>,
    /// Leave the peer out
    #[arg(long)]
    alone: bool,
    /// An earlier build of zgate, compared in place of the peer
    #[arg(long, conflicts_with = "alone")]
    before: Option<PathBuf>,
    /// Have zgate write names to stable storage before the reply, as it does by
    /// default; the peer cannot, and the benchmark's default is the same for
    /// both
    #[arg(long)]
    sync_names: bool,
    /// Over TLS, beside the same in the clear, beside stunnel before both
    /// servers, and beside this machine's speed of AES-GCM; reads and writes of
    /// 1 MiB only
    #[arg(long, conflicts_with_all = ["before", "only", "sync_names"])]
    pub(crate) tls: bool,
    /// Measure this binary of zgate instead of building one
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// File for the JSON result [default: docs/bench/nfs.json; with --before
    /// target/bench/nfs-before.json, with --tls docs/bench/nfs-tls.json]
    #[arg(long)]
    out: Option<PathBuf>,
    /// Print JSON instead of the table
    #[arg(long)]
    json: bool,
}

/// Runs the benchmark.
///
/// # Errors
/// A message naming what is missing or failed.
pub(crate) fn run(args: &BenchArgs) -> io::Result<()> {
    crate::packages::ensure(crate::packages::NFS_PEERS)?;
    let binary = binary(args)?;
    let scratch = Scratch::new((args.size_mib * 5 + 1024) << 20)?;
    if !args.alone && args.before.is_none() && !scratch.is_mounted() {
        let need = "the peer needs a file system of its own: run as root, or with --alone";
        return Err(io::Error::other(need));
    }
    let options =
        zgate::ZgateOptions { sync_names: args.sync_names, ..zgate::ZgateOptions::default() };
    let mut servers = vec![zgate::start(&binary, &scratch, &options)?];
    if let Some(before) = &args.before {
        let options = zgate::ZgateOptions { name: BEFORE, ..options };
        servers.push(zgate::start(&fs::canonicalize(before)?, &scratch, &options)?);
    } else if !args.alone {
        servers.push(ganesha::start(&scratch)?);
    }
    prepare(args, &scratch, &servers)?;
    let limit = start_limit(&scratch)?;
    let peer = if args.before.is_some() { BEFORE } else { ganesha::NAME };
    let mut report = Report::new(args.rounds, args.size_mib, (peer, args.sync_names));
    for round in 0..args.rounds {
        eprintln!("round {} of {}", round + 1, args.rounds);
        for work in Work::ALL.into_iter().filter(|w| args.only.is_empty() || args.only.contains(w))
        {
            // The order rotates from round to round.
            for index in 0..servers.len() {
                let server = &servers[(index + round) % servers.len()];
                report.add(work, server.name, measure(args, server, work)?);
            }
            if matches!(work, Work::ReadOne | Work::Read) {
                report.add(work, limit.name, measure_limit(args, &limit, work)?);
            }
        }
        for server in &servers {
            report.add_cross_check(server.name, cross_check(server, args.size_mib)?);
        }
    }
    for server in servers.iter().chain([&limit]) {
        report.peak_memory.insert(server.name, server.peak_memory_bytes()?);
    }
    tell(args, "nfs", &report.to_json(), || report.table())
}

fn binary(args: &BenchArgs) -> io::Result<PathBuf> {
    args.binary.as_ref().map_or_else(zgate::build_as_packaged, fs::canonicalize)
}

/// Writes the JSON result and its chart, and prints the result.
fn tell(
    args: &BenchArgs,
    bench: &str,
    json: &Value,
    table: impl FnOnce() -> String,
) -> io::Result<()> {
    let out = args.out.clone().unwrap_or_else(|| default_out(bench, args.before.is_some()));
    if let Some(dir) = out.parent() {
        fs::create_dir_all(dir)?;
    }
    fs::write(&out, serde_json::to_vec_pretty(json)?)?;
    chart::draw(&out)?;
    let text = if args.json { serde_json::to_string_pretty(json)? } else { table() };
    writeln!(io::stdout(), "{text}")
}

/// Creates the directory and the big file of each server.
fn prepare<'a>(
    args: &BenchArgs,
    scratch: &Scratch,
    servers: impl IntoIterator<Item = &'a ServerProcess>,
) -> io::Result<()> {
    let mut block = vec![0u8; 1 << 20];
    for server in servers {
        let dir = scratch.export().join(server.name);
        fs::create_dir(&dir)?;
        let mut big = fs::File::create(dir.join("big"))?;
        for number in 0..args.size_mib {
            for (index, byte) in block.iter_mut().enumerate() {
                *byte = (index as u64 ^ number) as u8;
            }
            big.write_all(&block)?;
        }
        big.sync_all()?;
    }
    Ok(())
}

fn start_limit(scratch: &Scratch) -> io::Result<ServerProcess> {
    let port = zgate::free_port()?;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("sendfile-loop").arg(port.to_string()).arg(scratch.export().join("zgate/big"));
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    ServerProcess::start("sendfile", command, address, &scratch.path().join("sendfile.log"))
}

fn measure(args: &BenchArgs, server: &ServerProcess, work: Work) -> io::Result<Figure> {
    measure_at(args, (server.address, server.name), work, &[server])
}

/// Runs a load at an address, in a directory of the export, and takes the CPU
/// time of these processes.
fn measure_at(
    args: &BenchArgs,
    (address, dir): (SocketAddr, &str),
    work: Work,
    processes: &[&ServerProcess],
) -> io::Result<Figure> {
    let operations = match work {
        Work::RandomRead => args.random,
        Work::RandomReadOne => args.random / 4,
        Work::Readdir => args.files * 20,
        _ => args.files,
    };
    let cpu_seconds =
        || processes.iter().map(|process| process.cpu_seconds()).sum::<io::Result<f64>>();
    let before = cpu_seconds()?;
    let output = Command::new(std::env::current_exe()?)
        .arg("nfs-load")
        .args(["--address", &address.to_string(), "--dir", dir])
        .args(["--size", &(args.size_mib << 20).to_string()])
        .args(["--operations", &operations.to_string()])
        .arg("--work")
        .arg(
            clap::ValueEnum::to_possible_value(&work)
                .map_or(String::new(), |v| v.get_name().into()),
        )
        .output()?;
    let cpu_seconds = cpu_seconds()? - before;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(io::Error::other(format!("{} on {dir}: {said}", work.name())));
    }
    Ok(Figure::new(serde_json::from_slice(&output.stdout)?, cpu_seconds))
}

fn measure_limit(args: &BenchArgs, limit: &ServerProcess, work: Work) -> io::Result<Figure> {
    let before = limit.cpu_seconds()?;
    let size = args.size_mib << 20;
    let seconds = sendfile::load(limit.address, size, u64::from(work.depth()))?;
    let report = LoadReport {
        operations: args.size_mib,
        bytes: size,
        seconds,
        commit_seconds: 0.0,
        p50_microseconds: 0,
        p99_microseconds: 0,
    };
    Ok(Figure::new(report, limit.cpu_seconds()? - before))
}

/// Reads the same file with an independent client: MB/s of `nfs-cat`.
fn cross_check(server: &ServerProcess, size_mib: u64) -> io::Result<f64> {
    let url = format!(
        "nfs://127.0.0.1/export/{}/big?version=4&nfsport={}",
        server.name,
        server.address.port()
    );
    let begun = Instant::now();
    scratch::run(Command::new("sh").args(["-c", "nfs-cat \"$0\" > /dev/null", &url]))?;
    Ok((size_mib << 20) as f64 / 1e6 / begun.elapsed().as_secs_f64())
}

/// Returns the median over the rounds.
fn medians(figures: &[Figure], of: impl Fn(&Figure) -> f64) -> f64 {
    median(&figures.iter().map(of).collect::<Vec<_>>())
}
