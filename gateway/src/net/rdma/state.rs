//! State of RDMA: addresses served, and reasons for those that are not.

use crate::net::arrival::Protocol;
use serde::Serialize;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use utoipa::ToSchema;
use zgate_fabric::DeviceEvent;

/// A configured RDMA address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct RdmaPortal {
    #[schema(value_type = String)]
    pub address: SocketAddr,
    /// `nfs` or `iscsi`.
    pub protocol: &'static str,
    pub listening: bool,
    /// Reason for which it is not served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// State of RDMA as shown by `zgate status`.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct RdmaReport {
    /// Reason for which there is no fabric: a library, a device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    pub portals: Vec<RdmaPortal>,
    pub connections: usize,
}

#[derive(Debug, Default)]
struct Inner {
    problem: Option<String>,
    portals: Vec<RdmaPortal>,
}

/// State shared by all cores.
#[derive(Debug, Default)]
pub(crate) struct RdmaState {
    inner: Mutex<Inner>,
    connections: AtomicUsize,
    /// Number of events, by the kinds of [`DeviceEvent`].
    events: [AtomicU64; DeviceEvent::KINDS.len()],
}

/// A connection, counted until this is dropped.
#[derive(Debug)]
pub(crate) struct Counted(Arc<RdmaState>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

fn name(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Rpc => "nfs",
        Protocol::Iscsi => "iscsi",
    }
}

impl RdmaState {
    /// Creates the state of the configured addresses.
    pub(crate) fn new(portals: &[(SocketAddr, Protocol)]) -> Arc<Self> {
        let portal = |(address, protocol): &(SocketAddr, Protocol)| RdmaPortal {
            address: *address,
            protocol: name(*protocol),
            listening: false,
            problem: None,
        };
        let portals = portals.iter().map(portal).collect();
        let inner = Mutex::new(Inner { problem: None, portals });
        Arc::new(Self { inner, ..Self::default() })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that there is a fabric, or why there is none. Returns whether
    /// this is new.
    pub(crate) fn set_problem(&self, problem: Option<String>) -> bool {
        let mut inner = self.lock();
        let changed = inner.problem != problem;
        inner.problem = problem;
        changed
    }

    /// Records that an address has a listener, or why it has none. Returns
    /// whether this is new.
    pub(crate) fn set_portal(&self, address: SocketAddr, problem: Option<String>) -> bool {
        let mut inner = self.lock();
        let Some(portal) = inner.portals.iter_mut().find(|portal| portal.address == address) else {
            return false;
        };
        let changed = portal.problem != problem || portal.listening != problem.is_none();
        portal.listening = problem.is_none();
        portal.problem = problem;
        changed
    }

    pub(crate) fn event(&self, event: &DeviceEvent) {
        self.events[event.kind()].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of events by kind.
    pub(crate) fn events(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = self.events.iter().map(|count| count.load(Ordering::Relaxed));
        DeviceEvent::KINDS.into_iter().zip(counts.collect::<Vec<_>>())
    }

    /// Counts a connection until the result is dropped.
    pub(crate) fn connected(self: &Arc<Self>) -> Counted {
        self.connections.fetch_add(1, Ordering::Relaxed);
        Counted(Arc::clone(self))
    }

    /// Returns the addresses where NFS is served over RDMA now.
    pub(crate) fn nfs_addresses(&self) -> Vec<SocketAddr> {
        let inner = self.lock();
        let listening = inner.portals.iter().filter(|p| p.listening && p.protocol == "nfs");
        listening.map(|portal| portal.address).collect()
    }

    /// Returns the state for display; nothing if RDMA is not configured.
    pub(crate) fn report(&self) -> Option<RdmaReport> {
        let inner = self.lock();
        (!inner.portals.is_empty()).then(|| RdmaReport {
            problem: inner.problem.clone(),
            portals: inner.portals.clone(),
            connections: self.connections.load(Ordering::Relaxed),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_is_new_once() {
        let address: SocketAddr = "10.9.0.1:20049".parse().unwrap();
        let state = RdmaState::new(&[(address, Protocol::Rpc)]);
        assert!(state.set_problem(Some("no RDMA device".into())));
        assert!(!state.set_problem(Some("no RDMA device".into())));
        assert!(state.set_portal(address, Some("no such address".into())));
        assert!(!state.set_portal(address, Some("no such address".into())));
        assert!(state.nfs_addresses().is_empty());
        assert!(state.set_problem(None));
        assert!(state.set_portal(address, None));
        assert_eq!(state.nfs_addresses(), [address]);
        let counted = state.connected();
        assert_eq!(state.report().unwrap().connections, 1);
        drop(counted);
        assert_eq!(state.report().unwrap().connections, 0);
        assert!(RdmaState::default().report().is_none());
    }
}
