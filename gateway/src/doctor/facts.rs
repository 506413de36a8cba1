//! What the checks look at: plain data, so that each fault can be written down
//! in a test.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use zgate_config::Config;
use zgate_control::health::{ArcStats, PoolHealth, PoolState};
use zgate_control::{Dataset, DatasetKind, DatasetName, DatasetPattern};

/// The machine a gateway runs on.
#[derive(Debug)]
pub(crate) struct ServerFacts {
    pub(crate) config_path: PathBuf,
    /// Why the configuration cannot be used.
    pub(crate) config_problem: Option<String>,
    /// The configuration, or the defaults.
    pub(crate) config: Config,
    pub(crate) state_dir: StateDirFacts,
    pub(crate) process: ProcessFacts,
    /// Why io_uring cannot be used.
    pub(crate) uring_problem: Option<String>,
    pub(crate) ports: Vec<PortFacts>,
    /// Threads of the kernel's NFS server.
    pub(crate) nfsd_threads: u64,
    /// Whether something answers at rpcbind's port.
    pub(crate) rpcbind_listens: bool,
    /// Clients of the running gateway; none when none runs.
    pub(crate) clients: Option<Vec<ClientFacts>>,
    pub(crate) exports: Vec<ExportFacts>,
    pub(crate) luns: Vec<LunFacts>,
    pub(crate) zfs: ZfsFacts,
    pub(crate) memory_bytes: u64,
    pub(crate) rdma_devices: usize,
    /// Whether the clock follows another one; none when nobody can tell.
    pub(crate) clock_synchronized: Option<bool>,
    pub(crate) now_unix_seconds: u64,
}

/// The state directory.
#[derive(Clone, Debug, Default)]
pub(crate) struct StateDirFacts {
    pub(crate) exists: bool,
    /// Permission bits.
    pub(crate) mode: u32,
    pub(crate) owner: u32,
    /// Why it, or where it would be made, cannot be written to.
    pub(crate) write_problem: Option<String>,
}

/// The process that serves, or would.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessFacts {
    /// The running gateway; none: this process stands in for it.
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
    /// Whose limits these are, in words.
    pub(crate) fn whose(&self) -> String {
        match self.gateway {
            Some(pid) => format!("the gateway (pid {pid})"),
            None => "a gateway started from here".to_owned(),
        }
    }
}

/// An address the configuration names.
#[derive(Clone, Debug)]
pub(crate) struct PortFacts {
    /// "NFS", "iSCSI", "metrics".
    pub(crate) service: &'static str,
    pub(crate) address: SocketAddr,
    pub(crate) holder: Holder,
}

/// Who listens there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    Nobody,
    /// The gateway itself.
    Gateway,
    Process {
        pid: u32,
        name: String,
    },
    /// A socket no process has.
    Kernel,
}

/// A client of the running gateway.
#[derive(Clone, Debug)]
pub(crate) struct ClientFacts {
    pub(crate) name: String,
    pub(crate) address: String,
    pub(crate) idle_seconds: u64,
    /// Its lease ran out.
    pub(crate) courtesy: bool,
    pub(crate) opens: u64,
    pub(crate) locks: u64,
}

/// An export of the configuration.
#[derive(Clone, Debug)]
pub(crate) struct ExportFacts {
    pub(crate) pseudo: String,
    /// The directory, when it is named or its dataset is mounted.
    pub(crate) path: Option<PathBuf>,
    /// The dataset or pattern the configuration names.
    pub(crate) dataset: Option<String>,
    /// Why the directory cannot be used.
    pub(crate) path_problem: Option<String>,
    /// The mount the directory lies on.
    pub(crate) mount: Option<Mount>,
    /// Whether any client may write.
    pub(crate) writable: bool,
    /// The longest READ or WRITE, in bytes.
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
    /// Whether it has an option.
    pub(crate) fn has(&self, option: &str) -> bool {
        self.options.contains_key(option)
    }

    /// An option's number.
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
    /// The zvol it is, or the dataset its file lies in.
    pub(crate) dataset: Option<DatasetName>,
    /// Why it cannot be opened.
    pub(crate) problem: Option<String>,
}

impl LunFacts {
    /// As people name it.
    pub(crate) fn title(&self) -> String {
        format!("LUN {} of {}", self.number, self.target)
    }
}

/// ZFS on the machine.
#[derive(Debug, Default)]
pub(crate) struct ZfsFacts {
    pub(crate) pools: Vec<PoolFacts>,
    pub(crate) datasets: Vec<Dataset>,
    /// Why datasets are not known.
    pub(crate) datasets_problem: Option<String>,
    pub(crate) arc: Option<ArcStats>,
}

/// A pool.
#[derive(Debug)]
pub(crate) struct PoolFacts {
    pub(crate) name: String,
    /// What the kernel says.
    pub(crate) state: PoolState,
    /// What `zpool` says; not asked when it is suspended.
    pub(crate) health: Option<PoolHealth>,
    /// Why `zpool` said nothing.
    pub(crate) problem: Option<String>,
    pub(crate) ashifts: Vec<(String, u32)>,
    /// Whether any data device has platters; none when that is not known.
    pub(crate) rotational: Option<bool>,
}

impl ZfsFacts {
    /// A dataset by its name.
    pub(crate) fn dataset(&self, name: &str) -> Option<&Dataset> {
        self.datasets.iter().find(|dataset| dataset.name.as_str() == name)
    }

    /// The datasets an export shows itself: the one it lies on, or those of its
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

/// Where a file system is or would be mounted, and whether it is.
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
    /// Speed of the interface that leads to the server, in Mb/s.
    pub(crate) link_megabits: Option<u64>,
}

/// The ways to hosts.
#[derive(Clone, Debug, Default)]
pub(crate) struct PathFacts {
    pub(crate) hosts: Vec<HostPath>,
}

/// The way to a host.
#[derive(Clone, Debug)]
pub(crate) struct HostPath {
    pub(crate) host: String,
    /// Named on the command line, not found among connections.
    pub(crate) asked_for: bool,
    pub(crate) address: Option<IpAddr>,
    /// Why there is no way.
    pub(crate) problem: Option<String>,
    pub(crate) device: String,
    /// MTU of the interface, in bytes.
    pub(crate) device_mtu: u64,
    pub(crate) probe: Probe,
    /// The port that was tried, and why it did not answer.
    pub(crate) port: Option<(u16, Option<String>)>,
}

/// What packets that must not be fragmented met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Probe {
    /// Nothing was sent, and why.
    NotTried(String),
    /// Not even small ones are answered.
    Silent,
    /// Packets as large as the interface allows are answered.
    Full,
    /// Something on the way said which size it takes.
    Told { mtu: u64 },
    /// Large ones vanish without a word; the largest that came through.
    Vanish { largest: u64 },
}

/// RDMA devices of a machine.
#[derive(Clone, Debug, Default)]
pub(crate) struct RdmaFacts {
    /// Where NFS is to listen over RDMA; empty: nowhere.
    pub(crate) listen: Vec<SocketAddr>,
    /// Memory that is to be registered.
    pub(crate) arena_bytes: u64,
    /// Whose limits count, in words.
    pub(crate) whose: String,
    /// Limit of locked memory, in bytes; none: unlimited.
    pub(crate) locked_memory_bytes: Option<u64>,
    /// Why the libraries or devices cannot be used.
    pub(crate) library_problem: Option<String>,
    /// What the running gateway does not serve over RDMA though it is to, with
    /// its reasons; none: no gateway runs, or it was not asked.
    pub(crate) not_served: Option<Vec<String>>,
    pub(crate) devices: Vec<RdmaDevice>,
    pub(crate) numa_nodes: usize,
}

/// One of them, as sysfs shows it.
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
    /// Send with Invalidate; none: nobody could be asked.
    pub(crate) can_invalidate: Option<bool>,
    pub(crate) ports: Vec<RdmaPort>,
}

impl RdmaDevice {
    /// A device of which nothing else is known.
    pub(crate) fn named(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// Soft-RoCE or soft-iWARP.
    pub(crate) fn is_software(&self) -> bool {
        self.driver.contains("software") || ["rdma_rxe", "siw"].contains(&self.driver.as_str())
    }

    /// Driver, board and firmware.
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

/// One of its ports.
#[derive(Clone, Debug)]
pub(crate) struct RdmaPort {
    pub(crate) number: u32,
    /// "ACTIVE", "DOWN", ...
    pub(crate) state: String,
    /// "LinkUp", "Disabled", "Polling", ...
    pub(crate) physical_state: String,
    /// "100 Gb/sec (4X EDR)".
    pub(crate) rate: String,
    /// RoCE or iWARP, not InfiniBand.
    pub(crate) is_ethernet: bool,
    pub(crate) interface: Option<String>,
    /// Bytes.
    pub(crate) interface_mtu: Option<u64>,
    /// Bytes of RDMA's own packets, where a device could be asked.
    pub(crate) active_mtu: Option<u64>,
    pub(crate) gids: Vec<RdmaGid>,
    pub(crate) pfc: Pfc,
    /// Whether congestion is marked and answered; none: not shown.
    pub(crate) ecn: Option<bool>,
    /// Counters that should be zero.
    pub(crate) counters: Vec<(&'static str, u64)>,
}

impl RdmaPort {
    /// Whether it carries data.
    pub(crate) fn is_active(&self) -> bool {
        self.state == "ACTIVE"
    }

    /// With its device's name, as `rdma link` shows it.
    pub(crate) fn named(&self, device: &RdmaDevice) -> String {
        format!("{}/{}", device.name, self.number)
    }
}

/// An address of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RdmaGid {
    pub(crate) index: u32,
    /// One of IPv4 is mapped into IPv6.
    pub(crate) address: Ipv6Addr,
    /// RoCE version 2.
    pub(crate) is_v2: bool,
    pub(crate) interface: Option<String>,
}

impl RdmaGid {
    /// The IPv4 address it stands for.
    pub(crate) fn ipv4(&self) -> Option<Ipv4Addr> {
        self.address.to_ipv4_mapped()
    }

    /// Made of a hardware address.
    pub(crate) fn is_link_local(&self) -> bool {
        self.address.is_unicast_link_local()
    }
}

/// Priority flow control of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Pfc {
    /// Nobody could tell.
    Unknown,
    /// For no priority.
    Off,
    /// For these.
    On(Vec<u8>),
}
