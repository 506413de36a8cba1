//! Callback path of minor version 0, and the check that it answers.

use crate::callback_security::CallbackSecurity;
use crate::runtime::CallbackPath;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use zgate_nfs_wire::v4::Verifier;

/// Request of a confirmed client by SETCLIENTID that it has not confirmed yet: another
/// callback path, or none.
#[derive(Clone, Debug)]
pub struct CallbackUpdate {
    /// The verifier that confirms it.
    pub confirm: Verifier,
    /// The path.
    pub callback: Option<Callback40>,
}

/// NFSv4.0 callback path.
#[derive(Clone, Debug)]
pub struct Callback40 {
    /// Program number chosen by the client.
    pub program: u32,
    /// callback_ident.
    pub ident: u32,
    /// Address of the client's callback service.
    pub address: std::net::SocketAddr,
    /// Credential of callbacks without security.
    pub credential: zgate_rpc::auth::OpaqueAuth,
    /// Security of callbacks, to a client that is known by Kerberos.
    pub security: Option<Arc<CallbackSecurity>>,
    /// True if the latest call was answered; the first one is CB_NULL.
    pub up: Arc<std::sync::atomic::AtomicBool>,
    /// Time of the latest probe when an OPEN found the path down, or of SETCLIENTID, in seconds.
    pub probed_seconds: Arc<std::sync::atomic::AtomicU64>,
}

impl Callback40 {
    /// Returns the destination of calls.
    pub(in crate::v4) fn path(&self) -> CallbackPath {
        match &self.security {
            None => CallbackPath::Address(self.address),
            Some(security) => CallbackPath::Protected(self.address, Arc::clone(security)),
        }
    }
}

/// The probes of one client: one at a time, then the latest address.
#[derive(Debug, Default)]
pub struct CallbackProbe(Mutex<Probe>);

#[derive(Debug, Default)]
struct Probe {
    running: bool,
    next: Option<Callback40>,
}

impl CallbackProbe {
    fn lock(&self) -> MutexGuard<'_, Probe> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests a probe of this address; false if one is running, which probes
    /// this address afterwards.
    pub(in crate::v4) fn ask(&self, callback: Callback40) -> bool {
        let mut probe = self.lock();
        probe.next = Some(callback);
        !std::mem::replace(&mut probe.running, true)
    }
}

/// A running probe; when dropped, the next one may start.
pub(in crate::v4) struct RunningProbe {
    probe: Arc<CallbackProbe>,
    ended: bool,
}

impl RunningProbe {
    /// A probe that [`CallbackProbe::ask`] has started.
    pub(in crate::v4) fn new(probe: &Arc<CallbackProbe>) -> Self {
        Self { probe: Arc::clone(probe), ended: false }
    }

    /// The address to probe next; without one, the probe has ended.
    pub(in crate::v4) fn next(&mut self) -> Option<Callback40> {
        let mut probe = self.probe.lock();
        let next = probe.next.take();
        probe.running = next.is_some();
        self.ended = next.is_none();
        next
    }
}

impl Drop for RunningProbe {
    fn drop(&mut self) {
        if !self.ended {
            self.probe.lock().running = false;
        }
    }
}
