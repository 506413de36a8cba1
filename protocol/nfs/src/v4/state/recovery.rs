//! What survives a restart: which clients held state, and the grace period in
//! which they take it back (RFC 8881 §8.4.2).

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use zgate_store::StoreResult;

/// A client's record on stable storage.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClientRecord {
    /// co_ownerid or nfs_client_id4.id.
    pub name: Vec<u8>,
    /// Minor version 0: it will send no RECLAIM_COMPLETE.
    pub minor_zero: bool,
}

/// Stable storage for client records. `put` and `remove` return after the
/// change is durable; they are called rarely (a new client, a client leaving).
pub trait RecoveryStore: Send + Sync {
    /// The records of the start before this one.
    fn load(&self) -> Vec<ClientRecord>;

    /// Keeps a record.
    ///
    /// # Errors
    /// The storage's.
    fn put(&self, record: &ClientRecord) -> StoreResult<()>;

    /// Drops a record.
    ///
    /// # Errors
    /// The storage's.
    fn remove(&self, name: &[u8]) -> StoreResult<()>;
}

/// Keeps nothing: for tests and servers without a state directory.
#[derive(Debug, Default)]
pub struct NoRecovery;

impl RecoveryStore for NoRecovery {
    fn load(&self) -> Vec<ClientRecord> {
        Vec::new()
    }
    fn put(&self, _: &ClientRecord) -> StoreResult<()> {
        Ok(())
    }
    fn remove(&self, _: &[u8]) -> StoreResult<()> {
        Ok(())
    }
}

/// The grace period.
#[derive(Debug)]
pub struct Grace {
    eligible: HashSet<Vec<u8>>,
    waiting: Mutex<HashSet<Vec<u8>>>,
    ends_seconds: u64,
    /// However busy clients are reclaiming, it ends then.
    ends_at_last_seconds: u64,
    last_reclaim_seconds: AtomicU64,
    over: AtomicBool,
}

/// Grace goes on while the latest reclaim is no older than this, in seconds: a
/// client in the middle of many reclaims is not cut off.
const RECLAIM_PAUSE_SECONDS: u64 = 2;

impl Grace {
    /// Grace for the clients in `records`. With none, there is nothing to wait
    /// for.
    #[must_use]
    pub fn new(records: Vec<ClientRecord>, started_seconds: u64, grace_seconds: u32) -> Self {
        let eligible: HashSet<_> = records.into_iter().map(|record| record.name).collect();
        let over = eligible.is_empty() || grace_seconds == 0;
        Self {
            waiting: Mutex::new(eligible.clone()),
            eligible,
            ends_seconds: started_seconds + u64::from(grace_seconds),
            ends_at_last_seconds: started_seconds + 2 * u64::from(grace_seconds),
            last_reclaim_seconds: AtomicU64::new(0),
            over: AtomicBool::new(over),
        }
    }

    /// Whether the period runs.
    #[must_use]
    pub fn active(&self) -> bool {
        !self.over.load(Ordering::Acquire)
    }

    /// Whether a client of this name held state before the restart.
    #[must_use]
    pub fn may_reclaim(&self, name: &[u8], now_seconds: u64) -> bool {
        let eligible = self.active() && self.eligible.contains(name);
        if eligible {
            self.reclaiming(now_seconds);
        }
        eligible
    }

    /// A client is taking back what it held.
    pub fn reclaiming(&self, now_seconds: u64) {
        self.last_reclaim_seconds.fetch_max(now_seconds, Ordering::Relaxed);
    }

    fn due(&self, now_seconds: u64) -> bool {
        let pause = now_seconds.saturating_sub(self.last_reclaim_seconds.load(Ordering::Relaxed));
        now_seconds >= self.ends_at_last_seconds
            || now_seconds >= self.ends_seconds && pause > RECLAIM_PAUSE_SECONDS
    }

    /// A client has taken back all it wanted; with the last one grace ends.
    pub fn completed(&self, name: &[u8]) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.remove(name);
        if waiting.is_empty() {
            self.over.store(true, Ordering::Release);
        }
    }

    /// Ends the period when its time has come. Returns the clients that did
    /// not come back, once.
    pub fn tick(&self, now_seconds: u64) -> Vec<Vec<u8>> {
        if !self.active() || !self.due(now_seconds) {
            return Vec::new();
        }
        self.over.store(true, Ordering::Release);
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.drain().collect()
    }

    /// Seconds until it ends by itself.
    #[must_use]
    pub fn remaining_seconds(&self, now_seconds: u64) -> u64 {
        if !self.active() {
            return 0;
        }
        let end = if now_seconds < self.ends_seconds {
            self.ends_seconds
        } else {
            self.ends_at_last_seconds
        };
        end.saturating_sub(now_seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(name: &[u8]) -> ClientRecord {
        ClientRecord { name: name.to_vec(), minor_zero: false }
    }

    #[test]
    fn grace_ends_early_when_all_are_back() {
        let grace = Grace::new(vec![record(b"a"), record(b"b")], 0, 90);
        assert!(grace.active() && grace.may_reclaim(b"a", 1) && !grace.may_reclaim(b"c", 1));
        grace.completed(b"a");
        assert!(grace.active());
        grace.completed(b"b");
        assert!(!grace.active());
    }

    #[test]
    fn grace_ends_in_time_and_names_who_stayed_away() {
        let grace = Grace::new(vec![record(b"a")], 10, 90);
        assert!(grace.tick(99).is_empty());
        assert_eq!(grace.tick(100), vec![b"a".to_vec()]);
        assert!(!grace.active());
        assert!(!Grace::new(Vec::new(), 0, 90).active());
    }

    #[test]
    fn grace_waits_for_a_client_in_the_middle_of_its_reclaims_but_not_forever() {
        let grace = Grace::new(vec![record(b"a"), record(b"b")], 0, 10);
        for now in 9..20 {
            grace.reclaiming(now);
            assert!(grace.tick(now).is_empty(), "{now}");
        }
        grace.reclaiming(20);
        assert_eq!(grace.tick(20).len(), 2);
        let grace = Grace::new(vec![record(b"a")], 0, 10);
        grace.reclaiming(10);
        assert!(grace.tick(12).is_empty());
        assert_eq!(grace.tick(13).len(), 1);
    }
}
