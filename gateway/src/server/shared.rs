//! State shared by all cores and by everything that shows the gateway.

use super::absent::AbsentList;
use super::api::credentials::Credentials;
use super::descriptors::Descriptors;
use super::health::Health;
use super::memory::Memory;
use super::recent::Recent;
use super::web::access::Access;
use super::web::doctor::Doctor;
use crate::exports::dataset::known::KnownDatasets;
use crate::iscsi::service::IscsiService;
use crate::net::core::Network;
use crate::nfs::service::Nfs;
use crate::observe::pools::PoolWatch;
use crate::schedule::Views;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Instant;

/// State of the process.
pub(crate) struct Shared {
    pub network: Arc<Network>,
    pub nfs: Arc<Nfs>,
    pub iscsi: Arc<IscsiService>,
    /// Engine that reads and writes files.
    pub engine: zgate_io::EngineKind,
    /// Start time of the process, in seconds since 1970.
    pub started_unix_seconds: u32,
    /// Start time of the process.
    pub started: Instant,
    /// Throughput and latency of the last seconds.
    pub recent: Recent,
    /// Access to the API, the page and `/status`.
    pub access: Arc<Access>,
    /// Number of clients, and of initiators, whose load is among the metrics.
    pub metrics_clients: usize,
    /// Addresses where NFS listens.
    pub nfs_addresses: OnceLock<Vec<SocketAddr>>,
    /// Ping channels of the cores.
    pub health: Health,
    /// Division of the process's descriptors.
    pub descriptors: Descriptors,
    /// Division of the process's memory.
    pub memory: Memory,
    /// Datasets behind exports and logical units.
    pub datasets: KnownDatasets,
    /// Health of the machine's pools.
    pub pools: Arc<PoolWatch>,
    /// State of the snapshot schedules.
    pub schedules: Views,
    /// Items that are configured, but absent.
    pub absent: AbsentList,
    /// Findings of `zgate doctor`.
    pub doctor: Arc<Doctor>,
    /// Certificates, tokens and names of the API over TCP.
    pub api: RwLock<Option<Arc<Credentials>>>,
}

impl Shared {
    /// Uses these credentials for connections to the API from now on.
    pub(crate) fn set_api_credentials(&self, credentials: Option<Arc<Credentials>>) {
        *self.api.write().unwrap_or_else(PoisonError::into_inner) = credentials;
    }

    /// Returns the credentials of new connections to the API.
    pub(crate) fn api_credentials(&self) -> Option<Arc<Credentials>> {
        self.api.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
