//! State to be returned to the server: delegations that were recalled, and files
//! that were dropped open.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use zgate_nfs_wire::v4::{Fh, Stateid};

/// State that the client holds of a file.
#[derive(Clone, Debug)]
pub(crate) struct HeldState {
    pub(crate) fh: Fh,
    pub(crate) open: Option<Stateid>,
    pub(crate) delegation: Option<Stateid>,
}

/// Queue of state to return. An entry stays until its return is done.
#[derive(Debug, Default)]
pub(crate) struct StateReturns {
    /// Entries, each with true while its return is in progress.
    list: Mutex<Vec<(Arc<HeldState>, bool)>>,
    more: Arc<Notify>,
}

impl StateReturns {
    fn list(&self) -> MutexGuard<'_, Vec<(Arc<HeldState>, bool)>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an entry.
    pub(crate) fn push(&self, state: HeldState) {
        self.list().push((Arc::new(state), false));
        self.more.notify_one();
    }

    /// Signal that an entry was added.
    pub(crate) fn added(&self) -> Arc<Notify> {
        Arc::clone(&self.more)
    }

    /// Takes the entries whose return has not begun.
    pub(crate) fn fresh(&self) -> Vec<Arc<HeldState>> {
        let mut list = self.list();
        let fresh = list.iter_mut().filter(|(_, taken)| !*taken);
        fresh
            .map(|(state, taken)| {
                *taken = true;
                Arc::clone(state)
            })
            .collect()
    }

    /// Removes an entry whose return is done.
    pub(crate) fn done(&self, state: &Arc<HeldState>) {
        self.list().retain(|(one, _)| !Arc::ptr_eq(one, state));
    }

    /// Removes all entries.
    pub(crate) fn drain(&self) -> Vec<Arc<HeldState>> {
        self.list().drain(..).map(|(state, _)| state).collect()
    }
}
