//! Stateids of removed clients. Minor version 0 distinguishes a stateid removed
//! with its client (NFS4ERR_EXPIRED) from one that never existed
//! (NFS4ERR_BAD_STATEID): RFC 7530 §9.1.4.4, §13.1.5.

use super::ids::StateKey;
use ahash::HashSet;
use std::collections::VecDeque;

/// Most stateids remembered; older ones become bad stateids.
const MAX_EXPIRED: usize = 64 << 10;

/// The latest stateids that were removed with their clients.
#[derive(Debug, Default)]
pub struct ExpiredStateids {
    order: VecDeque<StateKey>,
    known: HashSet<StateKey>,
}

impl ExpiredStateids {
    /// Adds a stateid.
    pub fn add(&mut self, key: StateKey) {
        if !self.known.insert(key) {
            return;
        }
        self.order.push_back(key);
        if self.order.len() > MAX_EXPIRED
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }

    /// True if the stateid was removed with its client.
    #[must_use]
    pub fn contains(&self, key: StateKey) -> bool {
        self.known.contains(&key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_forgotten_first() {
        let key = |n: u64| {
            let mut other = [0; 12];
            other[4..].copy_from_slice(&n.to_be_bytes());
            StateKey(other)
        };
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
}
