//! Delivery of callbacks to the core of a connection.

use crate::net::peer::ConnectionId;
use bytes::Bytes;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{mpsc, oneshot};
use zgate_xdr::Message;

/// Most callbacks queued for one connection.
const MAX_CALLS_QUEUED: usize = 64;

/// A callback to be sent on a connection.
#[derive(Debug)]
pub(crate) struct CallbackCall {
    pub xid: u32,
    pub message: Message,
    pub reply: oneshot::Sender<Bytes>,
}

/// Registration held by a connection's task.
#[derive(Debug)]
pub(crate) struct Registration {
    channels: Arc<BackChannels>,
    id: ConnectionId,
    pub calls: mpsc::Receiver<CallbackCall>,
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.channels.lock().remove(&self.id);
    }
}

/// Connections that can carry callbacks.
#[derive(Debug, Default)]
pub(crate) struct BackChannels {
    calls: Mutex<HashMap<ConnectionId, mpsc::Sender<CallbackCall>>>,
}

impl BackChannels {
    fn lock(&self) -> MutexGuard<'_, HashMap<ConnectionId, mpsc::Sender<CallbackCall>>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of connections.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    /// Registers a connection for callbacks.
    pub(crate) fn register(self: &Arc<Self>, id: ConnectionId) -> Registration {
        let (sender, calls) = mpsc::channel(MAX_CALLS_QUEUED);
        self.lock().insert(id, sender);
        Registration { channels: Arc::clone(self), id, calls }
    }

    /// Sends a callback; `None` if the connection has gone or its queue is
    /// full.
    pub(crate) fn call(
        &self,
        id: ConnectionId,
        xid: u32,
        message: Message,
    ) -> Option<oneshot::Receiver<Bytes>> {
        let table = self.lock();
        let calls = table.get(&id)?;
        let (reply, receiver) = oneshot::channel();
        calls.try_send(CallbackCall { xid, message, reply }).ok()?;
        Some(receiver)
    }
}
