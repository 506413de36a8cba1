//! Stateids of removed clients. Minor version 0 distinguishes a stateid removed
//! with its client (NFS4ERR_EXPIRED) from one that never existed
//! (NFS4ERR_BAD_STATEID): RFC 7530 §9.1.4.4, §13.1.5.

use super::ids::StateKey;
use ahash::HashSet;
use std::collections::VecDeque;

/// Most stateids remembered; older ones become bad stateids.
const MAX_BURIED: usize = 64 << 10;

/// The latest stateids that were removed with their clients.
#[derive(Debug, Default)]
pub struct Buried {
    order: VecDeque<StateKey>,
    known: HashSet<StateKey>,
}

impl Buried {
    /// Adds a stateid.
    pub fn bury(&mut self, key: StateKey) {
        if !self.known.insert(key) {
            return;
        }
        self.order.push_back(key);
        if self.order.len() > MAX_BURIED
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
        let mut buried = Buried::default();
        for n in 0..=MAX_BURIED as u64 {
            buried.bury(key(n));
            buried.bury(key(n));
        }
        assert!(!buried.contains(key(0)));
        assert!(buried.contains(key(1)));
        assert!(buried.contains(key(MAX_BURIED as u64)));
        assert_eq!(buried.order.len(), buried.known.len());
    }
}
