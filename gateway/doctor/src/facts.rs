//! Facts that the checks examine: plain data, so that a test can describe each
//! fault.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use zgate_config::Config;
use zgate_control::health::{ArcStats, PoolHealth, PoolState};
use zgate_control::{Dataset, DatasetKind, DatasetName, DatasetPattern};
use zgate_gateway::{LunProblem, TlsFault, Validity};

/// The machine a gateway runs on.
#[derive(Debug)]
pub(crate) struct ServerFacts {
    pub(crate) config_path: PathBuf,
    /// Reason for which the configuration cannot be used.
    pub(crate) config_problem: Option<String>,
    /// The configuration, or the defaults.
    pub(crate) config: Config,
    pub(crate) state_dir: StateDirFacts,
    pub(crate) process: ProcessFacts,
    /// Reason for which io_uring cannot be used.
    pub(crate) uring_problem: Option<String>,
    pub(crate) ports: Vec<PortFacts>,
    /// Number of threads of the kernel's NFS server.
    pub(crate) nfsd_threads: u64,
    /// Set if a program listens at rpcbind's port.
    pub(crate) rpcbind_listens: bool,
    /// Clients of the running gateway; none if no gateway runs.
    pub(crate) clients: Option<Vec<ClientFacts>>,
    /// Items that the running gateway has not found; none if no gateway runs.
    pub(crate) absent: Option<Vec<AbsentFacts>>,
    /// Validity of the certificates of `[tls]`, or what is wrong with its files.
    pub(crate) certificates: Result<Vec<Validity>, TlsFault>,
    pub(crate) exports: Vec<ExportFacts>,
    pub(crate) luns: Vec<LunFacts>,
    pub(crate) zfs: ZfsFacts,
    pub(crate) zed: ZedFacts,
    pub(crate) memory_bytes: u64,
    pub(crate) rdma_devices: usize,
    /// Set if corosync is set up with other nodes: Pacemaker may move pools.
    pub(crate) is_cluster_node: bool,
    /// Set if the clock is synchronized; none if that cannot be determined.
    pub(crate) clock_synchronized: Option<bool>,
    pub(crate) now_unix_seconds: u64,
}

/// A machine of a pair, the one that serves or the one that waits.
#[derive(Debug)]
pub(crate) struct PairFacts {
    /// Pool that moves; none if it is not known.
    pub(crate) pool: Option<String>,
    /// Set if this machine has imported it.
    pub(crate) imported: bool,
    /// State in which it could be imported here, or why that is not known; none if
    /// no disk of it is visible.
    pub(crate) visible: Result<Option<String>, String>,
    pub(crate) multihost: Option<bool>,
    pub(crate) hostid: Option<u32>,
    /// Set if the hostid is in a file.
    pub(crate) hostid_is_kept: bool,
    pub(crate) gateway_answers: bool,
    pub(crate) state_on_pool: bool,
    pub(crate) config_on_pool: bool,
    /// Agents and programs that are not installed.
    pub(crate) missing: Vec<&'static str>,
    /// The cluster, or why it cannot be asked.
    pub(crate) cluster: Result<ClusterFacts, String>,
    /// Units that would act beside the cluster at boot.
    pub(crate) enabled_units: Vec<String>,
}

impl PairFacts {
    /// Returns the pool's name for a text.
    pub(crate) fn pool_name(&self) -> &str {
        self.pool.as_deref().unwrap_or("of the pair")
    }
}

/// State of a cluster.
#[derive(Clone, Debug)]
pub(crate) struct ClusterFacts {
    pub(crate) nodes: usize,
    pub(crate) online: usize,
    /// Nodes that are told not to run resources.
    pub(crate) standby: usize,
    /// Set if fencing is on; none if nobody has set it.
    pub(crate) fencing: Option<bool>,
    pub(crate) fence_devices: usize,
}

/// The state directory.
#[derive(Clone, Debug, Default)]
pub(crate) struct StateDirFacts {
    pub(crate) exists: bool,
    /// Permission bits.
    pub(crate) mode: u32,
    pub(crate) owner: u32,
    /// Reason for which the directory, or its parent if it does not exist,
    /// cannot be written to.
    pub(crate) write_problem: Option<String>,
    /// Bytes that are free for its owner; none if that cannot be determined.
    pub(crate) free_bytes: Option<u64>,
    /// Pseudo paths of the exports that serve it, or would.
    pub(crate) exported_by: Vec<String>,
    /// The mount the directory, or its deepest existing ancestor, lies on.
    pub(crate) mount: Option<Mount>,
}

/// The process of the running gateway, or this process in its place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessFacts {
    /// Process id of the running gateway; none: this process stands in for it.
    pub(crate) gateway: Option<u32>,
    pub(crate) user: u32,
    /// Bits of the effective capabilities.
    pub(crate) capabilities: u64,
    /// Soft limit of locked memory, in bytes; none: unlimited.
    pub(crate) locked_memory_bytes: Option<u64>,
    /// Limit of open files; none: unlimited.
    pub(crate) open_files: Option<u64>,
}

impl ProcessFacts {
    /// Returns the owner of the limits, in words.
    pub(crate) fn whose(&self) -> String {
        match self.gateway {
            Some(pid) => format!("the gateway (pid {pid})"),
            None => "a gateway started from here".to_owned(),
        }
    }
}

/// An address in the configuration.
#[derive(Clone, Debug)]
pub(crate) struct PortFacts {
    /// "NFS", "iSCSI", "API", "metrics".
    pub(crate) service: &'static str,
    pub(crate) address: SocketAddr,
    pub(crate) holder: Holder,
}

/// Holder of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    Nobody,
    /// The gateway itself.
    Gateway,
    Process {
        pid: u32,
        name: String,
    },
    /// A socket that no process has open.
    Kernel,
}

/// An item of the configuration that the running gateway has not found.
#[derive(Clone, Debug)]
pub(crate) struct AbsentFacts {
    pub(crate) name: String,
    pub(crate) reason: String,
    pub(crate) next_step: String,
}

/// A client of the running gateway.
#[derive(Clone, Debug)]
pub(crate) struct ClientFacts {
    pub(crate) name: String,
    pub(crate) address: String,
    pub(crate) idle_seconds: u64,
    /// Set if its lease has expired.
    pub(crate) courtesy: bool,
    pub(crate) opens: u64,
    pub(crate) locks: u64,
}

/// An export of the configuration.
#[derive(Clone, Debug)]
pub(crate) struct ExportFacts {
    pub(crate) pseudo: String,
    /// Directory, if it is configured or its dataset is mounted.
    pub(crate) path: Option<PathBuf>,
    /// The same directory, free of symbolic links.
    pub(crate) real_path: Option<PathBuf>,
    /// Dataset or pattern in the configuration.
    pub(crate) dataset: Option<String>,
    /// Reason for which the directory cannot be used.
    pub(crate) path_problem: Option<String>,
    /// The mount the directory lies on.
    pub(crate) mount: Option<Mount>,
    /// Set if any client may write.
    pub(crate) writable: bool,
    /// Longest READ or WRITE, in bytes.
    pub(crate) max_transfer_bytes: u64,
}

/// A mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    pub(crate) source: String,
    pub(crate) target: PathBuf,
    pub(crate) kind: String,
    pub(crate) options: BTreeMap<String, String>,
}

impl Mount {
    /// Returns whether the mount has an option.
    pub(crate) fn has(&self, option: &str) -> bool {
        self.options.contains_key(option)
    }

    /// Returns the number of an option.
    pub(crate) fn number(&self, option: &str) -> Option<u64> {
        self.options.get(option)?.parse().ok()
    }
}

/// A logical unit of the configuration.
#[derive(Clone, Debug)]
pub(crate) struct LunFacts {
    pub(crate) target: String,
    pub(crate) number: u16,
    pub(crate) path: PathBuf,
    /// Dataset: the zvol, or the one that contains the file.
    pub(crate) dataset: Option<DatasetName>,
    /// Reason for which it cannot be opened.
    pub(crate) problem: Option<LunProblem>,
}

impl LunFacts {
    /// Returns its name in reports.
    pub(crate) fn title(&self) -> String {
        format!("LUN {} of {}", self.number, self.target)
    }
}

/// ZFS on the machine.
#[derive(Debug, Default)]
pub(crate) struct ZfsFacts {
    pub(crate) pools: Vec<PoolFacts>,
    pub(crate) datasets: Vec<Dataset>,
    /// Reason for which the datasets are not known.
    pub(crate) datasets_problem: Option<String>,
    pub(crate) arc: Option<ArcStats>,
}

/// Script that OpenZFS's event daemon runs for zgate, where packages install it.
pub(crate) const ZEDLET: &str = "/etc/zfs/zed.d/history_event-zgate.sh";

/// OpenZFS's event daemon, zed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ZedFacts {
    /// Set if it runs.
    pub(crate) runs: bool,
    /// Set if [`ZEDLET`] is there, and zed would run it.
    pub(crate) has_zedlet: bool,
}

/// A pool.
#[derive(Debug)]
pub(crate) struct PoolFacts {
    pub(crate) name: String,
    /// State reported by the kernel.
    pub(crate) state: PoolState,
    /// Health reported by `zpool`; not queried for a suspended pool.
    pub(crate) health: Option<PoolHealth>,
    /// Reason for which `zpool` gave no answer.
    pub(crate) problem: Option<String>,
    pub(crate) ashifts: Vec<(String, u32)>,
    /// Set if any data device is a rotating disk; none if that is not known.
    pub(crate) rotational: Option<bool>,
    /// Property `multihost`; none if it is not known.
    pub(crate) multihost: Option<bool>,
}

impl ZfsFacts {
    /// Returns a dataset by its name.
    pub(crate) fn dataset(&self, name: &str) -> Option<&Dataset> {
        self.datasets.iter().find(|dataset| dataset.name.as_str() == name)
    }

    /// Returns the datasets of an export: the one it lies on, or those of its
    /// pattern.
    pub(crate) fn of_export(&self, export: &ExportFacts) -> Vec<&Dataset> {
        if let Some(mount) = export.mount.as_ref().filter(|mount| mount.kind == "zfs") {
            return self.dataset(&mount.source).into_iter().collect();
        }
        let pattern = export.dataset.as_ref().and_then(|text| text.parse::<DatasetPattern>().ok());
        let Some(pattern) = pattern else { return Vec::new() };
        let shown = |dataset: &&Dataset| dataset.is_filesystem() && pattern.matches(&dataset.name);
        self.datasets.iter().filter(shown).collect()
    }
}

/// Returns the mount point of a file system, and whether it is mounted.
pub(crate) fn mount_point(dataset: &Dataset) -> Option<(&Path, bool)> {
    match &dataset.kind {
        DatasetKind::Filesystem { mounted, mountpoint: Some(point), can_mount: true, .. } => {
            Some((point, *mounted))
        }
        _ => None,
    }
}

/// A machine that mounts exports.
#[derive(Clone, Debug, Default)]
pub(crate) struct MountsFacts {
    pub(crate) mounts: Vec<NfsMount>,
}

/// One of its mounts.
#[derive(Clone, Debug)]
pub(crate) struct NfsMount {
    pub(crate) mount: Mount,
    /// Speed of the interface towards the server, in Mb/s.
    pub(crate) link_megabits: Option<u64>,
}

/// Network paths to hosts.
#[derive(Clone, Debug, Default)]
pub(crate) struct PathFacts {
    pub(crate) hosts: Vec<HostPath>,
}

/// Network path to a host.
#[derive(Clone, Debug)]
pub(crate) struct HostPath {
    pub(crate) host: String,
    /// Set if the host was named on the command line, clear if it was found
    /// among the connections.
    pub(crate) asked_for: bool,
    pub(crate) address: Option<IpAddr>,
    /// Reason for which there is no path.
    pub(crate) problem: Option<String>,
    pub(crate) device: String,
    /// MTU of the interface, in bytes.
    pub(crate) device_mtu: u64,
    pub(crate) probe: Probe,
    /// Port that was tried, and the reason if it did not answer.
    pub(crate) port: Option<(u16, Option<String>)>,
}

/// Result of sending packets that must not be fragmented.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Probe {
    /// Nothing was sent, for this reason.
    NotTried(String),
    /// Even small packets are not answered.
    Silent,
    /// Packets of the interface's MTU are answered.
    Full,
    /// A hop reported the size it accepts.
    Told { mtu: u64 },
    /// Large packets vanish silently; the largest size that was answered.
    Vanish { largest: u64 },
}

/// RDMA devices of a machine.
#[derive(Clone, Debug, Default)]
pub(crate) struct RdmaFacts {
    /// Addresses for NFS over RDMA; empty: none.
    pub(crate) listen: Vec<SocketAddr>,
    /// Memory to be registered, in bytes.
    pub(crate) arena_bytes: u64,
    /// Owner of the limits, in words.
    pub(crate) whose: String,
    /// Limit of locked memory, in bytes; none: unlimited.
    pub(crate) locked_memory_bytes: Option<u64>,
    /// Reason for which the libraries or devices cannot be used.
    pub(crate) library_problem: Option<String>,
    /// Addresses that the running gateway should serve over RDMA but does not,
    /// with its reasons; none: no gateway runs, or it was not queried.
    pub(crate) not_served: Option<Vec<String>>,
    pub(crate) devices: Vec<RdmaDevice>,
    pub(crate) numa_nodes: usize,
}

/// An RDMA device, according to sysfs.
#[derive(Clone, Debug, Default)]
pub(crate) struct RdmaDevice {
    pub(crate) name: String,
    pub(crate) driver: String,
    pub(crate) firmware: String,
    pub(crate) board: String,
    /// "16.0 GT/s PCIe".
    pub(crate) pcie_speed: Option<String>,
    /// Lanes.
    pub(crate) pcie_width: Option<String>,
    pub(crate) pcie_max_speed: Option<String>,
    pub(crate) pcie_max_width: Option<String>,
    pub(crate) numa_node: Option<u64>,
    /// Set if Send with Invalidate is supported; none if that is not known.
    pub(crate) can_invalidate: Option<bool>,
    pub(crate) ports: Vec<RdmaPort>,
}

impl RdmaDevice {
    /// Creates a device of which nothing else is known.
    pub(crate) fn named(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// Returns whether it is soft-RoCE or soft-iWARP.
    pub(crate) fn is_software(&self) -> bool {
        self.driver.contains("software") || ["rdma_rxe", "siw"].contains(&self.driver.as_str())
    }

    /// Returns driver, board and firmware.
    pub(crate) fn description(&self) -> String {
        let firmware = match self.firmware.as_str() {
            "" | "0.0.0" => String::new(),
            firmware => format!("firmware {firmware}"),
        };
        let parts = [self.driver.as_str(), &self.board, &firmware];
        let known: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        if known.is_empty() { "nothing known of it".to_owned() } else { known.join(", ") }
    }
}

/// A port of a device.
#[derive(Clone, Debug)]
pub(crate) struct RdmaPort {
    pub(crate) number: u32,
    /// "ACTIVE", "DOWN", ...
    pub(crate) state: String,
    /// "LinkUp", "Disabled", "Polling", ...
    pub(crate) physical_state: String,
    /// "100 Gb/sec (4X EDR)".
    pub(crate) rate: String,
    /// Set for RoCE or iWARP, clear for InfiniBand.
    pub(crate) is_ethernet: bool,
    pub(crate) interface: Option<String>,
    /// MTU of the interface, in bytes.
    pub(crate) interface_mtu: Option<u64>,
    /// MTU of RDMA packets in bytes, if a device could be queried.
    pub(crate) active_mtu: Option<u64>,
    pub(crate) gids: Vec<RdmaGid>,
    pub(crate) pfc: Pfc,
    /// Set if ECN is enabled; none if it is not shown.
    pub(crate) ecn: Option<bool>,
    /// Counters that should be zero.
    pub(crate) counters: Vec<(&'static str, u64)>,
}

impl RdmaPort {
    /// Returns whether the port carries data.
    pub(crate) fn is_active(&self) -> bool {
        self.state == "ACTIVE"
    }

    /// Returns the port with its device's name, as shown by `rdma link`.
    pub(crate) fn named(&self, device: &RdmaDevice) -> String {
        format!("{}/{}", device.name, self.number)
    }
}

/// An address of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RdmaGid {
    pub(crate) index: u32,
    /// The address; IPv4 addresses are mapped into IPv6.
    pub(crate) address: Ipv6Addr,
    /// Set for RoCE version 2.
    pub(crate) is_v2: bool,
    pub(crate) interface: Option<String>,
}

impl RdmaGid {
    /// Returns the IPv4 address it represents.
    pub(crate) fn ipv4(&self) -> Option<Ipv4Addr> {
        self.address.to_ipv4_mapped()
    }

    /// Returns whether it is derived from a hardware address.
    pub(crate) fn is_link_local(&self) -> bool {
        self.address.is_unicast_link_local()
    }
}

/// Priority flow control of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Pfc {
    /// Not known.
    Unknown,
    /// Off for all priorities.
    Off,
    /// On for these priorities.
    On(Vec<u8>),
}
