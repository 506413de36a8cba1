//! Status of the gateway, for people and programs.

use super::absent::AbsentView;
use super::descriptors::DescriptorStatus;
use super::memory::MemoryStatus;
use super::shared::Shared;
use super::throughput::Throughput;
use super::verdict::{HealthReport, health};
use crate::exports::dataset::known::DatasetProperties;
use crate::iscsi;
use crate::iscsi::port_groups::PortGroupStatus;
use crate::iscsi::status::{SessionView, TargetView};
use crate::net::interfaces::Interface;
use crate::net::rdma::state::RdmaReport;
use crate::observe::data_path::DataFigures;
use crate::observe::pools::{CacheReport, PoolReport};
use crate::observe::printable::printable;
use crate::schedule;
use serde::Serialize;
use std::sync::PoisonError;
use utoipa::ToSchema;
use zgate_nfs::namespace::{ClientRule, Flavor, Squash};
use zgate_nfs::runtime::Runtime;

/// Answer of `/status`.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Status {
    pub(super) version: &'static str,
    pub(super) pid: u32,
    pub(super) health: HealthReport,
    /// Cores that have not answered in time.
    pub(super) silent_cores: Vec<usize>,
    /// Items that are configured, but absent.
    pub(super) absent: Vec<AbsentView>,
    pub(super) started_unix_seconds: u32,
    pub(super) uptime_seconds: u64,
    /// Throughput and latency of the last seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) throughput: Option<Throughput>,
    #[schema(value_type = Vec<String>)]
    pub(super) nfs_addresses: Vec<std::net::SocketAddr>,
    /// Addresses where NFS is served over RDMA.
    #[schema(value_type = Vec<String>)]
    pub(super) rdma_addresses: Vec<std::net::SocketAddr>,
    /// State of RDMA, if it is configured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rdma: Option<RdmaReport>,
    /// Interfaces announced to clients.
    pub(super) interfaces: Vec<Interface>,
    pub(super) exports: Vec<ExportStatus>,
    pub(super) clients: Vec<ClientStatus>,
    pub(super) targets: Vec<TargetView>,
    /// Portal groups of a pair's machines.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) port_groups: Vec<PortGroupStatus>,
    /// iSCSI sessions.
    pub(super) sessions: Vec<SessionView>,
    /// Snapshot schedules.
    pub(super) snapshots: Vec<schedule::View>,
    pub(super) connections: usize,
    /// Division of the process's descriptors.
    pub(super) descriptors: DescriptorStatus,
    pub(super) grace_seconds_left: u64,
    /// Seconds after which clients that a handover keeps waiting are served again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) handover_seconds_left: Option<u64>,
    pub(super) buffers_in_use_bytes: usize,
    /// Memory of the process, and its limit.
    pub(super) memory: MemoryStatus,
    /// Bytes carried and copied, by transport and direction.
    pub(super) data: Vec<DataFigures>,
    pub(super) pools: Vec<PoolReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) zfs: Option<CacheReport>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ExportStatus {
    pub pseudo_path: String,
    pub(super) source: String,
    pub(super) fsid: u32,
    pub(super) read_only: bool,
    pub(super) max_transfer_bytes: u32,
    pub(super) versions: Vec<&'static str>,
    pub(super) transports: Vec<&'static str>,
    pub(super) reserved_port_only: bool,
    pub(super) delegations: bool,
    pub(super) delegated_times: bool,
    pub(super) clients: Vec<RuleStatus>,
    /// Use of a followed dataset by clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub condition: Option<&'static str>,
    /// Dataset of the export, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dataset: Option<DatasetProperties>,
}

/// A rule of an export: the clients it matches, and their access; the first
/// match applies.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RuleStatus {
    #[serde(rename = "match")]
    pub(super) matches: String,
    pub(super) access: &'static str,
    pub(super) squash: &'static str,
    pub(super) anon: String,
    pub(super) security: Vec<&'static str>,
}

/// Returns the names of the options that are on.
fn chosen(choices: &[(&'static str, bool)]) -> Vec<&'static str> {
    choices.iter().filter(|(_, on)| *on).map(|(name, _)| *name).collect()
}

fn rule(rule: &ClientRule) -> RuleStatus {
    let networks = rule.networks.iter().map(ToString::to_string);
    RuleStatus {
        matches: if rule.networks.is_empty() {
            "*".to_owned()
        } else {
            networks.collect::<Vec<_>>().join(" ")
        },
        access: if rule.writable { "rw" } else { "ro" },
        squash: match rule.squash {
            Squash::None => "none",
            Squash::Root => "root",
            Squash::All => "all",
        },
        anon: format!("{}:{}", rule.anon_uid, rule.anon_gid),
        security: rule.flavors.iter().map(Flavor::name).collect(),
    }
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ClientStatus {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) address: String,
    pub(super) implementation: String,
    pub(super) minor: u8,
    pub(super) idle_seconds: u64,
    pub(super) courtesy: bool,
    pub(super) sessions: usize,
    pub(super) opens: usize,
    pub(super) locks: usize,
    pub(super) delegations: usize,
}

/// Returns the exports.
pub(crate) fn exports(shared: &Shared) -> Vec<ExportStatus> {
    let namespace = shared.nfs.v4.namespace();
    let mut exports: Vec<_> = namespace
        .exports()
        .map(|export| ExportStatus {
            pseudo_path: export.pseudo_path.clone(),
            source: export.source.clone(),
            fsid: export.id.0,
            read_only: export.read_only,
            max_transfer_bytes: export.max_transfer_bytes,
            versions: {
                let [zero, one, two] = export.versions.v4;
                chosen(&[("3", export.versions.v3), ("4.0", zero), ("4.1", one), ("4.2", two)])
            },
            transports: chosen(&[("tcp", export.tcp), ("rdma", export.rdma)]),
            reserved_port_only: export.reserved_port_only,
            delegations: export.delegations,
            delegated_times: export.gives_delegated_times(),
            clients: export.clients.iter().map(rule).collect(),
            condition: None,
            dataset: None,
        })
        .collect();
    for export in &mut exports {
        let path = std::path::Path::new(&export.source);
        (export.dataset, export.condition) = shared.datasets.of_export(&export.pseudo_path, path);
    }
    exports.sort_by(|a, b| a.pseudo_path.cmp(&b.pseudo_path));
    exports
}

/// Returns the clients.
pub(crate) fn clients(shared: &Shared) -> Vec<ClientStatus> {
    let views = shared.nfs.v4.clients(shared.nfs.runtime.now().seconds());
    let show = views.into_iter().map(|view| ClientStatus {
        id: format!("{:016x}", view.id.0),
        name: printable(&view.name),
        address: printable(&view.address),
        implementation: printable(&view.implementation),
        minor: view.minor,
        idle_seconds: view.idle_seconds,
        courtesy: view.courtesy,
        sessions: view.sessions,
        opens: view.opens,
        locks: view.locks,
        delegations: view.delegations,
    });
    show.collect()
}

/// Returns the complete status. `silent_cores` are those that did not answer a
/// ping.
pub(crate) fn status(shared: &Shared, silent_cores: &[usize]) -> Status {
    let exports = exports(shared);
    let totals = shared.nfs.v4.totals(shared.nfs.runtime.now().seconds());
    let rdma_addresses = shared.network.rdma.nfs_addresses();
    let schedules = shared.schedules.lock().unwrap_or_else(PoisonError::into_inner).clone();
    Status {
        version: env!("CARGO_PKG_VERSION"),
        pid: std::process::id(),
        health: health(shared, &exports, silent_cores),
        silent_cores: silent_cores.to_vec(),
        absent: shared.absent.views(),
        started_unix_seconds: shared.started_unix_seconds,
        uptime_seconds: shared.started.elapsed().as_secs(),
        throughput: shared.recent.throughput(shared),
        nfs_addresses: shared.nfs_addresses.get().cloned().unwrap_or_default(),
        interfaces: shared.network.interfaces.now(&rdma_addresses),
        rdma_addresses,
        rdma: shared.network.rdma.report(),
        exports,
        clients: clients(shared),
        targets: iscsi::status::targets(&shared.iscsi, &shared.datasets),
        port_groups: shared.iscsi.home.groups.status(),
        sessions: iscsi::status::sessions(&shared.iscsi),
        snapshots: schedules,
        connections: shared.network.connections.len(),
        descriptors: shared.descriptors.status(shared.nfs.v4.open_files()),
        grace_seconds_left: totals.grace_seconds,
        handover_seconds_left: shared.network.drain.hold_left().map(|left| left.as_secs()),
        buffers_in_use_bytes: shared.network.pool.in_use_bytes(),
        memory: shared.memory.status(shared.network.quota.level()),
        data: shared.nfs.metrics.data.figures(),
        pools: shared.pools.report(),
        zfs: shared.pools.cache_report(),
    }
}
