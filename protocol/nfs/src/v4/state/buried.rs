//! Stateids of clients that are gone. Minor version 0 tells "your client
//! record went, and this with it" (NFS4ERR_EXPIRED) from "this never was"
//! (NFS4ERR_BAD_STATEID): RFC 7530 §9.1.4.4, §13.1.5.

use super::ids::StateKey;
use std::collections::{HashSet, VecDeque};

/// How many are remembered; older ones become bad stateids.
const MAX_BURIED: usize = 64 << 10;

/// The latest stateids that went with their clients.
#[derive(Debug, Default)]
pub struct Buried {
    order: VecDeque<StateKey>,
    known: HashSet<StateKey>,
}

impl Buried {
    /// Remembers one.
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

    /// Whether the stateid went with its client.
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
