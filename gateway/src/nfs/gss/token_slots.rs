//! Bounds on tokens that are being worked on, by host.

use super::limits::{MAX_ESTABLISHING, MAX_ESTABLISHING_PER_HOST};
use ahash::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use zgate_store::HostKey;

#[derive(Debug, Default)]
struct Counts {
    total: usize,
    of_hosts: HashMap<HostKey, usize>,
}

/// Tokens that are being worked on.
#[derive(Debug, Default)]
pub(super) struct TokenSlots(Mutex<Counts>);

/// Right to one token; returned on drop.
#[derive(Debug)]
pub(super) struct TokenSlot {
    all: Arc<TokenSlots>,
    host: HostKey,
}

impl TokenSlots {
    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Admits a token of a host; `None`: too many are being worked on.
    pub(super) fn admit(self: &Arc<Self>, host: HostKey) -> Option<TokenSlot> {
        let mut counts = self.lock();
        let own = counts.of_hosts.get(&host).copied().unwrap_or_default();
        if counts.total >= MAX_ESTABLISHING || own >= MAX_ESTABLISHING_PER_HOST {
            return None;
        }
        counts.total += 1;
        counts.of_hosts.insert(host, own + 1);
        Some(TokenSlot { all: Arc::clone(self), host })
    }
}

impl Drop for TokenSlot {
    fn drop(&mut self) {
        let mut counts = self.all.lock();
        counts.total -= 1;
        match counts.of_hosts.get_mut(&self.host) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(counts.of_hosts.remove(&self.host)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    #[test]
    fn a_host_cannot_take_all_slots() {
        let all = Arc::new(TokenSlots::default());
        let host = |last: u8| HostKey::from(IpAddr::from([10, 0, 0, last]));
        let of = |last| std::iter::from_fn(|| all.admit(host(last))).collect::<Vec<_>>();
        let one = of(1);
        assert_eq!(one.len(), MAX_ESTABLISHING_PER_HOST);
        let others: Vec<_> = (2..200).map(of).collect();
        let total: usize = others.iter().map(Vec::len).sum::<usize>() + one.len();
        assert_eq!(total, MAX_ESTABLISHING);
        drop(one);
        assert!(all.admit(host(250)).is_some());
        drop(others);
        assert!(all.lock().of_hosts.is_empty() && all.lock().total == 0);
    }
}
