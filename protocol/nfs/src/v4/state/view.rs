//! What an operator sees of the state.

use crate::v4::Server;
use crate::v4::wire::ClientId;

/// One client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientView {
    /// Its id.
    pub id: ClientId,
    /// The name it gave itself.
    pub name: String,
    /// Where it came from.
    pub address: String,
    /// Implementation name it gave.
    pub implementation: String,
    /// 0, or 1 for sessions (4.1 and 4.2).
    pub minor: u8,
    /// Seconds since its lease was renewed.
    pub idle_seconds: u64,
    /// Whether its lease ran out and it keeps state by courtesy.
    pub courtesy: bool,
    /// Sessions.
    pub sessions: usize,
    /// Slots of all its sessions, and how many are busy.
    pub slots: (usize, usize),
    /// Requests it repeated.
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
    /// Clients whose lease ran out and who keep state by courtesy.
    pub courtesy_clients: usize,
    /// Sessions.
    pub sessions: usize,
    /// Slots.
    pub slots: usize,
    /// Busy slots.
    pub busy_slots: usize,
    /// Requests repeated.
    pub replays: u64,
    /// Opens.
    pub opens: usize,
    /// Lock stateids.
    pub locks: usize,
    /// Delegations.
    pub delegations: usize,
    /// Delegations being recalled.
    pub recalls: usize,
    /// Whether grace runs, and seconds left.
    pub grace_seconds: u64,
    /// Client records on their way to stable storage, or from it.
    pub record_changes: usize,
}

impl Server {
    /// All confirmed clients.
    #[must_use]
    pub fn clients(&self, now_seconds: u64) -> Vec<ClientView> {
        let tables = self.state.lock();
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
                courtesy: client.lease.expired(now_seconds, self.state.lease_seconds),
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
    #[must_use]
    pub fn open_files(&self) -> usize {
        self.state.hosts.held(super::quota::Quota::Files)
    }

    /// Sums for metrics.
    #[must_use]
    pub fn totals(&self, now_seconds: u64) -> StateTotals {
        let mut totals = StateTotals {
            grace_seconds: self.state.grace.remaining_seconds(now_seconds),
            record_changes: self.state.records.backlog(now_seconds).changes,
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
        let tables = self.state.lock();
        totals.recalls = tables.recalled.len();
        totals
    }
}
