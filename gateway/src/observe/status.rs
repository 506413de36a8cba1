//! One look at the gateway, for people and programs.

use super::pools::{CacheReport, PoolReport};
use crate::follow::facts::DatasetFacts;
use crate::observe::printable::printable;
use crate::serve::data_path::DataFigures;
use crate::serve::descriptors::DescriptorStatus;
use crate::serve::rdma_state::RdmaReport;
use crate::serve::service::Shared;
use crate::serve::ways::Way;
use serde::Serialize;
use zgate_nfs::namespace::{ClientRule, Squash};
use zgate_nfs::runtime::Runtime;

/// What `/status` answers.
#[derive(Debug, Serialize)]
pub(crate) struct Status {
    version: &'static str,
    nfs_addresses: Vec<std::net::SocketAddr>,
    /// Where NFS is served over RDMA.
    rdma_addresses: Vec<std::net::SocketAddr>,
    /// What there is of RDMA, where it is configured.
    #[serde(skip_serializing_if = "Option::is_none")]
    rdma: Option<RdmaReport>,
    /// The ways clients are told to take.
    interfaces: Vec<Way>,
    exports: Vec<ExportStatus>,
    clients: Vec<ClientStatus>,
    connections: usize,
    /// What the process's descriptors are for.
    descriptors: DescriptorStatus,
    grace_seconds_left: u64,
    buffers_in_use_bytes: usize,
    /// Data carried and copied, by transport and direction.
    data: Vec<DataFigures>,
    pools: Vec<PoolReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    zfs: Option<CacheReport>,
}

#[derive(Debug, Serialize)]
pub(crate) struct ExportStatus {
    pseudo_path: String,
    source: String,
    fsid: u32,
    read_only: bool,
    max_transfer_bytes: u32,
    versions: Vec<&'static str>,
    transports: Vec<&'static str>,
    reserved_port_only: bool,
    delegations: bool,
    delegated_times: bool,
    clients: Vec<RuleStatus>,
    /// Whether clients use a dataset that is followed.
    #[serde(skip_serializing_if = "Option::is_none")]
    condition: Option<&'static str>,
    /// The dataset behind it, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    dataset: Option<DatasetFacts>,
}

/// Who may enter an export, and as whom; the first that matches counts.
#[derive(Debug, Serialize)]
pub(crate) struct RuleStatus {
    #[serde(rename = "match")]
    matches: String,
    access: &'static str,
    squash: &'static str,
    anon: String,
    security: Vec<&'static str>,
}

/// The names of what is on.
fn chosen(choices: &[(&'static str, bool)]) -> Vec<&'static str> {
    choices.iter().filter(|(_, on)| *on).map(|(name, _)| *name).collect()
}

fn rule(rule: &ClientRule) -> RuleStatus {
    let networks = rule.networks.iter().map(|n| format!("{}/{}", n.address, n.prefix_bits));
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
        security: chosen(&[("sys", rule.sys), ("none", rule.none)]),
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct ClientStatus {
    id: String,
    name: String,
    address: String,
    implementation: String,
    minor: u8,
    idle_seconds: u64,
    courtesy: bool,
    sessions: usize,
    opens: usize,
    locks: usize,
    delegations: usize,
}

/// The exports.
pub(crate) fn exports(shared: &Shared) -> Vec<ExportStatus> {
    let namespace = shared.v4.namespace();
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
        (export.dataset, export.condition) = shared.facts.of_export(&export.pseudo_path, path);
    }
    exports.sort_by(|a, b| a.pseudo_path.cmp(&b.pseudo_path));
    exports
}

/// The clients.
pub(crate) fn clients(shared: &Shared) -> Vec<ClientStatus> {
    let views = shared.v4.clients(shared.runtime.now().seconds());
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

/// Everything.
pub(crate) fn status(shared: &Shared) -> Status {
    let totals = shared.v4.totals(shared.runtime.now().seconds());
    let rdma_addresses = shared.rdma.nfs_addresses();
    Status {
        version: env!("CARGO_PKG_VERSION"),
        nfs_addresses: shared.nfs_addresses.get().cloned().unwrap_or_default(),
        interfaces: shared.ways.now(&rdma_addresses),
        rdma_addresses,
        rdma: shared.rdma.report(),
        exports: exports(shared),
        clients: clients(shared),
        connections: shared.connections.len(),
        descriptors: shared.descriptors.status(shared.v4.open_files()),
        grace_seconds_left: totals.grace_seconds,
        buffers_in_use_bytes: shared.pool.in_use_bytes(),
        data: shared.metrics.data.figures(),
        pools: shared.pools.report(),
        zfs: shared.pools.cache_report(),
    }
}
