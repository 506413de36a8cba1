//! Back channel of a client: callbacks may arrive on any of its connections.

use crate::callback::CallbackProgram;
use crate::session::Session;
use crate::state::delegation::Delegations;
use crate::state::lease::LeaseMonitor;
use crate::transport::Callbacks;
use bytes::Bytes;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Back channel of a client.
#[derive(Debug)]
pub(crate) struct BackChannel {
    program: Mutex<CallbackProgram>,
    delegations: Arc<Delegations>,
    monitor: Arc<LeaseMonitor>,
}

impl BackChannel {
    pub(crate) fn new(monitor: Arc<LeaseMonitor>) -> Self {
        Self { program: Mutex::default(), delegations: Arc::default(), monitor }
    }

    pub(crate) fn delegations(&self) -> &Arc<Delegations> {
        &self.delegations
    }

    fn program(&self) -> MutexGuard<'_, CallbackProgram> {
        self.program.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Announces that a session is about to be created.
    pub(crate) fn expect(&self) {
        self.program().expect();
    }

    /// Reports that the session was created, or not.
    pub(crate) fn begin(&self, session: Option<&Session>) {
        self.program().begin(session.map(|session| (session.id(), session.back_slots())));
    }
}

impl Callbacks for BackChannel {
    fn answer(&self, call: &[u8]) -> Option<Bytes> {
        self.program().answer(call, &*self.delegations)
    }

    fn connection_lost(&self) {
        self.monitor.connection_lost();
    }
}
