//! State to be returned to the server: delegations that were recalled, and files
//! that were dropped open.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use zgate_nfs_wire::v4::{Fh, Stateid};

/// State that the client holds of a file.
#[derive(Clone, Debug)]
pub(crate) struct Holding {
    pub(crate) fh: Fh,
    pub(crate) open: Option<Stateid>,
    pub(crate) delegation: Option<Stateid>,
}

/// Queue of state to return. An entry stays until its return is done.
#[derive(Debug, Default)]
pub(crate) struct StateReturns {
    /// Entries, each with true while its return is in progress.
    list: Mutex<Vec<(Arc<Holding>, bool)>>,
    more: Arc<Notify>,
}

impl StateReturns {
    fn list(&self) -> MutexGuard<'_, Vec<(Arc<Holding>, bool)>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an entry.
    pub(crate) fn push(&self, holding: Holding) {
        self.list().push((Arc::new(holding), false));
        self.more.notify_one();
    }

    /// Signal that an entry was added.
    pub(crate) fn added(&self) -> Arc<Notify> {
        Arc::clone(&self.more)
    }

    /// Takes the entries whose return has not begun.
    pub(crate) fn fresh(&self) -> Vec<Arc<Holding>> {
        let mut list = self.list();
        let fresh = list.iter_mut().filter(|(_, taken)| !*taken);
        fresh
            .map(|(holding, taken)| {
                *taken = true;
                Arc::clone(holding)
            })
            .collect()
    }

    /// Removes an entry whose return is done.
    pub(crate) fn done(&self, holding: &Arc<Holding>) {
        self.list().retain(|(one, _)| !Arc::ptr_eq(one, holding));
    }

    /// Removes all entries.
    pub(crate) fn drain(&self) -> Vec<Arc<Holding>> {
        self.list().drain(..).map(|(holding, _)| holding).collect()
    }
}
