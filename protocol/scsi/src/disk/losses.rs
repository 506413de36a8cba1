//! Writes lost by the store: the kernel reports a loss once, to the first
//! caller that syncs, but every I_T nexus that may have written must be told
//! exactly once.

use crate::limits::MAX_NEXUSES;
use crate::nexus::Nexus;
use std::collections::VecDeque;
use std::sync::Arc;
use zgate_store::StoreError;

/// I_T nexuses to be told of a loss, and those that may have to be told later.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    /// I_T nexuses that have not been told, with the error.
    pub(super) owed: Vec<(Arc<Nexus>, StoreError)>,
    /// I_T nexuses whose sessions ended after the last sync: their next session
    /// may ask.
    pub(super) gone: VecDeque<Arc<Nexus>>,
}

impl Losses {
    /// Records the end of a session. The I_T nexus is identified by name, so
    /// its next session is told.
    pub(crate) fn nexus_gone(&mut self, nexus: Arc<Nexus>) {
        self.gone.retain(|one| !one.is_same_port(&nexus));
        if self.gone.len() >= MAX_NEXUSES {
            // The nexus that has been gone longest is dropped and will not be
            // told.
            self.gone.pop_front();
        }
        self.gone.push_back(nexus);
    }

    pub(super) fn owe(&mut self, nexus: &Arc<Nexus>, error: StoreError) {
        match self.owed.iter_mut().find(|(one, _)| one.is_same_port(nexus)) {
            Some((_, known)) => *known = error,
            None => self.owed.push((Arc::clone(nexus), error)),
        }
        if self.owed.len() > 2 * MAX_NEXUSES {
            self.owed.remove(0);
        }
    }
}
