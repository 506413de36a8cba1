//! The back channel of a client: callbacks come on any of its connections.

use crate::callback::CallbackProgram;
use crate::delegation::Delegations;
use crate::lease::Attention;
use crate::session::Session;
use crate::transport::Callbacks;
use bytes::Bytes;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// See the module.
#[derive(Debug)]
pub(crate) struct BackChannel {
    program: Mutex<CallbackProgram>,
    delegations: Arc<Delegations>,
    attention: Arc<Attention>,
}

impl BackChannel {
    pub(crate) fn new(attention: Arc<Attention>) -> Self {
        Self { program: Mutex::default(), delegations: Arc::default(), attention }
    }

    pub(crate) fn delegations(&self) -> &Arc<Delegations> {
        &self.delegations
    }

    fn program(&self) -> MutexGuard<'_, CallbackProgram> {
        self.program.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A session is about to be created.
    pub(crate) fn expect(&self) {
        self.program().expect();
    }

    /// It was, or not.
    pub(crate) fn begin(&self, session: Option<&Session>) {
        self.program().begin(session.map(|session| (session.id(), session.back_slots())));
    }
}

impl Callbacks for BackChannel {
    fn answer(&self, call: &[u8]) -> Option<Bytes> {
        self.program().answer(call, &*self.delegations)
    }

    fn connection_lost(&self) {
        self.attention.connection_lost();
    }
}
