//! The command line: parsing, logging, exit codes. 0: done, 1: it failed,
//! 2: what was asked makes no sense.

mod block;
mod config;
mod dataset;
mod doctor;
mod live;
mod mount_hint;
mod pool;
mod send;
mod serve;
mod snapshot;

use crate::admin::Request;
use crate::demo;
use crate::load;
use clap::{Parser, Subcommand};
use std::io::IsTerminal;
use std::process::ExitCode;

/// A user-space storage gateway for ZFS pools
#[derive(Debug, Parser)]
#[command(name = "zgate", version)]
struct Cli {
    /// Log as JSON lines instead of text
    #[arg(long, global = true)]
    log_json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve a scratch directory on loopback, read it back, compare
    Demo(demo::DemoArgs),
    /// Serve what a configuration names
    Serve(serve::ServeArgs),
    /// Look at a configuration without starting anything
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Look at this machine: what is wrong, why, and what mends it
    Doctor(doctor::DoctorArgs),
    /// A running gateway at a glance
    Status(live::LiveArgs),
    /// What a running gateway exports
    Exports(live::LiveArgs),
    /// Who uses a running gateway
    Clients(live::LiveArgs),
    /// What iSCSI targets a running gateway serves
    Targets(live::LiveArgs),
    /// Who is logged in to its targets
    Sessions(live::LiveArgs),
    /// Add, resize or remove a logical unit while it is served
    #[command(subcommand)]
    Lun(block::LunCommand),
    /// Who may use which target
    Acl(block::AclArgs),
    /// Plan and make a pool from a description of its disks
    #[command(subcommand)]
    Pool(pool::PoolCommand),
    /// Take, list, prune, compare and send snapshots
    #[command(subcommand)]
    Snapshot(snapshot::SnapshotCommand),
    /// Load a model from any NFSv4.1 server into this machine's memory
    Load(load::LoadArgs),
    /// Copy a file from an NFSv4.1 server or to it
    Cp(load::CopyArgs),
    /// List a directory or a model's tensors on an NFSv4.1 server
    Ls(load::ListArgs),
    /// This machine's pools and what they are made of
    Pools(dataset::PoolArgs),
    /// This machine's datasets and their properties
    Datasets(dataset::DatasetArgs),
    /// Have a running gateway let go of a dataset, so that it can be
    /// unmounted, renamed, destroyed, or exported with its pool
    Release(dataset::ReleaseArgs),
    /// Have it serve again what it let go of
    Resume(dataset::ResumeArgs),
    /// Have a running gateway read its configuration again, all or nothing
    Reload(live::LiveArgs),
    /// Have a running gateway finish what runs and end
    Drain(live::LiveArgs),
    /// The lines that mount an export or attach a target
    MountHint(mount_hint::HintArgs),
    /// The reading side of the demo
    #[command(hide = true)]
    DemoClient(demo::ClientArgs),
}

/// Logs go to standard error; RUST_LOG or ZGATE_LOG chooses what. Without
/// them a service tells when it serves and stops, commands tell of trouble only.
fn start_logging(json: bool, otherwise: &str) {
    let filter = tracing_subscriber::EnvFilter::try_from_env("ZGATE_LOG")
        .or_else(|_| tracing_subscriber::EnvFilter::try_from_default_env())
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(otherwise));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    if json { builder.json().init() } else { builder.init() }
}

/// What a shell says of a program that SIGPIPE ended.
const NOBODY_READS: i32 = 128 + 13;

/// With nobody left to read it, as in `zgate snapshot list | head -1`, a command ends
/// without a word. `println!` panics then; the signal itself stays ignored, because
/// it would also end a load whose connection breaks.
fn end_when_nobody_reads() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let said = panic.payload().downcast_ref::<String>().map_or("", String::as_str);
        if said.starts_with("failed printing to stdout") && said.contains("Broken pipe") {
            std::process::exit(NOBODY_READS);
        }
        before(panic);
    }));
}

/// Runs what the command line asks for.
pub(crate) fn main() -> ExitCode {
    let cli = Cli::parse();
    if !matches!(cli.command, Command::Serve(_)) {
        end_when_nobody_reads();
    }
    let otherwise = match &cli.command {
        Command::Serve(_) => "info",
        // Without root and on a scratch directory, as it is meant to be.
        Command::Demo(_) => "warn,zgate_posix::open=error",
        _ => "warn",
    };
    start_logging(cli.log_json, otherwise);
    let result = match &cli.command {
        Command::Doctor(args) => return doctor::run(args),
        Command::Demo(args) => demo::run(args).map_err(Into::into),
        Command::DemoClient(args) => demo::run_client(args),
        Command::Serve(args) => serve::run(args),
        Command::Config(command) => config::run(command),
        Command::Status(args) => live::run(args, &Request::Status),
        Command::Exports(args) => live::run(args, &Request::Exports),
        Command::Clients(args) => live::run(args, &Request::Clients),
        Command::Targets(args) => live::run(args, &Request::Targets),
        Command::Sessions(args) => live::run(args, &Request::Sessions),
        Command::Lun(command) => block::lun(command),
        Command::Acl(args) => block::acl(args),
        Command::Pool(command) => pool::run(command),
        Command::Snapshot(command) => snapshot::run(command),
        Command::Load(args) => load::load(args),
        Command::Cp(args) => load::copy(args),
        Command::Ls(args) => load::list(args),
        Command::Pools(args) => dataset::pools(args),
        Command::Datasets(args) => dataset::datasets(args),
        Command::Release(args) => dataset::release(args),
        Command::Resume(args) => dataset::resume(args),
        Command::Reload(args) => live::run(args, &Request::Reload),
        Command::Drain(args) => live::run(args, &Request::Drain),
        Command::MountHint(args) => mount_hint::run(args),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("zgate: {error}");
            ExitCode::FAILURE
        }
    }
}
