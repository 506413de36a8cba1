//! Places that are bounded in total and for each host.

use crate::HostKey;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// `ALL` places, of which one host has at most `PER_HOST`: it does not keep others from
/// theirs.
#[derive(Debug, Default)]
pub struct HostPlaces<const ALL: usize, const PER_HOST: usize>(Mutex<Taken>);

#[derive(Debug, Default)]
struct Taken {
    total: usize,
    of_hosts: HashMap<HostKey, usize>,
}

/// A place of a host; given back on drop.
#[derive(Debug)]
pub struct HostPlace<const ALL: usize, const PER_HOST: usize> {
    places: Arc<HostPlaces<ALL, PER_HOST>>,
    host: HostKey,
}

impl<const ALL: usize, const PER_HOST: usize> HostPlaces<ALL, PER_HOST> {
    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place for a host; `None` if none is free for it.
    pub fn take(self: &Arc<Self>, host: HostKey) -> Option<HostPlace<ALL, PER_HOST>> {
        let mut taken = self.lock();
        let own = taken.of_hosts.get(&host).copied().unwrap_or(0);
        if taken.total >= ALL || own >= PER_HOST {
            return None;
        }
        taken.total += 1;
        taken.of_hosts.insert(host, own + 1);
        Some(HostPlace { places: Arc::clone(self), host })
    }

    /// Returns the number of places that are taken.
    pub fn taken(&self) -> usize {
        self.lock().total
    }

    /// Returns the number of hosts that have places.
    pub fn hosts(&self) -> usize {
        self.lock().of_hosts.len()
    }
}

impl<const ALL: usize, const PER_HOST: usize> HostPlace<ALL, PER_HOST> {
    /// Returns the host that has it.
    pub fn host(&self) -> HostKey {
        self.host
    }
}

impl<const ALL: usize, const PER_HOST: usize> Drop for HostPlace<ALL, PER_HOST> {
    fn drop(&mut self) {
        let mut taken = self.places.lock();
        taken.total -= 1;
        match taken.of_hosts.get_mut(&self.host) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(taken.of_hosts.remove(&self.host)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    #[test]
    fn places_are_bounded_in_total_and_for_each_host() {
        let places = Arc::new(HostPlaces::<5, 2>::default());
        let host = |last: u8| HostKey::from(IpAddr::from([10, 0, 0, last]));
        let mut held: Vec<_> = std::iter::from_fn(|| places.take(host(0))).collect();
        assert_eq!(held.len(), 2);
        held.extend((1..=u8::MAX).map_while(|last| places.take(host(last))));
        assert_eq!((held.len(), places.taken(), places.hosts()), (5, 5, 4));
        drop(held.swap_remove(0));
        assert!(places.take(host(0)).is_some(), "a place has returned");
        drop(held);
        assert_eq!((places.taken(), places.hosts()), (0, 0));
    }
}
