//! Changes on their way to the thread that follows datasets.

use crate::server::reconcile::Reconciler;
use crate::server::searches::{Asked, Searches};
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
    /// only a search that begins after a pause shows it for certain. Called after the look at the
    /// mount table that the change may call for.
    pub(super) fn since(&self, searches: &Searches) -> Option<Asked> {
        match &self.change {
            Change::Event(event) if !event.is_in_effect() => None,
            // The look may have found a mount that came after this change and after a search for
            // it. What reports that mount then finds nothing new.
            Change::Event(event) if event.is_rename() => Some(searches.ask()),
            Change::Mounts => Some(searches.ask()),
            Change::Event(_) => Some(self.asked),
            Change::Replaced(_) | Change::Restarted => None,
        }
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
