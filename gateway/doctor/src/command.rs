//! `zgate doctor`: finds faults of this machine, with their consequences and
//! remedies.

use crate::gather::{mounts, network, pair, server, sockets};
use crate::{Finding, Group, client, examine, path, rdma, report};
use clap::Args;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use zgate_control::SystemTool;

/// Usual path of the configuration.
const USUAL_CONFIG: &str = "/etc/zgate/zgate.toml";
/// Most connected clients whose network paths are checked without being named.
const MAX_PEERS: usize = 8;
/// Time limit of a program that is run for a mount, in seconds.
const QUESTION_SECONDS: u64 = 10;

/// Arguments of `zgate doctor`. Exit code 0: no faults, 1: warnings, 2: errors.
#[derive(Args, Debug)]
pub struct DoctorArgs {
    /// Check one side only; by default all that apply here
    group: Option<Group>,
    /// Hosts whose network path to check (with `path` or `pair`)
    hosts: Vec<String>,
    /// Check this side; may be repeated
    #[arg(long = "group", value_name = "GROUP")]
    groups: Vec<Group>,
    /// The configuration file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The gateway's admin socket, if not the configured one
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// The pool of a pair, where its configuration is on the other machine
    #[arg(long, value_name = "POOL")]
    pool: Option<String>,
    /// A TCP port that must answer on the hosts, for example 2049
    #[arg(long)]
    port: Option<u16>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl DoctorArgs {
    fn config(&self) -> &Path {
        self.config.as_deref().unwrap_or(Path::new(USUAL_CONFIG))
    }

    /// Returns whether a group was requested; if none was, whether it applies.
    fn wants(&self, group: Group, applies: bool) -> bool {
        let mut asked = self.groups.iter().chain(&self.group).peekable();
        if asked.peek().is_none() { applies } else { asked.any(|one| *one == group) }
    }

    fn is_server(&self) -> bool {
        self.config.is_some() || self.socket.is_some() || self.config().exists()
    }
}

/// Returns the hosts that are connected to the gateway.
fn connected(args: &DoctorArgs) -> Vec<IpAddr> {
    let Ok(config) = zgate_config::load(args.config()) else { return Vec::new() };
    let ports = server::service_ports(&config);
    sockets::peers(&sockets::all(), &ports).into_iter().take(MAX_PEERS).collect()
}

fn look(args: &DoctorArgs) -> Vec<Finding> {
    let mut findings = Vec::new();
    if args.wants(Group::Server, args.is_server()) {
        let facts = server::facts(args.config(), args.socket.as_deref());
        findings.extend(examine(Group::Server, crate::server::CHECKS, &facts));
    }
    if args.wants(Group::Client, true) {
        let facts = mounts::nfs(&SystemTool { limit_seconds: QUESTION_SECONDS });
        findings.extend(examine(Group::Client, client::CHECKS, &facts));
    }
    if args.wants(Group::Rdma, true) {
        let facts = server::rdma(args.config(), args.socket.as_deref());
        findings.extend(examine(Group::Rdma, rdma::CHECKS, &facts));
    }
    if args.wants(Group::Pair, args.pool.is_some()) {
        let pool = args.pool.as_deref();
        let facts = pair::facts(args.config(), args.socket.as_deref(), pool);
        findings.extend(examine(Group::Pair, crate::pair::CHECKS, &facts));
    }
    let names_peer = args.group == Some(Group::Pair) && !args.hosts.is_empty();
    if args.wants(Group::Path, true) || names_peer {
        let peers = if args.hosts.is_empty() { connected(args) } else { Vec::new() };
        let facts = network::paths(&args.hosts, &peers, args.port);
        findings.extend(examine(Group::Path, path::CHECKS, &facts));
    }
    findings
}

/// Runs the checks and prints the findings.
pub fn run(args: &DoctorArgs) -> ExitCode {
    let findings = look(args);
    if args.json {
        match report::json(&findings) {
            Ok(text) => println!("{text}"),
            Err(error) => eprintln!("zgate: {error}"),
        }
    } else if findings.is_empty() {
        println!(
            "nothing to check: `server` needs a configuration (--config FILE, usually \
             {USUAL_CONFIG}), `client` an NFS mount, `rdma` a device or rdma.listen, `path` a \
             HOST or connected clients"
        );
    } else {
        print!("{}", report::text(&findings));
    }
    ExitCode::from(report::exit_code(&findings))
}
