//! Quotas by host: no host can exhaust a resource of the server.
//!
//! A host may take more as long as its share is then at most
//! [`HOST_SHARE_OF_FREE`] times the free part. A single host can thus use three
//! quarters; a second one finds a quarter free and may use three quarters of
//! that; many hosts that take all they can get equal shares. Only the amounts
//! in use are counted. What a client had before a restart of the server it may take
//! back beyond its host's share: others may have come first. IPv4 hosts are addresses, IPv6 hosts are /64 networks,
//! as an interface may choose among the addresses of one.

use crate::limits::{
    BLOCKED_LOCK_BYTES, CLIENT_BYTES, DELEGATION_BYTES, HOST_SHARE_OF_FREE, LOCK_STATE_BYTES,
    MAX_BLOCKED_LOCKS, MAX_CLIENTS, MAX_DELEGATIONS, MAX_LOCK_STATES, MAX_OPEN_FILES, MAX_OPENS,
    MAX_OWNERS, MAX_RANGES, MAX_REPLY_CACHE_BYTES, MAX_SESSIONS, OPEN_BYTES, OWNER_BYTES,
    RANGE_BYTES, SESSION_BYTES,
};
use ahash::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use zgate_store::HostKey;

/// Resources divided among hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quota {
    /// Client records.
    Clients,
    /// Sessions.
    Sessions,
    /// Bytes promised to reply caches.
    ReplyBytes,
    /// Files that are open or delegated: each needs descriptors of the process.
    Files,
    /// Opens.
    Opens,
    /// Lock stateids.
    LockStates,
    /// Locked byte ranges.
    Ranges,
    /// Delegations.
    Delegations,
    /// Open and lock owners.
    Owners,
    /// Blocked locks whose clients are to be told.
    BlockedLocks,
}

/// Bound of the amount that a host may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The host's share: for what is new.
    Share,
    /// The limit for all hosts together: for what is reclaimed.
    Total,
}

const QUOTAS: usize = 10;

/// Limits for all hosts together, in the order of [`Quota`].
const CAPACITY: [usize; QUOTAS] = [
    MAX_CLIENTS,
    MAX_SESSIONS,
    MAX_REPLY_CACHE_BYTES,
    MAX_OPEN_FILES,
    MAX_OPENS,
    MAX_LOCK_STATES,
    MAX_RANGES,
    MAX_DELEGATIONS,
    MAX_OWNERS,
    MAX_BLOCKED_LOCKS,
];

/// Bytes of one of each, in the order of [`Quota`]. A file is counted with its
/// opens.
const BYTES_EACH: [usize; QUOTAS] = [
    CLIENT_BYTES,
    SESSION_BYTES,
    1,
    0,
    OPEN_BYTES,
    LOCK_STATE_BYTES,
    RANGE_BYTES,
    DELEGATION_BYTES,
    OWNER_BYTES,
    BLOCKED_LOCK_BYTES,
];

/// Least limits, however little memory there is, in the order of [`Quota`].
const LEAST: [usize; QUOTAS] = [64, 256, 4 << 20, 1024, 1024, 1024, 4096, 512, 1024, 64];

/// Memory of everything when each limit is reached, in bytes.
pub const MOST_STATE_BYTES: usize = bytes_of(&CAPACITY);
/// The same with the least limits.
pub const LEAST_STATE_BYTES: usize = bytes_of(&LEAST);

const fn bytes_of(limits: &[usize; QUOTAS]) -> usize {
    let (mut sum, mut index) = (0, 0);
    while index < QUOTAS {
        sum += limits[index] * BYTES_EACH[index];
        index += 1;
    }
    sum
}

type Registry = Mutex<HashMap<HostKey, Weak<HostAccount>>>;

#[derive(Debug)]
struct Totals {
    held: [AtomicUsize; QUOTAS],
    capacity: [usize; QUOTAS],
    /// Set while the gateway has no memory for more.
    is_full: AtomicBool,
}

/// All hosts with resources in use.
#[derive(Debug)]
pub struct Hosts {
    totals: Arc<Totals>,
    accounts: Arc<Registry>,
}

impl Default for Hosts {
    fn default() -> Self {
        Self::with_open_files(MAX_OPEN_FILES)
    }
}

impl Hosts {
    /// Quotas of a server with descriptors for `files` open files.
    #[must_use]
    pub fn with_open_files(files: usize) -> Self {
        Self::with_limits(files, usize::MAX)
    }

    /// The same, and all state of clients together takes at most so many bytes,
    /// or [`LEAST_STATE_BYTES`].
    #[must_use]
    pub fn with_limits(files: usize, state_bytes: usize) -> Self {
        let mut capacity = CAPACITY;
        if state_bytes < MOST_STATE_BYTES {
            for (limit, least) in capacity.iter_mut().zip(LEAST) {
                let part = *limit as u128 * state_bytes as u128 / MOST_STATE_BYTES as u128;
                *limit = usize::try_from(part).unwrap_or(*limit).max(least);
            }
        }
        let files_limit = &mut capacity[Quota::Files as usize];
        *files_limit = files.min(*files_limit);
        let totals = Totals { held: Default::default(), capacity, is_full: AtomicBool::new(false) };
        Self { totals: Arc::new(totals), accounts: Arc::default() }
    }

    /// Refuses everything new while `is_full`.
    pub fn set_full(&self, is_full: bool) {
        self.totals.is_full.store(is_full, Ordering::Relaxed);
    }

    /// The account of the host at this address.
    #[must_use]
    pub fn account(&self, address: IpAddr) -> Arc<HostAccount> {
        let host = HostKey::from(address);
        let mut accounts = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = accounts.get(&host).and_then(Weak::upgrade) {
            return known;
        }
        let account = Arc::new(HostAccount {
            host,
            held: Default::default(),
            totals: Arc::clone(&self.totals),
            accounts: Arc::clone(&self.accounts),
        });
        accounts.insert(host, Arc::downgrade(&account));
        account
    }

    /// Amount in use by all hosts together.
    #[must_use]
    pub fn held(&self, quota: Quota) -> usize {
        self.totals.held[quota as usize].load(Ordering::Relaxed)
    }
}

/// Resources used by one host.
#[derive(Debug)]
pub struct HostAccount {
    host: HostKey,
    held: [AtomicUsize; QUOTAS],
    totals: Arc<Totals>,
    accounts: Arc<Registry>,
}

impl HostAccount {
    /// True if the host may take `amount` more, as something new.
    #[must_use]
    pub fn has_room(&self, quota: Quota, amount: usize) -> bool {
        self.has_room_within(Bound::Share, quota, amount)
    }

    /// True if the host may take `amount` more within this bound.
    #[must_use]
    pub fn has_room_within(&self, bound: Bound, quota: Quota, amount: usize) -> bool {
        let own = self.held[quota as usize].load(Ordering::Relaxed) + amount;
        let all = self.totals.held[quota as usize].load(Ordering::Relaxed) + amount;
        let free = self.totals.capacity[quota as usize].checked_sub(all);
        let is_within =
            |free: usize| bound == Bound::Total || own <= free.saturating_mul(HOST_SHARE_OF_FREE);
        free.is_some_and(is_within) && !self.totals.is_full.load(Ordering::Relaxed)
    }

    /// Amount in use by the host.
    #[must_use]
    pub fn held(&self, quota: Quota) -> usize {
        self.held[quota as usize].load(Ordering::Relaxed)
    }

    /// Takes `amount` more, if the host may.
    #[must_use]
    pub fn take(self: &Arc<Self>, quota: Quota, amount: usize) -> Option<Charge> {
        self.has_room(quota, amount).then(|| self.charge(quota, amount))
    }

    /// Charges the host for resources it has already.
    #[must_use]
    pub fn charge(self: &Arc<Self>, quota: Quota, amount: usize) -> Charge {
        self.charge_parts(quota, amount, Parts { own: true, total: true })
    }

    /// Charges the host only; the total was charged before. A file counts once
    /// in the total for each export, regardless of the number of hosts.
    #[must_use]
    pub fn charge_own(self: &Arc<Self>, quota: Quota, amount: usize) -> Charge {
        self.charge_parts(quota, amount, Parts { own: true, total: false })
    }

    /// Charges the total only.
    #[must_use]
    pub fn charge_total(self: &Arc<Self>, quota: Quota, amount: usize) -> Charge {
        self.charge_parts(quota, amount, Parts { own: false, total: true })
    }

    fn charge_parts(self: &Arc<Self>, quota: Quota, amount: usize, parts: Parts) -> Charge {
        let mut charge = Charge { account: Arc::clone(self), quota, amount: 0, parts };
        charge.set(amount);
        charge
    }
}

impl Drop for HostAccount {
    fn drop(&mut self) {
        let mut accounts = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have created a new one in the meantime.
        if accounts.get(&self.host).is_some_and(|account| account.strong_count() == 0) {
            accounts.remove(&self.host);
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Parts {
    own: bool,
    total: bool,
}

/// A charged amount. Dropping it releases the amount.
#[derive(Debug)]
pub struct Charge {
    account: Arc<HostAccount>,
    quota: Quota,
    amount: usize,
    parts: Parts,
}

impl Charge {
    /// Changes the amount.
    pub fn set(&mut self, amount: usize) {
        let before = std::mem::replace(&mut self.amount, amount);
        let own = &self.account.held[self.quota as usize];
        let total = &self.account.totals.held[self.quota as usize];
        for (counted, counter) in [(self.parts.own, own), (self.parts.total, total)] {
            if counted && amount > before {
                counter.fetch_add(amount - before, Ordering::Relaxed);
            } else if counted {
                counter.fetch_sub(before - amount, Ordering::Relaxed);
            }
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn greedy(hosts: &Hosts, host: &str, quota: Quota) -> Vec<Charge> {
        let account = hosts.account(address(host));
        std::iter::from_fn(|| account.take(quota, 1)).collect()
    }

    #[test]
    fn a_host_alone_takes_most_and_each_one_more_finds_room() {
        for quota in [Quota::Clients, Quota::Sessions, Quota::Files] {
            let hosts = Hosts::default();
            let all = CAPACITY[quota as usize];
            let first = greedy(&hosts, "10.0.0.1", quota);
            assert!(first.len() * 4 >= all * 3 - 4 && first.len() * 4 <= all * 3);
            assert!(hosts.account(address("10.0.0.1")).take(quota, 1).is_none());
            let second = greedy(&hosts, "10.0.0.2", quota);
            assert!(second.len() * 16 >= all * 3 - 64, "{} of {all}", second.len());
            let third = greedy(&hosts, "10.0.0.3", quota);
            assert!(third.len() >= all / 32, "{} of {all}", third.len());
            // Resources released by the first host are available to others.
            drop(first);
            assert!(greedy(&hosts, "10.0.0.4", quota).len() >= all / 2);
        }
    }

    #[test]
    fn what_is_reclaimed_is_bounded_by_the_limit_for_all() {
        let hosts = Hosts::default();
        let (first, late) =
            (greedy(&hosts, "10.0.0.1", Quota::Files), hosts.account(address("10.0.0.2")));
        let left = CAPACITY[Quota::Files as usize] - first.len();
        assert!(!late.has_room(Quota::Files, left));
        assert!(late.has_room_within(Bound::Total, Quota::Files, left));
        assert!(!late.has_room_within(Bound::Total, Quota::Files, left + 1));
        hosts.set_full(true);
        assert!(!late.has_room_within(Bound::Total, Quota::Files, 1));
    }

    #[test]
    fn the_addresses_of_a_network_are_one_host() {
        let hosts = Hosts::default();
        let first = greedy(&hosts, "2001:db8::1", Quota::Clients);
        assert!(!first.is_empty());
        assert!(greedy(&hosts, "2001:db8::ffff:1", Quota::Clients).is_empty());
        assert!(!greedy(&hosts, "2001:db8:0:1::1", Quota::Clients).is_empty());
    }

    #[test]
    fn accounts_go_with_their_last_charge() {
        let hosts = Hosts::default();
        let mut charge = hosts.account(address("10.0.0.1")).charge(Quota::Ranges, 5);
        charge.set(7);
        assert_eq!(hosts.held(Quota::Ranges), 7);
        assert_eq!(hosts.accounts.lock().unwrap().len(), 1);
        drop(charge);
        assert_eq!(hosts.held(Quota::Ranges), 0);
        assert!(hosts.accounts.lock().unwrap().is_empty());
    }

    #[test]
    fn a_memory_limit_lowers_all_limits_and_stays_above_the_least() {
        let address = "10.0.0.1".parse().unwrap();
        let all = Hosts::with_limits(MAX_OPEN_FILES, MOST_STATE_BYTES);
        assert_eq!(all.totals.capacity, Hosts::default().totals.capacity);
        for part in [2, 16, 1024, 1 << 20] {
            let limit = MOST_STATE_BYTES / part;
            let hosts = Hosts::with_limits(MAX_OPEN_FILES, limit);
            let bytes = bytes_of(&hosts.totals.capacity);
            assert!(bytes <= limit.max(LEAST_STATE_BYTES) + LEAST_STATE_BYTES, "1/{part}: {bytes}");
            assert!(hosts.totals.capacity.iter().zip(LEAST).all(|(limit, least)| *limit >= least));
            assert!(hosts.account(address).take(Quota::Opens, 1).is_some());
        }
        assert_eq!(Hosts::with_limits(10, MOST_STATE_BYTES / 2).totals.capacity[3], 10);
    }

    #[test]
    fn while_memory_is_full_nothing_new_is_taken_and_everything_may_end() {
        let hosts = Hosts::default();
        let host = hosts.account("10.0.0.1".parse().unwrap());
        let held = host.take(Quota::Opens, 1).unwrap();
        hosts.set_full(true);
        assert!(host.take(Quota::Opens, 1).is_none() && !host.has_room(Quota::Clients, 1));
        drop(held);
        assert_eq!(hosts.held(Quota::Opens), 0);
        hosts.set_full(false);
        assert!(host.take(Quota::Opens, 1).is_some());
    }
}
