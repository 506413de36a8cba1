//! The node service: volumes become mounts and devices of this machine. A call that
//! the caller gives up goes on to its end, so that none is left half-way.

mod filesystem;
mod format;
pub mod host;
mod iscsi;
mod iscsi_records;
mod mount;
mod nfs;
mod places;
mod probes;
mod publish;
mod record;
mod service;
mod stage;
mod stats;
mod sysfs;
mod usage;
mod xfs;

use crate::locks::Locks;
use crate::names;
use crate::{GATEWAY_KEY, ZONE_KEY, proto::Topology};
use format::Formats;
use host::{Host, Patience};
use iscsi_records::RecordTurns;
use probes::Probes;
use record::{Record, Records};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use tonic::Status;
use usage::LastUsage;
use zgate_api::Transport;

/// Settings of the node service.
#[derive(Clone, Debug)]
pub struct NodeSettings {
    /// The node, as the controller gets it.
    pub node: names::Node,
    /// Its zone.
    pub zone: String,
    /// Gateways that it reaches; empty: all of its zone.
    pub gateways: Vec<String>,
    /// Transports in the order in which they are tried.
    pub transports: Vec<Transport>,
    /// Most volumes of this node; 0: no limit.
    pub max_volumes: i64,
    /// Time after which commands of a disk with one path fail.
    pub patience: Patience,
    /// Directory of what it remembers.
    pub state_dir: PathBuf,
}

/// The node service.
#[derive(Clone)]
pub struct Node {
    host: Arc<dyn Host>,
    records: Records,
    locks: Locks,
    disk_reads: Probes,
    disk_figures: Probes,
    formats: Formats,
    record_turns: RecordTurns,
    last_usage: LastUsage,
    id: names::Node,
    topology: Topology,
    transports: Vec<Transport>,
    max_volumes: i64,
    patience: Patience,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Node {
    /// Creates the service.
    ///
    /// # Errors
    /// The state directory cannot be made.
    pub fn new(settings: NodeSettings, host: Arc<dyn Host>) -> io::Result<Self> {
        let zone = (ZONE_KEY.to_owned(), settings.zone);
        let gateways = settings.gateways.iter();
        let gateways = gateways.map(|name| (format!("{GATEWAY_KEY}{name}"), "true".to_owned()));
        Ok(Self {
            host,
            records: Records::new(&settings.state_dir)?,
            locks: Locks::default(),
            disk_reads: Probes::new(),
            disk_figures: Probes::new(),
            formats: Formats::new(),
            record_turns: RecordTurns::default(),
            last_usage: LastUsage::default(),
            id: settings.node,
            topology: Topology { segments: gateways.chain([zone]).collect() },
            transports: settings.transports,
            max_volumes: settings.max_volumes,
            patience: settings.patience,
        })
    }

    fn record(&self, volume_id: &str) -> Result<Option<Record>, Status> {
        self.records.read(volume_id).map_err(|error| mount::ours("state directory", &error))
    }

    fn keep(&self, record: &Record) -> Result<(), Status> {
        self.records.write(record).map_err(|error| mount::ours("state directory", &error))
    }
}
