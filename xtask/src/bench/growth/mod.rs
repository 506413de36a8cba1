//! `cargo xtask bench growth`: the gateway's CPU time for one request while
//! something grows: connections, exports, logical units, names in a directory,
//! opens and locks of a file, serving threads; and the memory of an idle connection.

mod configured;
mod connections;
mod names;
mod report;
mod state;
mod threads;

use crate::bench::chart;
use crate::bench::nfs::load::Load;
use crate::servers::{ServerProcess, zgate};
use clap::{Args, ValueEnum};
use report::{Report, Series};
use std::fs;
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use zgate_loader::compound::Ops;

/// Requests in flight while a cost is measured.
const DEPTH: u32 = 16;

/// One thing that grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Dimension {
    /// Idle connections beside the one that is used.
    Connections,
    /// Exports.
    Exports,
    /// Logical units of a target.
    Luns,
    /// Names in a directory.
    Names,
    /// Opens of one file.
    Opens,
    /// Byte-range locks of one file.
    Locks,
    /// Serving threads, each with a client.
    Threads,
}

/// Arguments of `bench growth`.
#[derive(Args, Debug)]
pub(crate) struct GrowthArgs {
    /// Things that grow; all, if not given
    #[arg(value_enum)]
    dimensions: Vec<Dimension>,
    /// Requests for each measurement
    #[arg(long, default_value_t = 20_000)]
    requests: u64,
    /// Most names in a directory
    #[arg(long, default_value_t = 100_000)]
    names: u64,
    /// The gateway; a build as packages carry it, if not given
    #[arg(long)]
    zgate: Option<PathBuf>,
    /// File for the JSON result; the chart lies beside it
    #[arg(long, default_value = "docs/bench/growth.json")]
    out: PathBuf,
}

/// Context of the measurements.
struct Bench<'a> {
    binary: &'a Path,
    requests: u64,
    names: u64,
}

/// Runs the benchmark.
///
/// # Errors
/// A message naming what failed.
pub(crate) fn run(args: &GrowthArgs) -> io::Result<()> {
    let binary = match &args.zgate {
        Some(binary) => fs::canonicalize(binary)?,
        None => zgate::build_as_packaged()?,
    };
    let bench = Bench { binary: &binary, requests: args.requests, names: args.names };
    let wanted = match args.dimensions.as_slice() {
        [] => Dimension::value_variants(),
        some => some,
    };
    let mut report = Report::default();
    for dimension in wanted {
        let series = match dimension {
            Dimension::Connections => connections::measure(&bench, &mut report)?,
            Dimension::Exports => configured::exports(&bench)?,
            Dimension::Luns => configured::luns(&bench)?,
            Dimension::Names => names::measure(&bench)?,
            Dimension::Opens => state::opens(&bench)?,
            Dimension::Locks => state::locks(&bench)?,
            Dimension::Threads => threads::measure(&bench)?,
        };
        series.iter().for_each(Series::print);
        report.series.extend(series);
    }
    if let Some(dir) = args.out.parent() {
        fs::create_dir_all(dir)?;
    }
    fs::write(&args.out, format!("{}\n", serde_json::to_string_pretty(&report.to_json())?))?;
    chart::draw(&args.out)?;
    writeln!(io::stdout(), "{}", report.table())
}

/// A gateway with a configuration of its own.
struct Fixture {
    server: ServerProcess,
    nfs: SocketAddr,
    iscsi: SocketAddr,
    dir: tempfile::TempDir,
}

impl Fixture {
    /// Starts a gateway whose exports and targets `more` returns for its
    /// directory.
    fn start(bench: &Bench<'_>, more: impl Fn(&Path) -> io::Result<String>) -> io::Result<Self> {
        let dir = tempfile::Builder::new().prefix("zgate-growth-").tempdir()?;
        let [nfs, iscsi] = [zgate::free_port()?, zgate::free_port()?]
            .map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        let place = dir.path().display();
        // Polling would be counted as cost of the requests.
        let text = format!(
            "[server]\nlisten = [\"{nfs}\"]\nstate_dir = \"{place}/state\"\npoll_microseconds = 0\n\
             admin_socket = \"{place}/admin.sock\"\nmetrics_listen = \"127.0.0.1:0\"\n\
             max_connections = 12000\nmax_connections_per_client = 12000\n{}",
            more(dir.path())?.replace("ISCSI", &iscsi.to_string())
        );
        let config = dir.path().join("zgate.toml");
        fs::write(&config, text)?;
        let mut command = Command::new(bench.binary);
        command.arg("serve").arg("--config").arg(&config).env("ZGATE_LOG", "warn");
        let log = dir.path().join("zgate.log");
        let server = ServerProcess::start("zgate", command, nfs, &log)?;
        Ok(Self { server, nfs, iscsi, dir })
    }

    /// Starts a gateway with one export, `/export`.
    fn with_export(bench: &Bench<'_>) -> io::Result<Self> {
        Self::start(bench, |dir| export(dir, "export", "/export"))
    }

    /// Returns the directory that is exported as `/export`.
    fn exported(&self) -> PathBuf {
        self.dir.path().join("export")
    }

    /// Returns the microseconds of the gateway's CPU time for each of `count`
    /// requests, which `run` sends.
    fn cost(&self, count: u64, run: impl FnOnce() -> io::Result<()>) -> io::Result<f64> {
        let before = self.server.cpu_seconds()?;
        run()?;
        Ok((self.server.cpu_seconds()? - before) * 1e6 / count as f64)
    }

    /// Returns the cost of each of `count` COMPOUNDs.
    fn cost_of(
        &self,
        load: &mut Load,
        count: u64,
        keep: bool,
        make: impl FnMut(u64) -> Ops,
    ) -> io::Result<f64> {
        self.cost(count, || load.pipeline(DEPTH, count, keep, make).map(|_| ()))
    }
}

/// Creates a directory and returns its section of the configuration.
fn export(dir: &Path, name: &str, pseudo: &str) -> io::Result<String> {
    let path = dir.join(name);
    fs::create_dir_all(&path)?;
    Ok(format!(
        "[[export]]\npath = \"{}\"\npseudo = \"{pseudo}\"\nsync_names = false\n\
         clients = [{{ match = \"127.0.0.0/8\", access = \"rw\", squash = \"none\" }}]\n",
        path.display()
    ))
}
