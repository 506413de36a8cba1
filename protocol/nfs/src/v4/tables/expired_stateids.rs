//! Stateids of removed clients, and revoked ones. Minor version 0 distinguishes a stateid
//! that was taken from its client (NFS4ERR_EXPIRED) from one that never existed
//! (NFS4ERR_BAD_STATEID): RFC 7530 §9.1.4.4, §13.1.5.

use super::ids::StateKey;
use ahash::HashMap;
use std::collections::VecDeque;
use zgate_nfs_wire::v4::ClientId;

/// Most stateids remembered; older ones become bad stateids.
const MAX_EXPIRED: usize = 64 << 10;

/// The latest stateids that were removed with their clients, or revoked.
#[derive(Debug, Default)]
pub struct ExpiredStateids {
    order: VecDeque<StateKey>,
    /// Those that were revoked, with their client.
    known: HashMap<StateKey, Option<ClientId>>,
}

impl ExpiredStateids {
    /// Adds a stateid that was removed with its client.
    pub fn add(&mut self, key: StateKey) {
        self.insert(key, None);
    }

    /// Adds a revoked stateid of a client that stays, and may return it late: minor version
    /// 0 does not name the client then.
    pub fn add_revoked(&mut self, key: StateKey, client: ClientId) {
        self.insert(key, Some(client));
    }

    fn insert(&mut self, key: StateKey, client: Option<ClientId>) {
        if self.contains(key) {
            return;
        }
        self.known.insert(key, client);
        self.order.push_back(key);
        if self.order.len() > MAX_EXPIRED
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }

    /// True if the stateid was removed with its client, or revoked.
    #[must_use]
    pub fn contains(&self, key: StateKey) -> bool {
        self.known.contains_key(&key)
    }

    /// The client from which the stateid was revoked; it may have been removed since.
    #[must_use]
    pub fn revoked_from(&self, key: StateKey) -> Option<ClientId> {
        self.known.get(&key).copied().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u64) -> StateKey {
        let mut other = [0; 12];
        other[4..].copy_from_slice(&n.to_be_bytes());
        StateKey(other)
    }

    #[test]
    fn the_oldest_is_forgotten_first() {
        let mut expired = ExpiredStateids::default();
        for n in 0..=MAX_EXPIRED as u64 {
            expired.add(key(n));
            expired.add(key(n));
        }
        assert!(!expired.contains(key(0)));
        assert!(expired.contains(key(1)));
        assert!(expired.contains(key(MAX_EXPIRED as u64)));
        assert_eq!(expired.order.len(), expired.known.len());
    }

    #[test]
    fn a_revoked_one_has_its_client_also_after_the_removal_of_that() {
        let mut expired = ExpiredStateids::default();
        expired.add_revoked(key(1), ClientId(7));
        expired.add(key(2));
        expired.add(key(1));
        let clients = [1, 2, 3].map(|n| expired.revoked_from(key(n)));
        assert_eq!(clients, [Some(ClientId(7)), None, None]);
        assert!(expired.contains(key(1)) && expired.contains(key(2)) && !expired.contains(key(3)));
    }
}
