//! `bench cost`: cost of a request and of a byte in the gateway, over TCP and
//! over the emulated fabric, and the number of cores that ports of 100 Gb/s
//! need.

mod measure;
mod model;

use crate::bench::nfs::work::Work;
use crate::bridge::Bridge;
use crate::servers::{Scratch, ServerProcess, zgate};
use clap::Args;
use measure::{Cost, Load};
use model::Model;
use std::fs;
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Loads to measure.
const WORKS: [Work; 3] = [Work::RandomRead, Work::Read, Work::Write];

/// Number of runs of a load while CPU time is measured.
const ROUNDS: u32 = 8;

/// Arguments of `bench cost`.
#[derive(Args, Debug)]
pub(crate) struct CostArgs {
    /// Measure this binary instead of building one
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Leave out instructions, which valgrind counts
    #[arg(long)]
    quick: bool,
    /// Size of the file in MiB
    #[arg(long, default_value_t = 256)]
    size_mib: u64,
    /// Random reads
    #[arg(long, default_value_t = 20_000)]
    random: u64,
    /// Print JSON instead of the tables
    #[arg(long)]
    json: bool,
}

/// A gateway and the address for the load: its own, or that of a bridge before
/// it.
struct ServedExport {
    server: ServerProcess,
    bridge: Option<Bridge>,
}

impl ServedExport {
    fn start(binary: &Path, scratch: &Scratch, rdma: bool, counted: bool) -> io::Result<Self> {
        // A gateway with known clients would wait for them in a grace period.
        let state = scratch.path().join("zgate/state");
        if state.exists() {
            fs::remove_dir_all(state)?;
        }
        let rdma_port = rdma.then(zgate::free_port).transpose()?;
        let options = zgate::ZgateOptions { rdma_port, ..zgate::ZgateOptions::default() };
        let port = zgate::free_port()?;
        let config = zgate::write_config(scratch, &options, port)?;
        let mut command = if counted {
            let out = scratch.path().join("cachegrind.out");
            let mut command = Command::new("valgrind");
            // Not callgrind: it crashes on a signal within a signal.
            command.args(["--tool=cachegrind", "--cache-sim=no", "--log-file=/dev/null"]);
            command.arg(format!("--cachegrind-out-file={}", out.display())).arg(binary);
            command
        } else {
            Command::new(binary)
        };
        command.arg("serve").arg("--config").arg(&config).env("ZGATE_LOG", "warn");
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let log = scratch.path().join("zgate.log");
        let server = ServerProcess::start("zgate", command, address, &log)?;
        let fabric = rdma_port.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        Ok(Self { server, bridge: fabric.map(Bridge::start).transpose()? })
    }

    fn address(&self) -> SocketAddr {
        self.bridge.as_ref().map_or(self.server.address, |bridge| bridge.address)
    }
}

/// Runs the benchmark.
///
/// # Errors
/// A message naming what is missing or failed.
pub(crate) fn run(args: &CostArgs) -> io::Result<()> {
    let binary = match &args.binary {
        Some(binary) => fs::canonicalize(binary)?,
        None => zgate::build_as_packaged()?,
    };
    let scratch = Scratch::new((args.size_mib * 3 + 512) << 20)?;
    prepare(&scratch, args.size_mib)?;
    let mut model = Model::new(measure::copy_nanos_per_byte(&scratch.export().join("zgate/big"))?);
    for rdma in [false, true] {
        for work in WORKS {
            let mut cost = time(args, &binary, &scratch, rdma, work)?;
            if !args.quick {
                // valgrind hides the vDSO's address, which the check for cached
                // files needs: large READs over TCP crash.
                match instructions(&binary, &scratch, rdma, work) {
                    Ok(count) => cost.instructions = Some(count),
                    Err(error) => eprintln!("cannot count instructions: {error}"),
                }
            }
            eprintln!("{}, {}: {cost:?}", if rdma { "RDMA" } else { "TCP" }, work.name());
            model.add(rdma, work, cost);
        }
    }
    let text = if args.json { serde_json::to_string_pretty(&model)? } else { model.tables() };
    writeln!(io::stdout(), "{text}")
}

fn prepare(scratch: &Scratch, size_mib: u64) -> io::Result<()> {
    let dir = scratch.export().join("zgate");
    fs::create_dir(&dir)?;
    let mut big = fs::File::create(dir.join("big"))?;
    for number in 0..size_mib {
        big.write_all(&vec![number as u8 | 1; 1 << 20])?;
    }
    big.sync_all()
}

/// Returns the CPU time of a request after a warm-up.
fn time(
    args: &CostArgs,
    binary: &Path,
    scratch: &Scratch,
    rdma: bool,
    work: Work,
) -> io::Result<Cost> {
    let served = ServedExport::start(binary, scratch, rdma, false)?;
    let load =
        Load { address: served.address(), work, operations: args.random, size_mib: args.size_mib };
    load.run()?;
    let before = served.server.cpu_split()?;
    // CPU time is reported in hundredths of a second.
    let mut done = 0;
    for _ in 0..ROUNDS {
        done += load.run()?;
    }
    let after = served.server.cpu_split()?;
    let nanos = |before: f64, after: f64| (after - before) * 1e9 / done as f64;
    Ok(Cost {
        user_nanos: nanos(before.0, after.0),
        system_nanos: nanos(before.1, after.1),
        instructions: None,
    })
}

/// Returns the user-space instructions of a request: the difference between a
/// short and a longer load, each on a fresh gateway.
fn instructions(binary: &Path, scratch: &Scratch, rdma: bool, work: Work) -> io::Result<f64> {
    let counted = |operations: u64, size_mib: u64| -> io::Result<(f64, f64)> {
        let served = ServedExport::start(binary, scratch, rdma, true)?;
        let load = Load { address: served.address(), work, operations, size_mib };
        let done = load.run()?;
        drop(served.bridge);
        served.server.stop()?;
        let out = fs::read_to_string(scratch.path().join("cachegrind.out"))?;
        Ok((done as f64, measure::collected(&out).ok_or_else(|| io::Error::other("no totals"))?))
    };
    let (few, few_cost) = counted(500, 16)?;
    let (many, many_cost) = counted(2_500, 80)?;
    Ok((many_cost - few_cost) / (many - few))
}
