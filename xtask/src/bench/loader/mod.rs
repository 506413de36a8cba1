//! `cargo xtask bench loader`: one sharded model, loaded by `zgate load` and by
//! nfs-cat from the same gateway, and by the safetensors package from the file
//! system behind it; one after the other in every round.

mod contender;
pub(crate) mod model;
mod report;

use crate::bench::chart;
use crate::cargo;
use crate::packages::{self, NFS_TOOLS, PYTHON_TOOLS};
use crate::servers::{Scratch, scratch, zgate};
use clap::Args;
use contender::{Contender, Field};
use report::Report;
use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::Command;

/// Directory of the model in the export.
const MODEL: &str = "model";

/// Arguments of `bench loader`.
#[derive(Args, Debug)]
pub(crate) struct BenchArgs {
    /// Rounds; everybody loads in each
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Size of the model in MiB
    #[arg(long, default_value_t = 1024)]
    size_mib: u64,
    /// Files it consists of
    #[arg(long, default_value_t = 4)]
    files: u64,
    /// Connections of `zgate load`
    #[arg(long, default_value_t = zgate_loader::url::DEFAULT_CONNECTIONS)]
    connections: usize,
    /// The gateway and client; the release binary, built first, if not given
    #[arg(long)]
    binary: Option<PathBuf>,
    /// File for the JSON result
    #[arg(long, default_value = "docs/bench/loader.json")]
    out: PathBuf,
    /// Print JSON instead of the table
    #[arg(long)]
    json: bool,
}

/// Runs the benchmark.
///
/// # Errors
/// A message naming what is missing or failed.
pub(crate) fn run(args: &BenchArgs) -> io::Result<()> {
    packages::ensure(NFS_TOOLS)?;
    packages::ensure(PYTHON_TOOLS)?;
    let binary = match &args.binary {
        Some(binary) => fs::canonicalize(binary)?,
        None => zgate::build_as_packaged()?,
    };
    let python = python()?;
    let scratch = Scratch::new((args.size_mib * 2 + 512) << 20)?;
    let dir = scratch.export().join(MODEL);
    let (files, bytes) = model::write(&dir, args.files, args.size_mib)?;
    let server = zgate::start(&binary, &scratch, &zgate::ZgateOptions::default())?;
    let field = Field {
        binary: &binary,
        python: &python,
        server: &server,
        dir,
        exported: MODEL,
        files: &files,
        connections: args.connections,
    };
    let mut report = Report::new(bytes, files.len(), args.connections);
    // One untimed load fills the page cache.
    field.load(Contender::Local)?;
    for round in 0..args.rounds {
        eprintln!("round {} of {}", round + 1, args.rounds);
        // The order rotates from round to round.
        for index in 0..Contender::ALL.len() {
            let contender = Contender::ALL[(index + round) % Contender::ALL.len()];
            report.add(contender, field.load(contender)?);
        }
    }
    report.server_peak_bytes = server.peak_memory_bytes()?;
    let json = report.to_json();
    if let Some(dir) = args.out.parent() {
        fs::create_dir_all(dir)?;
    }
    fs::write(&args.out, serde_json::to_vec_pretty(&json)?)?;
    chart::draw(&args.out)?;
    let text = if args.json { serde_json::to_string_pretty(&json)? } else { report.table() };
    writeln!(io::stdout(), "{text}")
}

/// Returns an interpreter with the safetensors package, kept for the next run.
fn python() -> io::Result<PathBuf> {
    let venv = std::path::absolute(cargo::target_dir())?.join("bench-venv");
    let python = venv.join("bin/python3");
    let ready = Command::new(&python).args(["-c", "import safetensors, numpy"]).output();
    if !ready.is_ok_and(|output| output.status.success()) {
        scratch::run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&venv))?;
        let pip = ["-m", "pip", "install", "--quiet", "safetensors", "numpy"];
        scratch::run(Command::new(&python).args(pip))?;
    }
    Ok(python)
}
