//! `cargo xtask bench hostile`: hosts that no export and no target names send
//! arbitrary messages from many addresses of the loopback range, while a named
//! host reads. Measures the named host's latency and the gateway's memory,
//! without and with the attack.

pub(crate) mod attack;
pub(crate) mod named;
mod report;
mod sends;

use crate::servers::{Scratch, ServerProcess, zgate};
use attack::AttackReport;
use clap::Args;
use named::{Latencies, OUR_TARGET, READ_BYTES};
use report::{Memory, Report};
use std::fs;
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Interval between memory samples.
const SAMPLE_EVERY: Duration = Duration::from_millis(250);
/// Time by which the attack outlasts the measurement of the named host, in
/// seconds.
const ATTACKED_LONGER_SECONDS: u64 = 2;
/// Time after the attack until memory is sampled once more, in seconds.
const SETTLE_SECONDS: u64 = 10;
/// Time for which the named host reads before the measurement, in seconds.
const WARM_UP_SECONDS: u64 = 2;

/// Arguments of `bench hostile`.
#[derive(Args, Debug)]
pub(crate) struct HostileArgs {
    /// Seconds of quiet, and as many of attack
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=600))]
    duration: u64,
    /// Addresses of the loopback range that attack
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    addresses: u32,
    /// New connections a second, all addresses together
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    rate: u32,
    /// Connections kept open, all addresses together
    #[arg(long, default_value_t = 6_000, value_parser = clap::value_parser!(u32).range(1..=50_000))]
    connections: u32,
    /// Measure this binary instead of building one
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// File for the JSON result
    #[arg(long, default_value = "docs/bench/hostile.json")]
    out: PathBuf,
    /// Print JSON instead of the table
    #[arg(long)]
    json: bool,
}

/// A gateway with an export and a disk for 127.0.0.1 only.
struct Gateway {
    nfs: SocketAddr,
    server: ServerProcess,
    _scratch: Scratch,
}

/// Runs the benchmark.
///
/// # Errors
/// A message naming what failed, for example that the named host was not
/// served.
pub(crate) fn run(args: &HostileArgs) -> io::Result<()> {
    let binary = match &args.binary {
        Some(binary) => fs::canonicalize(binary)?,
        None => zgate::build()?,
    };
    let gateway = Gateway::start(&binary)?;
    latencies(gateway.named(WARM_UP_SECONDS)?.wait_with_output()?)?;
    let before = gateway.server.resident_bytes()?;
    eprintln!("quiet: {} s", args.duration);
    let quiet = latencies(gateway.named(args.duration)?.wait_with_output()?)?;
    eprintln!("attack: {} s from {} addresses", args.duration, args.addresses);
    let attack = gateway.attack(args)?;
    std::thread::sleep(Duration::from_secs(1));
    let named = gateway.named(args.duration)?;
    let attacking = Duration::from_secs(args.duration + ATTACKED_LONGER_SECONDS);
    let peak = gateway.peak_until(attacking + Duration::from_secs(SETTLE_SECONDS))?;
    let attacked = latencies(named.wait_with_output()?)?;
    let attack: AttackReport = parsed("the attack", attack.wait_with_output()?)?;
    let after = gateway.server.resident_bytes()?;
    let memory = Memory { before, peak, after };
    let report = Report { duration_seconds: args.duration, quiet, attacked, memory, attack };
    gateway.server.stop()?;
    let json = report.to_json();
    if let Some(dir) = args.out.parent() {
        fs::create_dir_all(dir)?;
    }
    fs::write(&args.out, serde_json::to_vec_pretty(&json)?)?;
    let text = if args.json { serde_json::to_string_pretty(&json)? } else { report.table() };
    writeln!(io::stdout(), "{text}")
}

fn latencies(output: Output) -> io::Result<Latencies> {
    parsed("the named host", output)
}

fn parsed<T: serde::de::DeserializeOwned>(who: &str, output: Output) -> io::Result<T> {
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(io::Error::other(format!("{who}: {said}")));
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

impl Gateway {
    fn start(binary: &Path) -> io::Result<Self> {
        let scratch = Scratch::new(READ_BYTES * 4)?;
        let block: Vec<u8> = (0..1u32 << 20).map(|at| (at / 7) as u8).collect();
        for file in [scratch.export().join("big"), scratch.path().join("disk")] {
            let mut file = fs::File::create(file)?;
            for _ in 0..READ_BYTES >> 20 {
                file.write_all(&block)?;
            }
        }
        let local = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let (nfs, portal) = (local(zgate::free_port()?), local(zgate::free_port()?));
        let config = scratch.path().join("zgate.toml");
        fs::write(&config, settings(&scratch, nfs, portal))?;
        let mut command = Command::new(binary);
        command.arg("serve").arg("--config").arg(&config).env("ZGATE_LOG", "warn");
        let log = scratch.path().join("zgate.log");
        let server = ServerProcess::start("zgate", command, portal, &log)?;
        Ok(Self { nfs, server, _scratch: scratch })
    }

    /// Builds the command of a subtask of this program whose output is
    /// captured.
    fn task(&self, mut command: Command, task: &str, seconds: u64) -> io::Result<Command> {
        command
            .arg(std::env::current_exe()?)
            .arg(task)
            .args(["--nfs", &self.nfs.to_string()])
            .args(["--portal", &self.server.address.to_string()])
            .args(["--seconds", &seconds.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Ok(command)
    }

    fn named(&self, seconds: u64) -> io::Result<Child> {
        self.task(Command::new("env"), "hostile-named", seconds)?.spawn()
    }

    /// Attackers have machines of their own in reality: here they run at lowest
    /// priority.
    fn attack(&self, args: &HostileArgs) -> io::Result<Child> {
        let mut nice = Command::new("nice");
        nice.args(["-n", "19"]);
        let seconds = args.duration + ATTACKED_LONGER_SECONDS;
        self.task(nice, "hostile-attack", seconds)?
            .args(["--addresses", &args.addresses.to_string()])
            .args(["--rate", &args.rate.to_string()])
            .args(["--connections", &args.connections.to_string()])
            .spawn()
    }

    fn peak_until(&self, duration: Duration) -> io::Result<u64> {
        let begun = Instant::now();
        let mut peak = 0;
        while begun.elapsed() < duration {
            peak = peak.max(self.server.resident_bytes()?);
            std::thread::sleep(SAMPLE_EVERY);
        }
        Ok(peak)
    }
}

fn settings(scratch: &Scratch, nfs: SocketAddr, portal: SocketAddr) -> String {
    let dir = scratch.path().display();
    format!(
        r#"[server]
listen = ["{nfs}"]
state_dir = "{dir}/state"
admin_socket = "{dir}/admin.sock"
metrics_listen = "127.0.0.1:0"

[[export]]
path = "{export}"
pseudo = "/export"
clients = [{{ match = "127.0.0.1", access = "rw", squash = "none", security = ["sys", "none"] }}]

[iscsi]
listen = ["{portal}"]

[[target]]
name = "{OUR_TARGET}"

  [[target.lun]]
  number = 0
  path = "{dir}/disk"

  [[target.initiator]]
  name = "iqn.*"
  clients = ["127.0.0.1/32"]
"#,
        export = scratch.export().display(),
    )
}
