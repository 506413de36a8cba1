//! Targets and sessions in the form shown by commands.

use super::ended_loads::{Pair, pair_of};
use super::service::IscsiService;
use crate::exports::dataset::known::{DatasetProperties, KnownDatasets};
use crate::observe::load::LoadFigures;
use serde::Serialize;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use utoipa::ToSchema;
use zgate_iscsi::login::Transport;
use zgate_store::BlockStore;

/// A target.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TargetView {
    pub name: String,
    pub alias: Option<String>,
    pub portals: Vec<PortalView>,
    pub allow_any_initiator: bool,
    pub sessions: usize,
    pub luns: Vec<LunView>,
}

/// A portal.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct PortalView {
    pub address: String,
    pub group: u16,
    pub transport: &'static str,
}

/// A logical unit.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LunView {
    pub number: u16,
    pub path: String,
    pub kind: String,
    pub size_bytes: u64,
    pub block_bytes: u32,
    pub physical_block_bytes: u32,
    pub read_only: bool,
    pub direct: bool,
    pub serial: String,
    pub naa: String,
    pub reads: u64,
    pub read_bytes: u64,
    pub writes: u64,
    pub written_bytes: u64,
    pub failures: u64,
    /// The zvol of the unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dataset: Option<DatasetProperties>,
    pub space_available_bytes: Option<u64>,
}

/// A session.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SessionView {
    pub tsih: u16,
    pub initiator: String,
    pub isid: String,
    pub target: Option<String>,
    pub portal_group: u16,
    pub authenticated_as: Option<String>,
    pub error_recovery_level: u32,
    pub header_digest: bool,
    pub data_digest: bool,
    pub tasks: usize,
    pub running: usize,
    pub age_seconds: u64,
    pub luns: Vec<u16>,
    pub connections: Vec<ConnectionView>,
}

/// One of its connections.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ConnectionView {
    pub cid: Option<u16>,
    pub peer: String,
    pub core: usize,
}

/// An entry of an access list.
#[derive(Debug, Serialize)]
pub(crate) struct AccessView {
    target: String,
    initiator: String,
    clients: Vec<String>,
    authentication: &'static str,
    luns: Option<Vec<u16>>,
    read_only: bool,
}

/// Returns all targets.
pub(crate) fn targets(block: &IscsiService, known: &KnownDatasets) -> Vec<TargetView> {
    let sessions = block.sessions();
    let portal = |portal: &super::settings::Portal| PortalView {
        address: portal.address.to_string(),
        group: portal.group,
        transport: match portal.transport {
            Transport::Tcp => "tcp",
            Transport::Iser => "iser",
        },
    };
    let portals: Vec<_> = block.portals().iter().map(portal).collect();
    let rules = block.rules();
    let show = rules.catalog.targets.iter().map(|(name, target)| TargetView {
        name: name.to_string(),
        alias: target.settings.alias.clone(),
        portals: portals.clone(),
        allow_any_initiator: target.settings.allow_any_initiator,
        sessions: sessions.iter().filter(|live| live.key.target.as_ref() == Some(name)).count(),
        luns: target
            .units
            .iter()
            .map(|(number, unit)| {
                let geometry = unit.volume.geometry();
                let load = |live: &std::sync::atomic::AtomicU64| live.load(Ordering::Relaxed);
                LunView {
                    number: *number,
                    path: unit.config.path.display().to_string(),
                    kind: format!("{:?}", unit.volume.kind()).to_lowercase(),
                    size_bytes: geometry.capacity_bytes,
                    block_bytes: unit.config.block_bytes,
                    physical_block_bytes: unit
                        .config
                        .physical_block_bytes
                        .unwrap_or(geometry.physical_block_bytes),
                    read_only: unit.config.read_only || geometry.read_only,
                    direct: unit.volume.is_direct(),
                    serial: unit.serial.clone(),
                    naa: unit.naa.to_string(),
                    reads: load(&unit.stats.reads),
                    read_bytes: load(&unit.stats.read_bytes),
                    writes: load(&unit.stats.writes),
                    written_bytes: load(&unit.stats.written_bytes),
                    failures: unit.stats.failures.iter().map(load).sum(),
                    dataset: known.of_device(&unit.config.path),
                    space_available_bytes: unit.disk.thin_space().map(|s| s.available_bytes),
                }
            })
            .collect(),
    });
    show.collect()
}

/// Returns all sessions.
pub(crate) fn sessions(block: &IscsiService) -> Vec<SessionView> {
    let show = block.sessions().into_iter().map(|live| {
        let ports = live.connections();
        let (tasks, params, cids) = live.with_engine(|session| {
            let cids: Vec<_> = session.connections().map(|c| (c.handle, c.cid, c.params)).collect();
            (session.task_count(), session.params().clone(), cids)
        });
        let first = cids.first().map(|(_, _, params)| params);
        SessionView {
            tsih: live.tsih.0,
            initiator: live.key.initiator.to_string(),
            isid: live.key.isid.to_string(),
            target: live.key.target.as_ref().map(ToString::to_string),
            portal_group: live.key.portal_group.0,
            authenticated_as: live.authenticated.clone(),
            error_recovery_level: params.error_recovery_level,
            header_digest: first.is_some_and(|params| params.header_digest),
            data_digest: first.is_some_and(|params| params.data_digest),
            tasks,
            running: live.running(),
            age_seconds: live.begun.elapsed().as_secs(),
            luns: live.lun_map().units.keys().map(|lun| lun.number()).collect(),
            connections: ports
                .iter()
                .map(|(handle, connection)| ConnectionView {
                    cid: cids.iter().find(|(known, ..)| known == handle).map(|(_, cid, _)| cid.0),
                    peer: connection.peer.to_string(),
                    core: connection.core,
                })
                .collect(),
        }
    });
    show.collect()
}

/// Returns the loads of all initiators with their targets, of ended sessions, too, while there is
/// another one. Those of one pair are to be added up.
pub(crate) fn initiator_loads(block: &IscsiService) -> Vec<(Pair, LoadFigures)> {
    // Until the end: a session that ends meanwhile is there once.
    let sessions = block.sessions.lock().unwrap_or_else(PoisonError::into_inner);
    let living = sessions.values().filter_map(|live| Some((pair_of(live)?, live.load.figures())));
    living.chain(block.ended_loads.all()).collect()
}

/// Returns the access lists of all targets.
pub(crate) fn access(block: &IscsiService) -> Vec<AccessView> {
    let rules = block.rules();
    let mut shown = Vec::new();
    for (name, target) in &rules.catalog.targets {
        for rule in &target.settings.rules {
            shown.push(AccessView {
                target: name.to_string(),
                initiator: rule.name.to_string(),
                clients: rule.clients.iter().map(ToString::to_string).collect(),
                authentication: match (&rule.chap, &rule.mutual) {
                    (None, _) => "none",
                    (Some(_), None) => "chap",
                    (Some(_), Some(_)) => "mutual chap",
                },
                luns: rule.luns.clone(),
                read_only: rule.read_only,
            });
        }
        if target.settings.allow_any_initiator {
            shown.push(AccessView {
                target: name.to_string(),
                initiator: "*".to_owned(),
                clients: Vec::new(),
                authentication: "none",
                luns: None,
                read_only: false,
            });
        }
    }
    shown
}
