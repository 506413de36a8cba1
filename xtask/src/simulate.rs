//! Builds the simulator and starts it (docs/SIMULATOR.md).

use clap::Args;
use std::ffi::OsString;
use std::io;
use std::process::Command;

/// Arguments of `cargo xtask simulate`. The simulator has its own command line:
/// `cargo xtask simulate -- --help` prints it.
#[derive(Args, Debug)]
pub(crate) struct SimulateArgs {
    /// Build with optimisation: worth it for long runs
    #[arg(long)]
    release: bool,
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
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["run", "--quiet", "--package", "zgate-simulator"]);
    if args.release {
        command.arg("--release");
    }
    let status = command.arg("--").args(&args.arguments).status()?;
    if status.success() {
        return Ok(());
    }
    Err(io::Error::other("the simulation did not pass; its output says why"))
}
