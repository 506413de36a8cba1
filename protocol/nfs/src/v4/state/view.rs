//! State for display.

use super::State;
use crate::namespace::ExportId;
use crate::v4::tables::quota::Quota;
use std::collections::{BTreeMap, BTreeSet};
use zgate_nfs_wire::v4::ClientId;

/// One client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientView {
    /// Its id.
    pub id: ClientId,
    /// The name it sent.
    pub name: String,
    /// Address of its latest call.
    pub address: String,
    /// Implementation name it sent.
    pub implementation: String,
    /// 0, or 1 for sessions (4.1 and 4.2).
    pub minor: u8,
    /// Seconds since its lease was renewed.
    pub idle_seconds: u64,
    /// True if its lease has expired and it keeps its state by courtesy.
    pub courtesy: bool,
    /// Sessions.
    pub sessions: usize,
    /// Slots of all its sessions, and number of busy ones.
    pub slots: (usize, usize),
    /// Number of repeated requests.
    pub replays: u64,
    /// Open and lock owners.
    pub owners: usize,
    /// Opens.
    pub opens: usize,
    /// Lock stateids.
    pub locks: usize,
    /// Delegations.
    pub delegations: usize,
}

/// Sums over all clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateTotals {
    /// Confirmed clients.
    pub clients: usize,
    /// Clients whose lease has expired and that keep their state by courtesy.
    pub courtesy_clients: usize,
    /// Sessions.
    pub sessions: usize,
    /// Slots.
    pub slots: usize,
    /// Busy slots.
    pub busy_slots: usize,
    /// Number of repeated requests.
    pub replays: u64,
    /// Opens.
    pub opens: usize,
    /// Lock stateids.
    pub locks: usize,
    /// Delegations.
    pub delegations: usize,
    /// Delegations being recalled.
    pub recalls: usize,
    /// Blocked locks whose clients are to be told.
    pub blocked_locks: usize,
    /// Seconds of grace left; 0: no grace.
    pub grace_seconds: u64,
    /// Client records being written to or removed from stable storage.
    pub record_changes: usize,
}

/// State of one client in one export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The export.
    pub export: ExportId,
    /// Name that the client sent.
    pub client: String,
    /// Address of its latest call.
    pub address: String,
    /// Opens.
    pub opens: usize,
    /// Delegations.
    pub delegations: usize,
}

impl State {
    /// Opens and delegations in some exports, by export and client, without
    /// those that are kept by courtesy. It looks at every open file: for rare
    /// changes only.
    pub(crate) fn holders(&self, exports: &BTreeSet<ExportId>, now_seconds: u64) -> Vec<Holder> {
        let tables = self.lock();
        let mut counts: BTreeMap<(ExportId, ClientId), (usize, usize)> = BTreeMap::new();
        for open in tables.opens.values().filter(|open| exports.contains(&open.file.export)) {
            counts.entry((open.file.export, open.client)).or_default().0 += 1;
        }
        let delegations = tables.delegations.values();
        for held in delegations.filter(|held| exports.contains(&held.file.export)) {
            counts.entry((held.file.export, held.client)).or_default().1 += 1;
        }
        let holder = |((export, id), (opens, delegations)): ((ExportId, ClientId), _)| {
            let client = tables.clients.get(&id)?;
            if client.lease.expired(now_seconds, self.lease_seconds) {
                return None;
            }
            Some(Holder {
                export,
                client: String::from_utf8_lossy(&client.name).into_owned(),
                address: client.address.clone(),
                opens,
                delegations,
            })
        };
        counts.into_iter().filter_map(holder).collect()
    }

    /// All confirmed clients.
    pub(crate) fn clients(&self, now_seconds: u64) -> Vec<ClientView> {
        let tables = self.lock();
        let mut views: Vec<_> = tables
            .clients
            .values()
            .filter(|client| client.confirmed)
            .map(|client| ClientView {
                id: client.id,
                name: String::from_utf8_lossy(&client.name).into_owned(),
                address: client.address.clone(),
                implementation: client.implementation.clone(),
                minor: u8::from(!client.minor_zero),
                idle_seconds: now_seconds.saturating_sub(client.lease.renewed_seconds()),
                courtesy: client.lease.expired(now_seconds, self.lease_seconds),
                sessions: client.sessions.len(),
                slots: (
                    client.sessions.iter().map(|s| s.fore.slots as usize).sum(),
                    client.sessions.iter().map(|s| s.busy_slots()).sum(),
                ),
                replays: client.sessions.iter().map(|s| s.replays()).sum(),
                owners: client.open_owners.len() + client.lock_owners.len(),
                opens: client.held.opens,
                locks: client.held.locks,
                delegations: client.delegations.len(),
            })
            .collect();
        views.sort_by_key(|view| view.id);
        views
    }

    /// Files that are open or delegated.
    pub(crate) fn open_files(&self) -> usize {
        self.hosts.held(Quota::Files)
    }

    /// Sums for metrics.
    pub(crate) fn totals(&self, now_seconds: u64) -> StateTotals {
        let mut totals = StateTotals {
            grace_seconds: self.grace.remaining_seconds(now_seconds),
            record_changes: self.records.backlog(now_seconds).changes,
            blocked_locks: self.hosts.held(Quota::BlockedLocks),
            ..StateTotals::default()
        };
        for view in self.clients(now_seconds) {
            totals.clients += 1;
            totals.courtesy_clients += usize::from(view.courtesy);
            totals.sessions += view.sessions;
            totals.slots += view.slots.0;
            totals.busy_slots += view.slots.1;
            totals.replays += view.replays;
            totals.opens += view.opens;
            totals.locks += view.locks;
            totals.delegations += view.delegations;
        }
        let tables = self.lock();
        totals.recalls = tables.recalled.len();
        totals
    }
}
