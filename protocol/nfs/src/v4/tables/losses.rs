//! State that a client loses although its lease is valid (RFC 8881 §8.4.3, §10.2.1; RFC
//! 7530 §10.2.1): until it knows, it would take that back after a restart.

use super::ids::StateKey;
use ahash::HashMap;
use std::collections::hash_map;
use zgate_nfs_wire::v4::Status;

/// A revoked stateid.
#[derive(Clone, Copy, Debug)]
pub struct Revoked {
    /// The status of its use.
    status: Status,
    /// Its export has gone: nobody gets the file through that, unless it comes back.
    went_with_export: bool,
}

/// State that was revoked from a client, and that it may not know to be lost.
#[derive(Debug, Default)]
pub struct Losses {
    /// Revoked stateids that it has not acknowledged yet.
    revoked: HashMap<StateKey, Revoked>,
    /// Something else is lost, which it cannot acknowledge.
    is_lasting: bool,
    /// Leases in which SEQUENCE has told of the revoked stateids since the latest one was
    /// added.
    leases_told: u64,
    /// Time from which SEQUENCE tells in another lease, in seconds.
    next_lease_seconds: u64,
}

impl Losses {
    /// Adds a revoked stateid, which the client acknowledges.
    pub fn add(&mut self, key: StateKey, status: Status) {
        self.insert(key, Revoked { status, went_with_export: false });
    }

    /// As [`Self::add`], of a delegation that ends because its export does.
    pub fn add_with_export(&mut self, key: StateKey, status: Status) {
        self.insert(key, Revoked { status, went_with_export: true });
    }

    fn insert(&mut self, key: StateKey, revoked: Revoked) {
        self.revoked.insert(key, revoked);
        self.leases_told = 0;
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
        self.revoked.get(&key).map(|revoked| revoked.status)
    }

    /// Returns whether SEQUENCE tells the client that stateids are revoked, and counts the
    /// leases in which it does.
    pub fn tell(&mut self, now_seconds: u64, lease_seconds: u32) -> bool {
        if self.revoked.is_empty() {
            return false;
        }
        if now_seconds >= self.next_lease_seconds {
            self.leases_told += 1;
            self.next_lease_seconds = now_seconds + u64::from(lease_seconds);
        }
        true
    }

    /// Forgets the revoked stateids if the client was told of them in more than `most`
    /// leases: the acknowledgement does not come any more, and a Linux client tests all its
    /// delegations each time that it is told. The loss lasts, since the client may be one
    /// that does not listen, unless the exports went. Returns whether any were forgotten.
    pub fn forget_unheeded(&mut self, most: u64) -> bool {
        if self.leases_told <= most || self.revoked.is_empty() {
            return false;
        }
        self.leases_told = 0;
        let unheeded = std::mem::take(&mut self.revoked);
        self.is_lasting |= unheeded.into_values().any(|revoked| !revoked.went_with_export);
        true
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
    pub(in crate::v4) fn take_revoked(&mut self) -> hash_map::IntoKeys<StateKey, Revoked> {
        std::mem::take(&mut self.revoked).into_keys()
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

    #[test]
    fn the_client_is_told_in_so_many_leases_after_the_latest_loss() {
        let mut losses = Losses::default();
        assert!(!losses.tell(0, 20) && !losses.forget_unheeded(0));
        losses.add(key(1), Status::DelegRevoked);
        let tell = |losses: &mut Losses, now_seconds| {
            assert!(losses.tell(now_seconds, 20), "{now_seconds}");
            losses.forget_unheeded(2)
        };
        assert!([0, 10, 19, 20, 39].iter().all(|now| !tell(&mut losses, *now)));
        losses.add(key(2), Status::DelegRevoked);
        assert!([40, 60, 79].iter().all(|now| !tell(&mut losses, *now)));
        assert!(tell(&mut losses, 80));
        assert!(!losses.tell(81, 20) && losses.status_of(key(1)).is_none());
        assert_eq!((losses.revoked(), losses.are_known()), (0, false), "it lasts");
    }

    #[test]
    fn what_went_with_its_export_does_not_last() {
        for (with_others, are_known) in [(false, true), (true, false)] {
            let mut losses = Losses::default();
            losses.add_with_export(key(1), Status::DelegRevoked);
            if with_others {
                losses.add(key(2), Status::DelegRevoked);
            }
            assert!(losses.tell(0, 20) && losses.forget_unheeded(0));
            assert_eq!(losses.are_known(), are_known);
        }
    }
}
