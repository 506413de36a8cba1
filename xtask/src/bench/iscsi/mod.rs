//! `cargo xtask bench iscsi`: zgate and tgt, one after the other in every
//! round, each on a file in memory.

pub(crate) mod load;
mod report;

use crate::bench::chart;
use crate::bench::{BEFORE, default_out};
use crate::packages::{self, Tool};
use crate::servers::{Scratch, ServerProcess, process, scratch, tgt, zgate};
use clap::{Args, ValueEnum};
use load::{LoadReport, Work};
use report::{Figure, Report};
use std::fs;
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;

const TOOLS: &[Tool] = &[
    Tool { program: "iscsi-perf", package: "libiscsi-bin" },
    Tool { program: "tgtd", package: "tgt" },
];

const OURS: &str = "iqn.2026-11.test.zgate:disk";

/// Arguments of `bench iscsi`.
#[derive(Args, Debug)]
pub(crate) struct BenchArgs {
    /// Rounds; every server runs every load in each
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Size of the disk in MiB
    #[arg(long, default_value_t = 512)]
    size_mib: u64,
    /// Random commands per round
    #[arg(long, default_value_t = 60_000)]
    random: u64,
    /// An earlier build of zgate, compared in place of the peer
    #[arg(long)]
    before: Option<PathBuf>,
    /// Measure this binary of zgate instead of building one
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// File for the JSON result [default: docs/bench/iscsi.json; with --before
    /// target/bench/iscsi-before.json]
    #[arg(long)]
    out: Option<PathBuf>,
    /// Print JSON instead of the table
    #[arg(long)]
    json: bool,
}

/// A server and the location of its disk.
struct ServedDisk {
    server: ServerProcess,
    target: &'static str,
    lun: u64,
}

/// Runs the benchmark.
///
/// # Errors
/// A message naming what is missing or failed.
pub(crate) fn run(args: &BenchArgs) -> io::Result<()> {
    packages::ensure(TOOLS)?;
    let binary = args.binary.clone().map_or_else(zgate::build_as_packaged, Ok)?;
    let scratch = Scratch::new(64 << 20)?;
    let memory = tempfile::Builder::new().prefix("zgate-bench-").tempdir_in("/dev/shm")?;
    let disks = ["zgate.img", "peer.img"].map(|name| memory.path().join(name));
    for disk in &disks {
        fill(disk, args.size_mib)?;
    }
    let peer = if args.before.is_some() { BEFORE } else { tgt::NAME };
    let mut report = Report::new(args.rounds, args.size_mib, peer);
    // The server that starts second, and the disk that was written second, are a
    // tenth faster under large loads: the halves of the rounds differ in both.
    let half = args.rounds.div_ceil(2);
    for (rounds, swapped) in [(0..half, false), (half..args.rounds, true)] {
        if rounds.is_empty() {
            continue;
        }
        let beds = start(args, &binary, &scratch, &disks, swapped)?;
        for round in rounds {
            eprintln!("round {} of {}", round + 1, args.rounds);
            one_round(args, &beds, round, &mut report)?;
        }
        for served in beds {
            let peak = served.server.peak_memory_bytes()?;
            let most = report.peak_memory.entry(served.server.name).or_default();
            *most = peak.max(*most);
            // tgt keeps its sessions for a while after SIGTERM; it has nothing to lose.
            if served.server.name == tgt::NAME {
                drop(served.server);
            } else {
                served.server.stop()?;
            }
        }
    }
    let json = report.to_json();
    let out = args.out.clone().unwrap_or_else(|| default_out("iscsi", args.before.is_some()));
    if let Some(dir) = out.parent() {
        fs::create_dir_all(dir)?;
    }
    fs::write(&out, serde_json::to_vec_pretty(&json)?)?;
    chart::draw(&out)?;
    let text = if args.json { serde_json::to_string_pretty(&json)? } else { report.table() };
    writeln!(io::stdout(), "{text}")
}

/// Starts both servers, in the other order and on each other's disks if
/// `swapped`.
fn start(
    args: &BenchArgs,
    binary: &Path,
    scratch: &Scratch,
    disks: &[PathBuf; 2],
    swapped: bool,
) -> io::Result<Vec<ServedDisk>> {
    let [ours, theirs] = if swapped { [&disks[1], &disks[0]] } else { [&disks[0], &disks[1]] };
    let zgate = |name, binary: &Path, disk| {
        let server = start_zgate(name, binary, scratch, disk)?;
        io::Result::Ok(ServedDisk { server, target: OURS, lun: 0 })
    };
    let peer = || match &args.before {
        Some(before) => zgate(BEFORE, &fs::canonicalize(before)?, theirs),
        None => {
            Ok(ServedDisk { server: tgt::start(scratch, theirs)?, target: tgt::TARGET, lun: 1 })
        }
    };
    if swapped {
        let ours = zgate("zgate", binary, ours)?;
        Ok(vec![ours, peer()?])
    } else {
        let peer = peer()?;
        Ok(vec![zgate("zgate", binary, ours)?, peer])
    }
}

/// Runs every load on both servers; who begins changes with the round.
fn one_round(
    args: &BenchArgs,
    beds: &[ServedDisk],
    round: usize,
    report: &mut Report,
) -> io::Result<()> {
    for work in Work::ALL {
        for index in 0..beds.len() {
            let served = &beds[(index + round) % beds.len()];
            report.add(work, served.server.name, measure(args, served, work)?);
        }
    }
    for served in beds {
        for random in [false, true] {
            let rate = cross_check(served, random)?;
            report.add_cross_check(random, served.server.name, rate);
        }
    }
    Ok(())
}

fn fill(disk: &Path, size_mib: u64) -> io::Result<()> {
    let mut file = fs::File::create(disk)?;
    for number in 0..size_mib {
        let block: Vec<u8> = (0..1u64 << 20).map(|index| (index ^ number) as u8).collect();
        file.write_all(&block)?;
    }
    Ok(())
}

fn start_zgate(
    name: &'static str,
    binary: &Path,
    scratch: &Scratch,
    disk: &Path,
) -> io::Result<ServerProcess> {
    let port = zgate::free_port()?;
    let dir = scratch.path().join(name);
    fs::create_dir_all(&dir)?;
    let config = dir.join("zgate.toml");
    let text = format!(
        "[server]\nlisten = [\"127.0.0.1:{nfs}\"]\nstate_dir = \"{dir}/state\"\n\
         admin_socket = \"{dir}/admin.sock\"\nmetrics_listen = \"127.0.0.1:0\"\n\
         [iscsi]\nlisten = [\"127.0.0.1:{port}\"]\n\
         [[target]]\nname = \"{OURS}\"\nallow_any_initiator = true\n\
         [[target.lun]]\nnumber = 0\npath = \"{disk}\"\n",
        nfs = zgate::free_port()?,
        dir = dir.display(),
        disk = disk.display(),
    );
    fs::write(&config, text)?;
    let mut command = Command::new(binary);
    command.arg("serve").arg("--config").arg(&config).env("ZGATE_LOG", "warn");
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let log = dir.join("zgate.log");
    ServerProcess::start(name, command, address, &log)
        .map_err(|error| io::Error::other(format!("{error}\n{}", process::tail_of(&log))))
}

fn measure(args: &BenchArgs, served: &ServedDisk, work: Work) -> io::Result<Figure> {
    let before = served.server.cpu_seconds()?;
    let name = work.to_possible_value().map_or(String::new(), |value| value.get_name().into());
    let output = Command::new(std::env::current_exe()?)
        .arg("iscsi-load")
        .args(["--address", &served.server.address.to_string(), "--target", served.target])
        .args(["--lun", &served.lun.to_string(), "--work", &name])
        .args(["--size", &(args.size_mib << 20).to_string()])
        .args(["--operations", &args.random.to_string()])
        .output()?;
    let cpu_seconds = served.server.cpu_seconds()? - before;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(io::Error::other(format!("{} on {}: {said}", work.name(), served.server.name)));
    }
    let load: LoadReport = serde_json::from_slice(&output.stdout)?;
    Ok(Figure { load, cpu_seconds })
}

/// Reads through libiscsi's own load generator: transfers per second and server
/// CPU seconds per transfer.
fn cross_check(served: &ServedDisk, random: bool) -> io::Result<(f64, f64)> {
    let url = format!("iscsi://{}/{}/{}", served.server.address, served.target, served.lun);
    let shape: &[&str] =
        if random { &["-r", "-b", "8", "-m", "32"] } else { &["-b", "2048", "-m", "8"] };
    let before = served.server.cpu_seconds()?;
    let text = scratch::run(Command::new("iscsi-perf").args(shape).args(["-t", "2", &url]))?;
    let cpu = served.server.cpu_seconds()? - before;
    let average = text.rsplit("iops average ").next().and_then(|rest| rest.split(' ').next());
    let average = average.and_then(|word| word.parse::<f64>().ok());
    let rate = average.ok_or_else(|| io::Error::other(format!("iscsi-perf said: {text}")))?;
    Ok((rate, cpu / (rate * 2.0)))
}
