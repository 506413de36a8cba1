//! Keys of the file and their defaults.

use crate::api::{ApiConfig, MetricsTransport};
use crate::certificate::{CertificateRequirement, ClientIdentity};
use crate::id_range::IdRange;
use crate::interface::InterfaceConfig;
use crate::kerberos::KerberosConfig;
use crate::rates::Rates;
use crate::rdma::RdmaConfig;
use crate::snapshot::SnapshotConfig;
use crate::target::{DirectChoice, IscsiConfig, TargetConfig};
use crate::text::{Textual, as_text};
use crate::tls::{ClientTransport, TlsConfig};
use crate::volumes::VolumesSection;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
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
            digits.parse().map_err(|_| format!("\"{text}\" is not a size; try \"1MiB\""))?;
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

impl Textual for ByteSize {
    const FORM: &'static str = "a size, such as 65536 or \"64KiB\"";

    fn from_number(number: u64) -> Option<Self> {
        Some(Self(number))
    }
}

as_text!(serde ByteSize);

/// Number of leading bits of an IPv6 address that mark an IPv4-mapped address
/// (RFC 4291 §2.5.5.2).
const MAPPED_PREFIX_BITS: u8 = 96;

/// A network: an address and the number of leading bits that count. An
/// IPv4-mapped IPv6 network (`::ffff:10.0.0.0/104`) is the IPv4 network it maps
/// (RFC 4291 §2.5.5.2): client addresses are compared in that form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr(pub IpNet);

impl FromStr for Cidr {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (address, bits) = text.split_once('/').map_or((text, None), |(a, b)| (a, Some(b)));
        let address: IpAddr =
            address.parse().map_err(|_| format!("\"{address}\" is not an address"))?;
        let host = IpNet::from(address);
        let widest = host.max_prefix_len();
        let network = match bits {
            None => host,
            Some(bits) => {
                let prefix = bits.parse().ok().and_then(|bits| IpNet::new(address, bits).ok());
                prefix.ok_or_else(|| {
                    format!("\"/{bits}\" is not a prefix length of at most {widest}")
                })?
            }
        };
        let mapped = network.prefix_len().checked_sub(MAPPED_PREFIX_BITS).filter(|_| widest == 128);
        let mapped = mapped.and_then(|bits| match address.to_canonical() {
            IpAddr::V4(v4) => IpNet::new(v4.into(), bits).ok(),
            IpAddr::V6(_) => None,
        });
        Ok(Self(mapped.unwrap_or(network)))
    }
}

impl Cidr {
    /// Returns whether an address is in the network. IPv4-mapped IPv6 addresses
    /// count as IPv4.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(&address.to_canonical())
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Clients that an entry applies to.
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
            return Err(format!("\"{text}\" is not an address, network or host name (or \"*\")"));
        }
        Ok(Self::Host(text.to_owned()))
    }
}

impl fmt::Display for ClientMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Everyone => f.write_str("*"),
            Self::Network(cidr) => cidr.fmt(f),
            Self::Host(name) => f.write_str(name),
        }
    }
}

as_text! {
    Cidr: "an address or a network, such as \"10.10.0.0/24\"",
    ClientMatch: "an address, a network such as \"10.10.0.0/24\", a host name, or \"*\""
}

/// Access that a client has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AccessMode {
    /// Read only.
    #[default]
    Ro,
    /// Read and write.
    Rw,
}

/// Identities that are mapped to the anonymous one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SquashMode {
    /// No bypass.
    None,
    /// User and group 0.
    #[default]
    Root,
    /// Everyone.
    All,
}

/// Method by which files are read and written.
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
    /// Clients the entry applies to: "*", an address, a network or a host name.
    #[serde(rename = "match")]
    pub matches: ClientMatch,
    /// "ro" or "rw".
    #[serde(default)]
    pub access: AccessMode,
    /// Identities that are mapped: "none", "root" or "all".
    #[serde(default)]
    pub squash: SquashMode,
    /// User id of the anonymous identity.
    #[serde(default = "nobody")]
    pub anon_uid: u32,
    /// Group id of the anonymous identity.
    #[serde(default = "nobody")]
    pub anon_gid: u32,
    /// Security flavours, the preferred one first: "sys", "krb5", "krb5i",
    /// "krb5p", "none".
    #[serde(default = "only_sys")]
    pub security: Vec<String>,
    /// Protection of the connection: "any", "tls" or "mtls".
    #[serde(default)]
    pub transport: ClientTransport,
    /// Requirements for the client's certificate.
    #[serde(default, skip_serializing_if = "CertificateRequirement::is_empty")]
    pub certificate: CertificateRequirement,
    /// User of the calls: "call", or "san" for the one that the certificate names.
    #[serde(default)]
    pub identity: ClientIdentity,
    /// User ids of the clients and those of this machine that stand for them:
    /// "1000-1999 -> 101000". All others are anonymous. Empty: the same ids.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub map_uids: Vec<IdRange>,
    /// The same for group ids.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub map_gids: Vec<IdRange>,
    /// Takes the groups of users from this machine instead of from the call,
    /// which has room for 16 (AUTH_SYS).
    #[serde(default)]
    pub manage_groups: bool,
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
    /// Directory to export. Either this or `dataset`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
    /// ZFS dataset, exported where it is mounted; or a pattern that matches
    /// many, each exported below `pseudo`: `*` matches within one level, a `**`
    /// at the end matches one level or more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dataset: Option<String>,
    /// Path at which clients find the export.
    pub pseudo: String,
    /// Number of the export in file handles, if the derived number cannot be
    /// used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fsid: Option<u32>,
    /// Refuses every modification.
    #[serde(default)]
    pub read_only: bool,
    /// Rules for clients; the first match applies. Empty: nobody has access.
    #[serde(default)]
    pub clients: Vec<ExportClient>,
    /// Largest READ or WRITE, in bytes.
    #[serde(default = "one_mebibyte")]
    pub max_transfer: ByteSize,
    /// NFS versions served: "3", "4.0", "4.1", "4.2".
    #[serde(default = "all_versions")]
    pub versions: Vec<String>,
    /// Transports served: "tcp", "rdma".
    #[serde(default = "both_transports")]
    pub transports: Vec<String>,
    /// Shows `.zfs/snapshot`.
    #[serde(default)]
    pub snapshots_visible: bool,
    /// Reads that bypass the file system's cache: "auto" for large files that
    /// are read in order and for the first time, "always" for all aligned
    /// reads, "never".
    #[serde(default = "never")]
    pub direct_io: DirectChoice,
    /// Grants delegations.
    #[serde(default = "yes")]
    pub delegations: bool,
    /// Grants delegations with time stamps to clients that ask for them (RFC
    /// 9754).
    #[serde(default)]
    pub delegated_times: bool,
    /// Writes names and attributes to stable storage before a reply.
    #[serde(default = "yes")]
    pub sync_names: bool,
    /// Refuses clients that call from a port above 1023.
    #[serde(default)]
    pub require_reserved_port: bool,
    /// Most reads and writes per second; further ones wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iops_max: Option<u64>,
    /// Most bytes per second that they move.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_second_max: Option<ByteSize>,
}

impl ExportConfig {
    /// Limits on its reads and writes.
    #[must_use]
    pub fn rates(&self) -> Rates {
        Rates {
            iops_max: self.iops_max,
            bytes_per_second_max: self.bytes_per_second_max.map(|size| size.0),
        }
    }
}

/// Settings of the process: `[server]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServerConfig {
    /// Addresses where NFS listens over TCP.
    #[serde(deserialize_with = "crate::text::list")]
    pub listen: Vec<SocketAddr>,
    /// Registers NFS with this machine's rpcbind.
    pub rpcbind: bool,
    /// Directory for all state that must survive a restart.
    pub state_dir: PathBuf,
    /// Directory of further files, which live commands write; absent: `conf.d`
    /// beside the main file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conf_dir: Option<PathBuf>,
    /// Number of cores to use; 0: all.
    pub cores: usize,
    /// Owner that the server reports to clients; empty: the name in the state
    /// directory, chosen at the first start.
    /// Clients may use servers with the same owner together (session trunking).
    pub server_owner: String,
    /// Scope that the server reports to clients; the same for servers that
    /// share state. Empty: same as the owner.
    pub server_scope: String,
    /// Domain of the names of users and groups in NFSv4 (`user@domain`); absent:
    /// they are numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id_domain: Option<String>,
    /// Length of the lease, in seconds.
    pub lease_seconds: u32,
    /// Length of the grace period, in seconds.
    pub grace_seconds: u32,
    /// Longest grace period, in seconds, while clients still reclaim; 0: three
    /// times `grace_seconds`.
    pub grace_max_seconds: u32,
    /// Path of the socket for live commands.
    pub admin_socket: PathBuf,
    /// Address of metrics and status over HTTP.
    #[serde(deserialize_with = "crate::text::one")]
    pub metrics_listen: SocketAddr,
    /// Protection of that address: "plain", or "tls" or "mtls" with the
    /// certificate of `[api]`.
    pub metrics_transport: MetricsTransport,
    /// File with the token that requests to the API, the web page and `/status`
    /// must have; absent: requests from this machine need none, and others are
    /// refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status_token_file: Option<PathBuf>,
    /// Number of clients, and of initiators, whose load is among the metrics:
    /// those that moved the most bytes; 0: none.
    pub metrics_clients: usize,
    /// Method by which files are read and written.
    pub io_engine: IoEngineChoice,
    /// Threads for blocking work.
    pub worker_threads: usize,
    /// Time for which a core polls after a reply before it sleeps, in
    /// microseconds.
    pub poll_microseconds: u32,
    /// Nice value of the cores' threads.
    pub core_nice: i32,
    /// Number of files kept open.
    pub fd_cache_entries: usize,
    /// Most connections in total.
    pub max_connections: usize,
    /// Most connections from one address.
    pub max_connections_per_client: usize,
    /// Most memory of the process, in bytes; 0: what the process's cgroup leaves,
    /// no limit without one.
    pub memory_max: ByteSize,
    /// Memory that requests and replies may use, in bytes; 0: a quarter of the
    /// machine's memory.
    pub buffers: ByteSize,
    /// Divides that memory among clients by weight when it runs short.
    pub fair_shares: bool,
    /// Time for which a stopping server waits for running requests, in seconds.
    pub drain_seconds: u32,
    /// Interval at which pools are sampled, in seconds; 0: never.
    pub pool_sample_seconds: u32,
    /// Interval of the search for datasets, in seconds, even when no event
    /// announces any.
    pub rescan_seconds: u32,
    /// Time for which clients of a dataset that was unmounted, or whose pool
    /// was exported, are told to retry before their handles become stale, in
    /// seconds.
    pub away_seconds: u32,
}

/// Factor between `grace_seconds` and the longest grace period, unless
/// `grace_max_seconds` is set.
const LONGEST_GRACE: u32 = 3;

impl ServerConfig {
    /// Returns the longest grace period, in seconds.
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
            conf_dir: None,
            cores: 0,
            server_owner: String::new(),
            server_scope: String::new(),
            id_domain: None,
            lease_seconds: 90,
            grace_seconds: 90,
            grace_max_seconds: 0,
            admin_socket: PathBuf::from("/run/zgate/admin.sock"),
            metrics_listen: SocketAddr::from(([127, 0, 0, 1], 9469)),
            metrics_transport: MetricsTransport::Plain,
            status_token_file: None,
            metrics_clients: 0,
            io_engine: IoEngineChoice::Auto,
            worker_threads: 8,
            poll_microseconds: 50,
            core_nice: -20,
            fd_cache_entries: 16_384,
            max_connections: 4096,
            max_connections_per_client: 256,
            memory_max: ByteSize(0),
            buffers: ByteSize(0),
            fair_shares: true,
            drain_seconds: 10,
            pool_sample_seconds: 30,
            rescan_seconds: 60,
            away_seconds: 60,
        }
    }
}

/// The whole configuration file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// `[server]`.
    #[serde(default)]
    pub server: ServerConfig,
    /// `[rdma]`.
    #[serde(default)]
    pub rdma: RdmaConfig,
    /// `[tls]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsConfig>,
    /// `[kerberos]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kerberos: Option<KerberosConfig>,
    /// `[api]`.
    #[serde(default)]
    pub api: ApiConfig,
    /// `[volumes]`.
    #[serde(default)]
    pub volumes: VolumesSection,
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
