//! Changes on their way to the thread that follows datasets.

use crate::server::reconcile::Reconciler;
use crate::server::searches::Asked;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use zgate_control::watch::Change;

/// A change that was reported.
#[derive(Debug)]
pub(super) struct Heard {
    pub(super) change: Change,
    /// Place that it took when it was reported: the thread may hear of it much later.
    asked: Asked,
}

impl Heard {
    /// Returns the place of those who are answered by the same searches as this change; none if
    /// only a search that begins after a pause shows it for certain.
    pub(super) fn since(&self) -> Option<Asked> {
        let is_in_effect = match &self.change {
            Change::Event(event) => event.is_in_effect(),
            Change::Mounts => true,
            Change::Replaced(_) | Change::Restarted => false,
        };
        is_in_effect.then_some(self.asked)
    }
}

/// Reports changes to the thread that follows datasets.
#[derive(Clone)]
pub(super) struct Changes {
    to: Sender<Heard>,
    follow: Arc<Reconciler>,
}

impl Changes {
    /// Returns what reports changes, and what the thread receives.
    pub(super) fn new(follow: &Arc<Reconciler>) -> (Self, Receiver<Heard>) {
        let (to, happened) = channel();
        (Self { to, follow: Arc::clone(follow) }, happened)
    }

    /// Reports a change. Waits for no storage.
    pub(super) fn send(&self, change: Change) {
        let asked = self.follow.searches.ask();
        // The thread may have ended.
        let _ = self.to.send(Heard { change, asked });
    }
}
