//! The command line: parsing, logging, exit codes. 0: done, 1: failed, 2:
//! invalid arguments.

mod api;
mod block;
mod config;
mod dataset;
#[cfg(test)]
mod documents_tests;
mod examples;
mod generate;
mod live;
mod mount_hint;
mod pool;
mod problems;
mod send;
mod serve;
mod snapshot;
mod top;

use crate::demo;
use crate::load;
use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};
use std::io::IsTerminal;
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;
use zgate_gateway::admin::Request;

/// Path of the configuration that the systemd unit names.
const USUAL_CONFIG: &str = "/etc/zgate/zgate.toml";

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
    /// Serve a scratch directory on loopback, read it back and compare
    Demo(demo::DemoArgs),
    /// Serve the exports and targets of a configuration
    Serve(serve::ServeArgs),
    /// Examine a configuration without starting anything
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Check this machine: faults, their consequences and remedies
    Doctor(zgate_doctor::DoctorArgs),
    /// Show health, throughput, exports, clients, LUNs and pools of a running
    /// gateway on one screen
    Status(live::StatusArgs),
    /// Show the load of clients, exports, initiators and LUNs of a running
    /// gateway, live
    Top(top::TopArgs),
    /// Show the exports of a running gateway
    #[command(alias = "export")]
    Exports(live::LiveArgs),
    /// Show the clients of a running gateway
    #[command(alias = "client")]
    Clients(live::LiveArgs),
    /// Show the iSCSI targets of a running gateway
    #[command(alias = "target")]
    Targets(live::LiveArgs),
    /// Show the initiators that are logged in to a running gateway
    #[command(alias = "session")]
    Sessions(live::LiveArgs),
    /// Add, resize or remove a logical unit, in effect at once and for good
    #[command(subcommand)]
    Lun(block::LunCommand),
    /// Show or change which initiators may use which target, in effect at once
    /// and for good
    Acl(block::AclArgs),
    /// Show this machine's pools and disks; plan and create a pool
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
    /// The same as `pool list`
    #[command(hide = true)]
    Pools(dataset::PoolArgs),
    /// Show this machine's datasets and their properties
    #[command(alias = "dataset")]
    Datasets(dataset::DatasetArgs),
    /// Make a running gateway release a dataset, so that it can be unmounted,
    /// renamed, destroyed, or exported with its pool
    Release(dataset::ReleaseArgs),
    /// Make a running gateway serve a released dataset again
    Resume(dataset::ResumeArgs),
    /// Make a running gateway tell clients that a dataset has other content, by
    /// `zfs rollback` or `zfs receive`
    Replaced(dataset::ReplacedArgs),
    /// Make a running gateway reload its configuration, all or nothing; what is
    /// in use is not taken away
    Reload(live::ReloadArgs),
    /// Make a running gateway finish its requests and exit
    Drain(live::LiveArgs),
    /// Make a running gateway finish its requests and keep its clients waiting,
    /// until another machine takes over
    Handover(live::HandoverArgs),
    /// Send one request to the HTTP API of a running gateway
    Api(api::ApiArgs),
    /// Show the commands that mount an export or attach a target
    MountHint(mount_hint::HintArgs),
    /// Serve volumes of gateways to Kubernetes (Container Storage Interface)
    Csi(zgate_csi::serve::CsiArgs),
    /// Client process of the demo
    #[command(hide = true)]
    DemoClient(demo::ClientArgs),
    /// Write the manual pages and shell completions of a package
    #[command(hide = true)]
    Generate(generate::GenerateArgs),
}

/// Returns the filter of the log: that of ZGATE_LOG, else of RUST_LOG, else `otherwise`; and
/// the fault of each variable that has none.
fn log_filter(
    variable: impl Fn(&str) -> Option<String>,
    otherwise: &str,
) -> (EnvFilter, Vec<String>) {
    let mut faults = Vec::new();
    for name in ["ZGATE_LOG", "RUST_LOG"] {
        let Some(text) = variable(name) else { continue };
        match EnvFilter::try_new(&text) {
            Ok(filter) => return (filter, faults),
            Err(error) => faults.push(format!(
                "{name}: {text:?} is no filter of the log ({error}), and has no effect: write a \
                 level, such as debug, or \"warn,zgate_nfs=debug\""
            )),
        }
    }
    (EnvFilter::new(otherwise), faults)
}

/// Starts logging to standard error. By default a service logs its start and stop, and other
/// commands log only problems.
fn start_logging(json: bool, otherwise: &str) {
    let (filter, faults) = log_filter(|name| std::env::var(name).ok(), otherwise);
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        // A line that cannot be written would be told by `eprintln!`, which panics then.
        .log_internal_errors(false)
        .with_writer(std::io::stderr);
    if json {
        builder.json().init();
    } else {
        builder.init();
    }
    for fault in faults {
        tracing::warn!("{fault}");
    }
}

/// Exit status that a shell reports for a program ended by SIGPIPE.
const NOBODY_READS: i32 = 128 + 13;

/// Makes a command end silently if its output is no longer read, as in
/// `zgate snapshot list | head -1`. `println!` panics then; the signal itself
/// stays ignored, because it would also end a load whose connection breaks.
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

/// Returns whether the command has `--json`.
fn wants_json(matches: &ArgMatches) -> bool {
    // Some commands have no such argument.
    let here = matches.try_get_one::<bool>("json").ok().flatten().is_some_and(|json| *json);
    here || matches.subcommand().is_some_and(|(_, matches)| wants_json(matches))
}

/// Prints an error to standard error; as JSON to standard output, too, if the command is
/// to print JSON.
fn print_error(error: &(dyn std::error::Error + 'static), json: bool) {
    if json {
        println!("{:#}", serde_json::json!({ "error": error.to_string() }));
    }
    match error.downcast_ref::<zgate_config::ConfigError>() {
        Some(error) => problems::print(error),
        None => eprintln!("zgate: {error}"),
    }
}

/// Runs the command line.
pub(crate) fn main() -> ExitCode {
    let matches = examples::add_to(Cli::command()).get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    if !matches!(cli.command, Command::Serve(_) | Command::Csi(_)) {
        end_when_nobody_reads();
    }
    let otherwise = match &cli.command {
        Command::Serve(_) | Command::Csi(_) => "info",
        // What is in doubt about targets and secrets is among the warnings of a check.
        Command::Config(_) => "warn,zgate_gateway::iscsi::settings=error",
        // A demo runs without root and on a scratch directory by design.
        Command::Demo(_) => "warn,zgate_posix::open=error",
        _ => "warn",
    };
    start_logging(cli.log_json, otherwise);
    let result = match &cli.command {
        Command::Doctor(args) => return zgate_doctor::run(args),
        Command::Demo(args) => demo::run(args).map_err(Into::into),
        Command::DemoClient(args) => demo::run_client(args),
        Command::Generate(args) => generate::run(args),
        Command::Serve(args) => serve::run(args),
        Command::Config(command) => config::run(command),
        Command::Status(args) => live::status(args),
        Command::Top(args) => top::run(args),
        Command::Exports(args) => live::exports(args),
        Command::Clients(args) => live::clients(args),
        Command::Targets(args) => live::targets(args),
        Command::Sessions(args) => live::sessions(args),
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
        Command::Replaced(args) => dataset::replaced(args),
        Command::Reload(args) => live::reload(args),
        Command::Drain(args) => live::run(args, &Request::Drain),
        Command::Handover(args) => live::handover(args),
        Command::Api(args) => api::run(args),
        Command::MountHint(args) => mount_hint::run(args),
        Command::Csi(args) => {
            zgate_csi::serve::run(args).map(|()| true).map_err(|error| error.to_string().into())
        }
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            print_error(&*error, wants_json(&matches));
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_without_a_filter_is_not_passed_over_in_silence() {
        let of = |zgate: Option<&str>, rust: Option<&str>| {
            let variable = |name: &str| if name == "ZGATE_LOG" { zgate } else { rust };
            let (filter, faults) = log_filter(|name| variable(name).map(str::to_owned), "warn");
            (filter.to_string(), faults)
        };
        assert_eq!(of(None, None), ("warn".to_owned(), Vec::new()));
        assert_eq!(of(Some("info"), Some("debug")), ("info".to_owned(), Vec::new()));
        for (rust, expected) in [(None, "warn"), (Some("debug"), "debug")] {
            let (filter, faults) = of(Some("warn,zgate_nfs=verbose"), rust);
            assert_eq!((filter.as_str(), faults.len()), (expected, 1), "{faults:?}");
            assert!(faults[0].starts_with("ZGATE_LOG: \"warn,zgate_nfs=verbose\" is no filter"));
        }
    }

    #[test]
    fn every_command_says_whether_its_errors_are_json() {
        let wants = |words: &str| {
            let matches = Cli::command().try_get_matches_from(words.split(' ')).unwrap();
            wants_json(&matches)
        };
        for json in [
            "zgate status --json",
            "zgate pool list --json",
            "zgate acl --json",
            "zgate acl show --json",
            "zgate lun add iqn.2026-11.test:vm 1 /a --json",
            "zgate load nfs://nas/a --json",
            "zgate demo --json",
        ] {
            assert!(wants(json), "{json}");
        }
        for text in ["zgate status", "zgate --log-json status", "zgate serve", "zgate acl show"] {
            assert!(!wants(text), "{text}");
        }
    }
}
