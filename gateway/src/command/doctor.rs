//! `zgate doctor`: what is wrong here, why, and what mends it.

use crate::doctor::gather::{mounts, network, server, sockets};
use crate::doctor::{Finding, Group, client, examine, path, rdma, report};
use clap::Args;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use zgate_control::SystemTool;

/// Where the configuration usually is.
const USUAL_CONFIG: &str = "/etc/zgate/zgate.toml";
/// Most connected clients whose ways are looked at unasked.
const MAX_PEERS: usize = 8;
/// How long a program may take that is asked about a mount, in seconds.
const QUESTION_SECONDS: u64 = 10;

/// What to look at. Exit code 0: all is well, 1: warnings, 2: errors.
#[derive(Args, Debug)]
pub(crate) struct DoctorArgs {
    /// Look at one side only; without it at all that apply here
    group: Option<Group>,
    /// Hosts to look at the way to (with `path`)
    hosts: Vec<String>,
    /// Likewise; may be repeated
    #[arg(long = "group", value_name = "GROUP")]
    groups: Vec<Group>,
    /// The configuration file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The gateway's admin socket, if not the configured one
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// A TCP port that has to answer at the hosts, 2049 for instance
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

    /// Whether a group was asked for; none was: whether it applies.
    fn wants(&self, group: Group, applies: bool) -> bool {
        let mut asked = self.groups.iter().chain(&self.group).peekable();
        if asked.peek().is_none() { applies } else { asked.any(|one| *one == group) }
    }

    fn is_server(&self) -> bool {
        self.config.is_some() || self.socket.is_some() || self.config().exists()
    }
}

/// Hosts that are connected to the gateway.
fn connected(args: &DoctorArgs) -> Vec<IpAddr> {
    let Ok(config) = zgate_config::load(args.config()) else { return Vec::new() };
    let ports = server::service_ports(&config);
    sockets::peers(&sockets::all(), &ports).into_iter().take(MAX_PEERS).collect()
}

fn look(args: &DoctorArgs) -> Vec<Finding> {
    let mut findings = Vec::new();
    if args.wants(Group::Server, args.is_server()) {
        let facts = server::facts(args.config(), args.socket.as_deref());
        findings.extend(examine(Group::Server, crate::doctor::server::CHECKS, &facts));
    }
    if args.wants(Group::Client, true) {
        let facts = mounts::nfs(&SystemTool { limit_seconds: QUESTION_SECONDS });
        findings.extend(examine(Group::Client, client::CHECKS, &facts));
    }
    if args.wants(Group::Rdma, true) {
        let facts = server::rdma(args.config(), args.socket.as_deref());
        findings.extend(examine(Group::Rdma, rdma::CHECKS, &facts));
    }
    if args.wants(Group::Path, true) {
        let peers = if args.hosts.is_empty() { connected(args) } else { Vec::new() };
        let facts = network::paths(&args.hosts, &peers, args.port);
        findings.extend(examine(Group::Path, path::CHECKS, &facts));
    }
    findings
}

/// Looks and prints.
pub(crate) fn run(args: &DoctorArgs) -> ExitCode {
    let findings = look(args);
    if args.json {
        match report::json(&findings) {
            Ok(text) => println!("{text}"),
            Err(error) => eprintln!("zgate: {error}"),
        }
    } else if findings.is_empty() {
        println!(
            "nothing to look at: `server` needs a configuration (--config FILE, usually \
             {USUAL_CONFIG}), `client` an NFS mount, `rdma` a device or \
             rdma.listen, `path` a HOST or connected clients"
        );
    } else {
        print!("{}", report::text(&findings));
    }
    ExitCode::from(report::exit_code(&findings))
}
