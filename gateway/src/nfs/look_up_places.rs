//! Places of look-ups that wait for the name service: each one holds a thread.

use super::limits::{FIRST_LOOK_UPS, FIRST_LOOK_UPS_PER_HOST};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use zgate_store::HostKey;

/// A bounded number of places, and of places of each host: one host whose users nobody
/// can tell does not keep those of others from being asked for.
#[derive(Debug, Default)]
pub(crate) struct LookUpPlaces(Mutex<Taken>);

#[derive(Debug, Default)]
struct Taken {
    total: usize,
    of_hosts: HashMap<HostKey, usize>,
}

/// A place; given back on drop.
#[derive(Debug)]
pub(crate) struct LookUpPlace {
    places: &'static LookUpPlaces,
    host: HostKey,
}

impl LookUpPlaces {
    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place; `None` if none is free.
    pub(crate) fn take(&'static self, host: HostKey) -> Option<LookUpPlace> {
        let mut taken = self.taken();
        let of_host = taken.of_hosts.get(&host).copied().unwrap_or(0);
        if taken.total >= FIRST_LOOK_UPS || of_host >= FIRST_LOOK_UPS_PER_HOST {
            return None;
        }
        taken.total += 1;
        taken.of_hosts.insert(host, of_host + 1);
        Some(LookUpPlace { places: self, host })
    }
}

impl Drop for LookUpPlace {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
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
    use std::sync::LazyLock;

    #[test]
    fn places_are_bounded_in_total_and_for_each_host() {
        static PLACES: LazyLock<LookUpPlaces> = LazyLock::new(LookUpPlaces::default);
        let host = |number: u16| {
            let [high, low] = number.to_be_bytes();
            HostKey::from(IpAddr::from([10, 0, high, low]))
        };
        let mut held: Vec<_> = std::iter::from_fn(|| PLACES.take(host(0))).collect();
        assert_eq!(held.len(), FIRST_LOOK_UPS_PER_HOST);
        held.extend((1..=u16::MAX).map_while(|number| PLACES.take(host(number))));
        assert_eq!(held.len(), FIRST_LOOK_UPS);
        drop(held.swap_remove(0));
        assert!(PLACES.take(host(0)).is_some(), "a place has returned");
        drop(held);
        assert_eq!(PLACES.taken().total, 0);
        assert!(PLACES.taken().of_hosts.is_empty());
    }
}
