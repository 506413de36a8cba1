//! Builds the simulator and starts it (docs/SIMULATOR.md).

use crate::cargo;
use crate::lab::{self, SIMULATOR};
use crate::output;
use clap::Args;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

/// Seeds that run on both machines. An emulated processor takes minutes for them.
const SEEDS_TWICE: &str = "300";

/// Arguments of `cargo xtask simulate`. The simulator has its own command line:
/// `cargo xtask simulate -- --help` prints it.
#[derive(Args, Debug)]
pub(crate) struct SimulateArgs {
    /// Build with optimisation: worth it for more than a few seeds
    #[arg(long, conflicts_with = "dist")]
    release: bool,
    /// Build as packages are, which takes minutes: worth it for long runs
    #[arg(long)]
    dist: bool,
    /// Run the same fresh seeds here and in the lab's virtual machine, and compare
    /// their traces
    #[arg(long, conflicts_with = "arguments")]
    two_machines: bool,
    /// Arguments of the simulator: --seeds N, --seed S, --minutes M, --jobs J,
    /// --json, --mutants and others
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Runs the simulator.
///
/// # Errors
/// If it does not build, or a seed fails.
pub(crate) fn run(args: &SimulateArgs) -> io::Result<()> {
    if args.two_machines {
        return two_machines();
    }
    let mut command = cargo::command();
    command.args(["run", "--quiet", "--package", "zgate-simulator"]);
    let profile = match (args.release, args.dist) {
        (_, true) => "dist",
        (true, _) => "release",
        _ => "dev",
    };
    command.args(["--profile", profile]);
    done(command.arg("--").args(&args.arguments).status()?)
}

/// Runs seeds here, then in the lab, where the scenario compares the traces.
fn two_machines() -> io::Result<()> {
    let built = cargo::build("zgate-simulator", "release")?;
    fs::create_dir_all(SIMULATOR)?;
    let program = Path::new(SIMULATOR).join("zgate-simulator");
    fs::copy(built, &program)?;
    // Without `--seed` the simulator chooses it; the line tells the other machine.
    let arguments = ["--json", "--jobs", "2", "--seeds", SEEDS_TWICE];
    let here = Command::new(&program).args(arguments).stderr(Stdio::inherit()).output()?;
    fs::write(Path::new(SIMULATOR).join("here.json"), &here.stdout)?;
    output::print(&format!("here: {}", String::from_utf8_lossy(&here.stdout)))?;
    done(here.status)?;
    // The scenario needs no gateway; the lab shares one with every machine.
    let out = PathBuf::from("target/lab");
    lab::run(&lab::LabArgs::of(&["simulator/traces"], Some(program), out, 1))
}

fn done(status: ExitStatus) -> io::Result<()> {
    if status.success() {
        return Ok(());
    }
    Err(io::Error::other("the simulation did not pass; its output says why"))
}
