//! Command line of the driver and its socket.

use crate::addresses;
use crate::controller::Controller;
use crate::identity::Identity;
use crate::limits::{MAX_CONCURRENT_CALLS, PATIENCE_SECONDS};
use crate::names;
use crate::node::host::{Patience, System};
use crate::node::{Node, NodeSettings};
use crate::proto::controller_server::ControllerServer;
use crate::proto::group_controller_server::GroupControllerServer;
use crate::proto::identity_server::IdentityServer;
use crate::proto::node_server::NodeServer;
use crate::settings::{DEFAULT_ZONE, Settings};
use clap::{ArgGroup, Args, ValueEnum};
use ipnet::IpNet;
use std::error::Error;
use std::fs;
use std::future::Future;
use std::net::IpAddr;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use zgate_api::Transport;

/// Failure of the driver as a whole.
pub type ServeError = Box<dyn Error + Send + Sync>;

/// File in which open-iscsi keeps the name of this machine.
const INITIATOR_FILE: &str = "/etc/iscsi/initiatorname.iscsi";

/// Transports that a node tries, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Transports {
    /// TCP only
    Tcp,
    /// RDMA (iSER for disks), then TCP
    Rdma,
}

/// Arguments of `zgate csi`.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("role").args(["controller", "node"]).required(true).multiple(true))]
#[command(group = ArgGroup::new("addresses").args(["address", "address_in"]).multiple(true))]
pub struct CsiArgs {
    /// Socket on which Kubernetes reaches the driver
    #[arg(long, value_name = "PATH", env = "CSI_ENDPOINT", default_value = "/csi/csi.sock")]
    pub endpoint: String,
    /// Settings with the gateways: makes this process a controller
    #[arg(long, value_name = "FILE")]
    pub controller: Option<PathBuf>,
    /// Name of this machine: makes this process a node
    #[arg(long, value_name = "NAME", env = "NODE_NAME", requires = "addresses")]
    pub node: Option<String>,
    /// Address from which this machine uses storage; may be repeated
    #[arg(long, value_name = "IP", env = "NODE_ADDRESSES", value_delimiter = ',')]
    pub address: Vec<IpAddr>,
    /// Network of storage: this machine uses its own addresses in it; may be repeated
    #[arg(long, value_name = "CIDR", env = "NODE_NETWORKS", value_delimiter = ',')]
    pub address_in: Vec<IpNet>,
    /// iSCSI name of this machine; by default that of open-iscsi
    #[arg(long, value_name = "IQN")]
    pub initiator: Option<String>,
    /// Zone of this machine
    #[arg(long, value_name = "ZONE", env = "NODE_ZONE", default_value = DEFAULT_ZONE)]
    pub zone: String,
    /// Gateway that this machine reaches; may be repeated; by default all of its zone
    #[arg(long, value_name = "NAME")]
    pub gateway: Vec<String>,
    /// Transports that this machine tries
    #[arg(long, value_enum, default_value = "tcp")]
    pub transport: Transports,
    /// Most volumes that the scheduler places on this machine; 0: no limit
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub max_volumes: i64,
    /// Time after which commands of a disk with one path fail while its gateway is away, in
    /// seconds; off: never
    #[arg(long, value_name = "SECONDS", default_value_t = Patience::Seconds(PATIENCE_SECONDS))]
    pub replacement_timeout: Patience,
    /// Directory of what a node remembers of its volumes
    #[arg(
        long,
        value_name = "DIR",
        default_value = "/var/lib/kubelet/plugins/csi.zgate.io/volumes"
    )]
    pub state_dir: PathBuf,
    /// Program that runs the commands of a node, such as
    /// "nsenter --target 1 --mount --ipc --"
    #[arg(long, value_name = "COMMAND", default_value = "")]
    pub host_command: String,
}

impl CsiArgs {
    fn node_settings(&self, name: &str) -> Result<NodeSettings, ServeError> {
        let own = if self.address_in.is_empty() { Vec::new() } else { zgate_io::own_addresses()? };
        let node = names::Node {
            name: name.to_owned(),
            addresses: addresses::of_storage(&self.address, &self.address_in, own)?,
            initiator: self.initiator_name(Path::new(INITIATOR_FILE))?,
        };
        if !node.is_valid() {
            return Err(format!(
                "{node}: name, addresses and initiator together are not an id of a node; use small \
                 letters, and fewer --address or a smaller network for --address-in"
            )
            .into());
        }
        for network in addresses::without(&self.address_in, &node.addresses) {
            tracing::warn!(
                %network,
                "no interface of this machine that is up has an address there, so volumes that are \
                 attached from now on are not served to it by that network; restart the driver \
                 when the interface is back"
            );
        }
        tracing::info!(id = %node, "this node");
        Ok(NodeSettings {
            node,
            zone: self.zone.clone(),
            gateways: self.gateway.clone(),
            transports: match self.transport {
                Transports::Tcp => vec![Transport::Tcp],
                Transports::Rdma => vec![Transport::Rdma, Transport::Tcp],
            },
            max_volumes: self.max_volumes,
            patience: self.replacement_timeout,
            state_dir: self.state_dir.clone(),
        })
    }

    /// Returns the iSCSI name of this machine in small letters; none if open-iscsi is not set up.
    ///
    /// # Errors
    /// The gateway would take no such name, and refuse all access of this machine.
    fn initiator_name(&self, file: &Path) -> Result<Option<String>, ServeError> {
        let (from, found) = match &self.initiator {
            Some(name) => ("--initiator".to_owned(), Some(name.clone())),
            None => (file.display().to_string(), initiator_of(file)),
        };
        let found = found.map(|name| name.to_lowercase()).filter(|name| !name.is_empty());
        match found {
            Some(name) if !names::is_initiator(&name) => Err(format!(
                "{from}: {name:?} is no iSCSI name; begin it with iqn., eui. or naa., and use \
                 letters, digits, - . : and _"
            )
            .into()),
            found => Ok(found),
        }
    }
}

/// Reads the iSCSI name of this machine; none if open-iscsi is not set up.
fn initiator_of(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let mut names = text.lines().filter_map(|line| line.trim().strip_prefix("InitiatorName="));
    names.next_back().map(|name| name.trim().to_owned())
}

/// Services of one process.
#[derive(Debug, Default)]
pub struct Services {
    /// The controller service.
    pub controller: Option<Controller>,
    /// The node service.
    pub node: Option<Node>,
}

/// Runs the driver until SIGTERM or SIGINT.
///
/// # Errors
/// The settings are wrong, or the socket cannot be opened.
pub fn run(args: &CsiArgs) -> Result<(), ServeError> {
    let controller =
        args.controller.as_ref().map(|path| Settings::read(path)).transpose()?.map(Controller::new);
    let host = System::new(args.host_command.split_whitespace().map(str::to_owned).collect());
    let node = match &args.node {
        Some(name) => Some(Node::new(args.node_settings(name)?, Arc::new(host))?),
        None => None,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let services = Services { controller, node };
    let served = runtime.block_on(async {
        let mut terminated =
            tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
        let stop = async move {
            tokio::select! {
                _ = terminated.recv() => {}
                _ = tokio::signal::ctrl_c() => {}
            }
        };
        serve(services, &args.endpoint, stop).await
    });
    // A child that waits for a dead server does not keep the driver.
    runtime.shutdown_background();
    served
}

/// Serves on a Unix socket, `unix:PATH` or a path, until `stop` ends.
///
/// # Errors
/// The socket cannot be opened.
pub async fn serve(
    services: Services,
    endpoint: &str,
    stop: impl Future<Output = ()> + Send,
) -> Result<(), ServeError> {
    let path = endpoint.strip_prefix("unix:").unwrap_or(endpoint);
    // `unix:///run/x` is the form of a URL with an empty host.
    let absolute = path.strip_prefix("//").filter(|rest| rest.starts_with('/'));
    let path = Path::new(absolute.unwrap_or(path));
    let listener = listen(path)?;
    tracing::info!(endpoint, "serving");
    let identity = Identity { has_controller: services.controller.is_some() };
    Server::builder()
        .concurrency_limit_per_connection(MAX_CONCURRENT_CALLS)
        .add_service(IdentityServer::new(identity))
        .add_optional_service(services.controller.clone().map(GroupControllerServer::new))
        .add_optional_service(services.controller.map(ControllerServer::new))
        .add_optional_service(services.node.map(NodeServer::new))
        .serve_with_incoming_shutdown(UnixListenerStream::new(listener), stop)
        .await?;
    Ok(())
}

/// Opens the socket for root alone; replaces that of an earlier process.
fn listen(path: &Path) -> Result<UnixListener, ServeError> {
    let named = |error: std::io::Error| format!("{}: {error}", path.display());
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => fs::remove_file(path).map_err(named)?,
        Ok(_) => return Err(format!("{} is no socket; remove it", path.display()).into()),
        Err(_) => {}
    }
    let listener = UnixListener::bind(path).map_err(named)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(named)?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: CsiArgs,
    }

    #[test]
    fn a_driver_without_a_role_is_told_both() {
        let said = Line::try_parse_from(["csi"]).unwrap_err().to_string();
        assert!(said.contains("--controller <FILE>|--node <NAME>"), "{said}");
        let both = ["csi", "--controller", "/a", "--node", "n", "--address", "10.0.0.1"];
        let both = Line::try_parse_from(both).unwrap().args;
        assert!(both.controller.is_some() && both.node.is_some());
        assert!(Line::try_parse_from(["csi", "--controller", "/a"]).is_ok());
    }

    #[test]
    fn a_node_has_addresses_or_networks_of_storage() {
        let node = ["csi", "--node", "n"];
        let parsed = |more: &[&str]| Line::try_parse_from(node.iter().chain(more));
        assert!(parsed(&[]).is_err() && parsed(&["--address-in", "10.10.0.0"]).is_err());
        let args = parsed(&["--address-in", "127.0.0.0/8,::1/128"]).unwrap().args;
        assert_eq!(args.address_in.len(), 2);
        let node = args.node_settings("n").unwrap().node;
        assert!(node.addresses.iter().all(IpAddr::is_loopback), "{node}");
        let nowhere = parsed(&["--address-in", "240.0.0.0/4"]).unwrap().args;
        assert!(nowhere.node_settings("n").unwrap_err().to_string().contains("240.0.0.0/4"));
    }

    #[test]
    fn a_disk_waits_as_long_as_is_said() {
        let patience = |more: &[&str]| {
            let line = ["csi", "--controller", "/a"].iter().chain(more).copied();
            Line::try_parse_from(line).map(|line| line.args.replacement_timeout)
        };
        assert_eq!(patience(&[]).unwrap(), Patience::Seconds(PATIENCE_SECONDS));
        assert_eq!(patience(&["--replacement-timeout", "off"]).unwrap(), Patience::Unlimited);
        let said = patience(&["--replacement-timeout", "0"]).unwrap_err().to_string();
        assert!(said.contains("seconds from 1"), "{said}");
    }

    #[test]
    fn the_name_of_open_iscsi_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("name");
        fs::write(&path, "## comment\nInitiatorName=iqn.1993-08.org.debian:01:a\n").unwrap();
        assert_eq!(initiator_of(&path).as_deref(), Some("iqn.1993-08.org.debian:01:a"));
        assert_eq!(initiator_of(dir.path()), None);
    }

    #[test]
    fn a_name_that_no_gateway_takes_is_refused_with_its_source() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("name");
        let of = |more: &[&str]| {
            let node = ["csi", "--node", "n", "--address", "10.0.0.1"];
            let args = Line::try_parse_from(node.iter().chain(more)).unwrap().args;
            args.initiator_name(&path).map_err(|error| error.to_string())
        };
        assert_eq!(of(&[]), Ok(None));
        fs::write(&path, "InitiatorName=\n").unwrap();
        assert_eq!(of(&[]), Ok(None));
        fs::write(&path, "InitiatorName=iqn.2026-11.Example:N_1\n").unwrap();
        assert_eq!(of(&[]), Ok(Some("iqn.2026-11.example:n_1".to_owned())));
        fs::write(&path, "InitiatorName=joe\n").unwrap();
        let said = of(&[]).unwrap_err();
        assert!(said.contains(&path.display().to_string()) && said.contains("joe"), "{said}");
        let said = of(&["--initiator", "iqn.a b"]).unwrap_err();
        assert!(said.contains("--initiator"), "{said}");
    }
}
