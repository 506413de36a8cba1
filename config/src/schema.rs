//! What may stand in the file, and what holds when it does not.

use crate::interface::InterfaceConfig;
use crate::rdma::RdmaConfig;
use crate::snapshot::SnapshotConfig;
use crate::target::{DirectChoice, IscsiConfig, TargetConfig};
use ipnet::IpNet;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

/// A size in bytes, written as a number or with a unit: "1MiB".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

impl FromStr for ByteSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit: u64 = match &text[digits.len()..] {
            "" | "B" => 1,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            "TiB" => 1 << 40,
            unit => return Err(format!("unknown unit \"{unit}\"; use KiB, MiB, GiB or TiB")),
        };
        let number: u64 =
            digits.parse().map_err(|_| format!("\"{text}\" is no size; try \"1MiB\""))?;
        number.checked_mul(unit).map(Self).ok_or_else(|| format!("\"{text}\" is too large"))
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, name) in [(1u64 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")] {
            if self.0 >= unit && self.0.is_multiple_of(unit) {
                return write!(f, "{}{name}", self.0 / unit);
            }
        }
        write!(f, "{}", self.0)
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Raw {
            Number(u64),
            Text(String),
        }
        match Raw::deserialize(deserializer)? {
            Raw::Number(number) => Ok(Self(number)),
            Raw::Text(text) => text.parse().map_err(serde::de::Error::custom),
        }
    }
}

impl Serialize for ByteSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Leading bits of an IPv6 address that say it is an IPv4 address (RFC 4291
/// §2.5.5.2).
const MAPPED_PREFIX_BITS: u8 = 96;

/// A network: an address and how many leading bits count. An IPv4-mapped IPv6
/// network (`::ffff:10.0.0.0/104`) is the IPv4 network it maps (RFC 4291
/// §2.5.5.2): that is how the addresses of clients are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    /// Its address.
    pub address: IpAddr,
    /// Leading bits.
    pub prefix_bits: u8,
}

impl FromStr for Cidr {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (address, bits) = text.split_once('/').map_or((text, None), |(a, b)| (a, Some(b)));
        let address: IpAddr =
            address.parse().map_err(|_| format!("\"{address}\" is no address"))?;
        let widest = if address.is_ipv4() { 32 } else { 128 };
        let prefix_bits = match bits {
            None => widest,
            Some(bits) => match bits.parse::<u8>() {
                Ok(bits) if bits <= widest => bits,
                _ => return Err(format!("\"/{bits}\" is no prefix length of at most {widest}")),
            },
        };
        match (address.to_canonical(), prefix_bits.checked_sub(MAPPED_PREFIX_BITS)) {
            (IpAddr::V4(mapped), Some(bits)) if address.is_ipv6() => {
                Ok(Self { address: mapped.into(), prefix_bits: bits })
            }
            _ => Ok(Self { address, prefix_bits }),
        }
    }
}

impl Cidr {
    /// Whether an address is in the network. IPv4-mapped IPv6 addresses count
    /// as IPv4.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        IpNet::new(self.address, self.prefix_bits)
            .is_ok_and(|network| network.contains(&address.to_canonical()))
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_bits)
    }
}

impl<'de> Deserialize<'de> for Cidr {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl Serialize for Cidr {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Which clients an entry is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientMatch {
    /// "*".
    Everyone,
    /// An address or network.
    Network(Cidr),
    /// A host name, looked up when the configuration is loaded.
    Host(String),
}

impl FromStr for ClientMatch {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "*" {
            return Ok(Self::Everyone);
        }
        if text.contains('/') || text.parse::<IpAddr>().is_ok() {
            return text.parse().map(Self::Network);
        }
        let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        if text.is_empty() || !text.chars().all(legal) {
            return Err(format!("\"{text}\" is no address, network or host name (or \"*\")"));
        }
        Ok(Self::Host(text.to_owned()))
    }
}

impl fmt::Display for ClientMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Everyone => f.write_str("*"),
            Self::Network(cidr) => write!(f, "{}/{}", cidr.address, cidr.prefix_bits),
            Self::Host(name) => f.write_str(name),
        }
    }
}

impl<'de> Deserialize<'de> for ClientMatch {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl Serialize for ClientMatch {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// May modify or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AccessMode {
    /// Read only.
    #[default]
    Ro,
    /// Read and write.
    Rw,
}

/// Which identities become the anonymous one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SquashMode {
    /// None.
    None,
    /// User and group 0.
    #[default]
    Root,
    /// Everyone.
    All,
}

/// How files are read and written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IoEngineChoice {
    /// io_uring where the kernel allows it.
    #[default]
    Auto,
    /// io_uring.
    Uring,
    /// A pool of threads.
    Threads,
}

const fn nobody() -> u32 {
    65_534
}

const fn yes() -> bool {
    true
}

/// Clients of an export.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExportClient {
    /// "*", an address, a network or a host name.
    #[serde(rename = "match")]
    pub matches: ClientMatch,
    /// "ro" or "rw".
    #[serde(default)]
    pub access: AccessMode,
    /// "none", "root" or "all".
    #[serde(default)]
    pub squash: SquashMode,
    /// Anonymous user.
    #[serde(default = "nobody")]
    pub anon_uid: u32,
    /// Anonymous group.
    #[serde(default = "nobody")]
    pub anon_gid: u32,
    /// Security flavours: "sys", "none".
    #[serde(default = "only_sys")]
    pub security: Vec<String>,
}

fn only_sys() -> Vec<String> {
    vec!["sys".to_owned()]
}

fn all_versions() -> Vec<String> {
    ["3", "4.0", "4.1", "4.2"].map(str::to_owned).to_vec()
}

fn both_transports() -> Vec<String> {
    ["tcp", "rdma"].map(str::to_owned).to_vec()
}

const fn never() -> DirectChoice {
    DirectChoice::Never
}

const fn one_mebibyte() -> ByteSize {
    ByteSize(1 << 20)
}

/// One export.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExportConfig {
    /// A directory. Either this or `dataset`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
    /// A ZFS dataset, exported where it is mounted; or a pattern of many, each
    /// exported below `pseudo`: `*` stands for anything within one level, a
    /// `**` at the end for one level or more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dataset: Option<String>,
    /// Where clients find it.
    pub pseudo: String,
    /// Number in file handles, when it must differ from the derived one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fsid: Option<u32>,
    /// Refuses every modification.
    #[serde(default)]
    pub read_only: bool,
    /// Who may enter, first match wins. Empty: nobody.
    #[serde(default)]
    pub clients: Vec<ExportClient>,
    /// Largest READ or WRITE.
    #[serde(default = "one_mebibyte")]
    pub max_transfer: ByteSize,
    /// "3", "4.0", "4.1", "4.2".
    #[serde(default = "all_versions")]
    pub versions: Vec<String>,
    /// "tcp", "rdma".
    #[serde(default = "both_transports")]
    pub transports: Vec<String>,
    /// Show `.zfs/snapshot`.
    #[serde(default)]
    pub snapshots_visible: bool,
    /// Reads past the file system's cache: "auto" those of large files in
    /// order and for the first time, "always" all that are aligned, "never".
    #[serde(default = "never")]
    pub direct_io: DirectChoice,
    /// Give delegations.
    #[serde(default = "yes")]
    pub delegations: bool,
    /// Give them with time stamps to clients that ask for that (RFC 9754).
    #[serde(default)]
    pub delegated_times: bool,
    /// Names and attributes are on stable storage before they are answered.
    #[serde(default = "yes")]
    pub sync_names: bool,
    /// Refuse clients that call from a port above 1023.
    #[serde(default)]
    pub require_reserved_port: bool,
}

/// The process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServerConfig {
    /// Addresses NFS listens on.
    pub listen: Vec<SocketAddr>,
    /// Register NFS with this machine's rpcbind.
    pub rpcbind: bool,
    /// What must survive a restart.
    pub state_dir: PathBuf,
    /// Cores to use; 0: all.
    pub cores: usize,
    /// Who the server is to clients; empty: this machine's id. Servers with
    /// the same owner may be used together (session trunking).
    pub server_owner: String,
    /// Servers that share state have the same scope; empty: as the owner.
    pub server_scope: String,
    /// Lease in seconds.
    pub lease_seconds: u32,
    /// Grace period in seconds.
    pub grace_seconds: u32,
    /// Grace period at most, in seconds, while clients reclaim; 0: three times
    /// `grace_seconds`.
    pub grace_max_seconds: u32,
    /// Where live commands arrive.
    pub admin_socket: PathBuf,
    /// Metrics and status over HTTP.
    pub metrics_listen: SocketAddr,
    /// How files are read and written.
    pub io_engine: IoEngineChoice,
    /// Threads for blocking work.
    pub worker_threads: usize,
    /// How long a core stays awake after traffic, in microseconds.
    pub poll_microseconds: u32,
    /// Nice value of the cores' threads.
    pub core_nice: i32,
    /// Files kept open.
    pub fd_cache_entries: usize,
    /// Connections in total.
    pub max_connections: usize,
    /// Connections from one address.
    pub max_connections_per_client: usize,
    /// Memory that requests and replies may hold; 0: a quarter of the
    /// machine's.
    pub buffers: ByteSize,
    /// Whether clients share it by weight when it runs short.
    pub fair_shares: bool,
    /// How long stopping waits for requests that run.
    pub drain_seconds: u32,
    /// How often pools are looked at; 0: never.
    pub pool_sample_seconds: u32,
    /// How often datasets are looked for even when no event tells of any.
    pub rescan_seconds: u32,
    /// How long clients of a dataset that is unmounted, or whose pool is
    /// exported, are told to try again before their handles become stale.
    pub away_seconds: u32,
}

/// How much longer than its regular length a grace period lasts at most, unless
/// `grace_max_seconds` says otherwise.
const LONGEST_GRACE: u32 = 3;

impl ServerConfig {
    /// The grace period at most, in seconds.
    #[must_use]
    pub fn longest_grace_seconds(&self) -> u32 {
        match self.grace_max_seconds {
            0 => self.grace_seconds.saturating_mul(LONGEST_GRACE),
            seconds => seconds,
        }
    }
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            listen: vec![SocketAddr::from(([0, 0, 0, 0], 2049))],
            rpcbind: false,
            state_dir: PathBuf::from("/var/lib/zgate"),
            cores: 0,
            server_owner: String::new(),
            server_scope: String::new(),
            lease_seconds: 90,
            grace_seconds: 90,
            grace_max_seconds: 0,
            admin_socket: PathBuf::from("/run/zgate/admin.sock"),
            metrics_listen: SocketAddr::from(([127, 0, 0, 1], 9469)),
            io_engine: IoEngineChoice::Auto,
            worker_threads: 8,
            poll_microseconds: 50,
            core_nice: -20,
            fd_cache_entries: 16_384,
            max_connections: 4096,
            max_connections_per_client: 256,
            buffers: ByteSize(0),
            fair_shares: true,
            drain_seconds: 10,
            pool_sample_seconds: 30,
            rescan_seconds: 60,
            away_seconds: 60,
        }
    }
}

/// The whole file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// `[server]`.
    #[serde(default)]
    pub server: ServerConfig,
    /// `[rdma]`.
    #[serde(default)]
    pub rdma: RdmaConfig,
    /// `[[interface]]`.
    #[serde(default, rename = "interface")]
    pub interfaces: Vec<InterfaceConfig>,
    /// `[[export]]`.
    #[serde(default, rename = "export")]
    pub exports: Vec<ExportConfig>,
    /// `[iscsi]`.
    #[serde(default)]
    pub iscsi: IscsiConfig,
    /// `[[target]]`.
    #[serde(default, rename = "target")]
    pub targets: Vec<TargetConfig>,
    /// `[[snapshot]]`.
    #[serde(default, rename = "snapshot")]
    pub snapshots: Vec<SnapshotConfig>,
}
