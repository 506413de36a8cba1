//! What a client loses although its lease is valid (RFC 8881 §8.4.3, §10.2.1; RFC 7530
//! §10.2.1): until it knows, it would take that back after a restart.

use super::ids::StateKey;
use ahash::HashMap;
use std::collections::hash_map;
use zgate_nfs_wire::v4::Status;

/// State that was revoked from a client, and that it may not know to be lost.
#[derive(Debug, Default)]
pub struct Losses {
    /// Revoked stateids that it has not acknowledged yet, with the status of their use.
    revoked: HashMap<StateKey, Status>,
    /// Something else is lost, which it cannot acknowledge.
    is_lasting: bool,
}

impl Losses {
    /// Adds a revoked stateid, which the client acknowledges.
    pub fn add(&mut self, key: StateKey, status: Status) {
        self.revoked.insert(key, status);
    }

    /// As [`Self::add`], of a client that may never acknowledge anything: beyond `most`
    /// stateids the loss lasts.
    pub fn add_within(&mut self, key: StateKey, status: Status, most: usize) {
        if self.revoked.len() < most {
            self.add(key, status);
        } else {
            self.add_lasting();
        }
    }

    /// Adds a loss that the client cannot acknowledge: it lasts as long as the client's id.
    pub fn add_lasting(&mut self) {
        self.is_lasting = true;
    }

    /// Takes a stateid out that the client acknowledges. Returns false if it is none of
    /// these.
    pub fn acknowledge(&mut self, key: StateKey) -> bool {
        self.revoked.remove(&key).is_some()
    }

    /// Status of the use of a revoked stateid.
    #[must_use]
    pub fn status_of(&self, key: StateKey) -> Option<Status> {
        self.revoked.get(&key).copied()
    }

    /// Number of revoked stateids to be acknowledged.
    #[must_use]
    pub fn revoked(&self) -> usize {
        self.revoked.len()
    }

    /// True if nothing is lost that the client may not know.
    #[must_use]
    pub fn are_known(&self) -> bool {
        self.revoked.is_empty() && !self.is_lasting
    }

    /// Takes all revoked stateids out: their client loses the rest, too.
    pub(in crate::v4) fn take_revoked(&mut self) -> hash_map::IntoIter<StateKey, Status> {
        std::mem::take(&mut self.revoked).into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u8) -> StateKey {
        StateKey([n; 12])
    }

    #[test]
    fn they_are_known_when_all_are_acknowledged() {
        let mut losses = Losses::default();
        assert!(losses.are_known());
        losses.add(key(1), Status::DelegRevoked);
        losses.add_within(key(2), Status::Expired, 2);
        assert_eq!(losses.status_of(key(2)), Some(Status::Expired));
        assert!(losses.acknowledge(key(1)) && !losses.acknowledge(key(1)));
        assert_eq!((losses.revoked(), losses.are_known()), (1, false));
        assert!(losses.acknowledge(key(2)) && losses.are_known());
    }

    #[test]
    fn what_is_not_remembered_cannot_be_acknowledged() {
        let mut losses = Losses::default();
        for n in 1..=3 {
            losses.add_within(key(n), Status::Expired, 2);
        }
        assert_eq!(losses.revoked(), 2);
        let acknowledged = [1, 2, 3].map(|n| losses.acknowledge(key(n)));
        assert_eq!((acknowledged, losses.are_known()), ([true, true, false], false));
    }
}
