//! Answer of a gateway to `zgate status`, as far as the screen shows it.

use serde::Deserialize;

/// The whole answer.
#[derive(Debug, Deserialize)]
pub(crate) struct Status {
    pub(super) version: String,
    pub(super) health: Health,
    pub(super) uptime_seconds: u64,
    pub(super) throughput: Option<Throughput>,
    pub(super) nfs_addresses: Vec<String>,
    pub(super) rdma_addresses: Vec<String>,
    pub(super) exports: Vec<Export>,
    pub(super) clients: Vec<Client>,
    pub(super) targets: Vec<Target>,
    pub(super) sessions: Vec<Session>,
    pub(super) snapshots: Vec<Schedule>,
    pub(super) connections: usize,
    pub(super) grace_seconds_left: u64,
    pub(super) handover_seconds_left: Option<u64>,
    pub(super) buffers_in_use_bytes: u64,
    pub(super) pools: Vec<Pool>,
    pub(super) zfs: Option<Caches>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Health {
    pub(super) verdict: String,
    pub(super) problems: Vec<Problem>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Problem {
    pub(super) severity: String,
    pub(super) text: String,
}

/// Throughput and latency of the last seconds.
#[derive(Debug, Deserialize)]
pub(super) struct Throughput {
    pub(super) seconds: f64,
    pub(super) requests_per_second: f64,
    pub(super) read: Transfers,
    pub(super) write: Transfers,
}

#[derive(Debug, Deserialize)]
pub(super) struct Transfers {
    pub(super) operations_per_second: f64,
    pub(super) bytes_per_second: f64,
    pub(super) median_seconds: Option<f64>,
    pub(super) percentile_99_seconds: Option<f64>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Export {
    pub(super) pseudo_path: String,
    pub(super) source: String,
    pub(super) read_only: bool,
    pub(super) transports: Vec<String>,
    pub(super) clients: Vec<Rule>,
    pub(super) condition: Option<String>,
    pub(super) dataset: Option<Dataset>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Rule {
    #[serde(rename = "match")]
    pub(super) matches: String,
    pub(super) access: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct Dataset {
    pub(super) name: String,
    pub(super) used_bytes: u64,
    pub(super) available_bytes: u64,
}

#[derive(Debug, Deserialize)]
pub(super) struct Client {
    pub(super) name: String,
    pub(super) address: String,
    pub(super) minor: u8,
    pub(super) idle_seconds: u64,
    pub(super) courtesy: bool,
    pub(super) opens: usize,
    pub(super) locks: usize,
    pub(super) delegations: usize,
}

#[derive(Debug, Deserialize)]
pub(super) struct Target {
    pub(super) name: String,
    pub(super) portals: Vec<Portal>,
    pub(super) luns: Vec<Lun>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Portal {
    pub(super) address: String,
    pub(super) transport: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct Lun {
    pub(super) number: u16,
    pub(super) path: String,
    pub(super) kind: String,
    pub(super) size_bytes: u64,
    pub(super) read_only: bool,
    pub(super) read_bytes: u64,
    pub(super) written_bytes: u64,
    pub(super) failures: u64,
}

#[derive(Debug, Deserialize)]
pub(super) struct Session {
    pub(super) initiator: String,
    pub(super) target: Option<String>,
    pub(super) running: usize,
    pub(super) age_seconds: u64,
    pub(super) connections: Vec<Connection>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Connection {
    pub(super) peer: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct Schedule {
    pub(super) dataset: String,
    pub(super) looked: String,
    pub(super) next: String,
    pub(super) failed: Vec<String>,
    pub(super) snapshots: usize,
}

#[derive(Debug, Deserialize)]
pub(super) struct Pool {
    pub(super) name: String,
    pub(super) state: String,
    pub(super) warnings: Vec<String>,
    pub(super) size_bytes: Option<u64>,
    pub(super) allocated_bytes: Option<u64>,
    pub(super) data_errors: Option<u64>,
    pub(super) scan: Option<Scan>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Scan {
    pub(super) kind: String,
    pub(super) state: String,
    pub(super) done_ratio: Option<f64>,
    pub(super) errors: u64,
}

#[derive(Debug, Deserialize)]
pub(super) struct Caches {
    pub(super) arc_bytes: u64,
    pub(super) arc_max_bytes: u64,
    pub(super) arc_hit_percent: Option<u64>,
}
