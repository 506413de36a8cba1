//! Quotas by host: no host takes so much of anything the server keeps that
//! others find nothing left.
//!
//! A host may take more as long as what it then holds is at most
//! [`HOST_SHARE_OF_FREE`] times what is then left free. A host alone may thus
//! hold three quarters; one that comes next finds a quarter free and may have
//! three quarters of that; of many that take all they can, each gets the same.
//! Nothing has to be counted but what is held. IPv4 hosts are addresses, IPv6
//! hosts /64 networks: an interface chooses among the addresses of one.

use crate::limits::{
    HOST_SHARE_OF_FREE, MAX_CLIENTS, MAX_DELEGATIONS, MAX_LOCK_STATES, MAX_OPEN_FILES, MAX_OPENS,
    MAX_OWNERS, MAX_RANGES, MAX_REPLY_CACHE_BYTES, MAX_SESSIONS,
};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// What is divided among hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quota {
    /// Client records.
    Clients,
    /// Sessions.
    Sessions,
    /// Bytes promised to reply caches.
    ReplyBytes,
    /// Files that are open or delegated: each holds descriptors of the process.
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
}

const QUOTAS: usize = 9;

/// What all hosts together may hold, in the order of [`Quota`].
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
];

/// The address that stands for a host.
#[must_use]
pub fn host_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(six) => {
            let network = u128::from(six) & !u128::from(u64::MAX);
            IpAddr::V6(Ipv6Addr::from(network))
        }
        four => four,
    }
}

type Registry = Mutex<HashMap<IpAddr, Weak<HostAccount>>>;

#[derive(Debug)]
struct Totals {
    held: [AtomicUsize; QUOTAS],
    capacity: [usize; QUOTAS],
}

/// All hosts that hold anything.
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
    /// Quotas of a server with descriptors for so many open files.
    #[must_use]
    pub fn with_open_files(files: usize) -> Self {
        let mut capacity = CAPACITY;
        capacity[Quota::Files as usize] = files.min(MAX_OPEN_FILES);
        let totals = Totals { held: Default::default(), capacity };
        Self { totals: Arc::new(totals), accounts: Arc::default() }
    }

    /// What the host at this address holds.
    #[must_use]
    pub fn account(&self, address: IpAddr) -> Arc<HostAccount> {
        let host = host_of(address);
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

    /// How much of it all hosts together hold.
    #[must_use]
    pub fn held(&self, quota: Quota) -> usize {
        self.totals.held[quota as usize].load(Ordering::Relaxed)
    }
}

/// What one host holds.
#[derive(Debug)]
pub struct HostAccount {
    host: IpAddr,
    held: [AtomicUsize; QUOTAS],
    totals: Arc<Totals>,
    accounts: Arc<Registry>,
}

impl HostAccount {
    /// Whether the host may take so much more.
    #[must_use]
    pub fn has_room(&self, quota: Quota, amount: usize) -> bool {
        let own = self.held[quota as usize].load(Ordering::Relaxed) + amount;
        let all = self.totals.held[quota as usize].load(Ordering::Relaxed) + amount;
        let free = self.totals.capacity[quota as usize].checked_sub(all);
        free.is_some_and(|free| own <= free.saturating_mul(HOST_SHARE_OF_FREE))
    }

    /// Takes so much more, if the host may.
    #[must_use]
    pub fn take(self: &Arc<Self>, quota: Quota, amount: usize) -> Option<Charge> {
        self.has_room(quota, amount).then(|| self.charge(quota, amount))
    }

    /// Charges the host for what it has got already.
    #[must_use]
    pub fn charge(self: &Arc<Self>, quota: Quota, amount: usize) -> Charge {
        self.charge_parts(quota, amount, Parts { own: true, total: true })
    }

    /// Charges the host alone: the total has it already. A file is open once,
    /// whoever opens it.
    #[must_use]
    pub fn charge_own(self: &Arc<Self>, quota: Quota, amount: usize) -> Charge {
        self.charge_parts(quota, amount, Parts { own: true, total: false })
    }

    /// Charges the total alone.
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
        // Somebody may have made a new one meanwhile.
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

/// A part of what a host holds. Dropping it gives it back.
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
            // What the first gives back, others can have.
            drop(first);
            assert!(greedy(&hosts, "10.0.0.4", quota).len() >= all / 2);
        }
    }

    #[test]
    fn the_addresses_of_a_network_are_one_host() {
        let hosts = Hosts::default();
        let first = greedy(&hosts, "2001:db8::1", Quota::Clients);
        assert!(!first.is_empty());
        assert!(greedy(&hosts, "2001:db8::ffff:1", Quota::Clients).is_empty());
        assert!(!greedy(&hosts, "2001:db8:0:1::1", Quota::Clients).is_empty());
        assert_eq!(host_of(address("::ffff:10.0.0.1")), address("10.0.0.1"));
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
}
