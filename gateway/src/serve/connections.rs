//! All connections by number: admission, and the way of callbacks to the core
//! that owns a connection.

use bytes::Bytes;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use tokio::sync::{mpsc, oneshot};
use zgate_nfs::runtime::ConnectionId;
use zgate_xdr::Message;

/// Callbacks queued for one connection.
const MAX_CALLS_QUEUED: usize = 64;

/// A callback to be sent on a connection.
#[derive(Debug)]
pub(crate) struct CallbackCall {
    pub xid: u32,
    pub message: Message,
    pub reply: oneshot::Sender<Bytes>,
}

#[derive(Debug)]
struct Entry {
    address: IpAddr,
    calls: Option<mpsc::Sender<CallbackCall>>,
}

/// What a connection's task holds.
#[derive(Debug)]
pub(crate) struct Registration {
    pub calls: mpsc::Receiver<CallbackCall>,
}

/// How many connections there may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionLimits {
    pub total: usize,
    pub per_client: usize,
}

/// All connections.
#[derive(Debug)]
pub(crate) struct Connections {
    next: AtomicU64,
    entries: Mutex<HashMap<ConnectionId, Entry>>,
    limits: ConnectionLimits,
}

impl Connections {
    pub(crate) fn new(limits: ConnectionLimits) -> Self {
        Self { next: AtomicU64::new(1), entries: Mutex::default(), limits }
    }

    /// Gives a new connection its number; `None` when there are too many.
    pub(crate) fn admit(&self, address: IpAddr) -> Option<ConnectionId> {
        let address = address.to_canonical();
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let of_client = entries.values().filter(|entry| entry.address == address).count();
        if entries.len() >= self.limits.total || of_client >= self.limits.per_client {
            return None;
        }
        let id = ConnectionId(self.next.fetch_add(1, Ordering::Relaxed));
        entries.insert(id, Entry { address, calls: None });
        Some(id)
    }

    /// Opens the way for callbacks.
    pub(crate) fn register(&self, id: ConnectionId) -> Registration {
        let (sender, calls) = mpsc::channel(MAX_CALLS_QUEUED);
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = entries.get_mut(&id) {
            entry.calls = Some(sender);
        }
        Registration { calls }
    }

    pub(crate) fn remove(&self, id: ConnectionId) {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
    }

    pub(crate) fn contains(&self, id: ConnectionId) -> bool {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&id)
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Sends a callback; `None` when the connection is gone or choked.
    pub(crate) fn call(
        &self,
        id: ConnectionId,
        xid: u32,
        message: Message,
    ) -> Option<oneshot::Receiver<Bytes>> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let calls = entries.get(&id)?.calls.as_ref()?;
        let (reply, receiver) = oneshot::channel();
        calls.try_send(CallbackCall { xid, message, reply }).ok()?;
        Some(receiver)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn admission_is_bounded_in_total_and_per_client() {
        let connections = Connections::new(ConnectionLimits { total: 3, per_client: 2 });
        let (a, b): (IpAddr, IpAddr) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let first = connections.admit(a).unwrap();
        assert!(connections.admit(a).is_some());
        assert!(connections.admit(a).is_none());
        assert!(connections.admit(b).is_some());
        assert!(connections.admit(b).is_none());
        connections.remove(first);
        assert!(connections.admit(b).is_some());
        assert_eq!(connections.len(), 3);
    }
}
