//! Places of look-ups that wait for the name service: each one holds a thread.

use super::limits::{FIRST_LOOK_UPS, FIRST_LOOK_UPS_PER_HOST};
use zgate_store::HostPlaces;

/// One host whose users nobody can tell does not keep those of others from being asked
/// for.
pub(crate) type LookUpPlaces = HostPlaces<FIRST_LOOK_UPS, FIRST_LOOK_UPS_PER_HOST>;

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;
    use std::sync::Arc;
    use zgate_store::HostKey;

    #[test]
    fn places_are_bounded_in_total_and_for_each_host() {
        let places = Arc::new(LookUpPlaces::default());
        let host = |number: u16| {
            let [high, low] = number.to_be_bytes();
            HostKey::from(IpAddr::from([10, 0, high, low]))
        };
        let mut held: Vec<_> = std::iter::from_fn(|| places.take(host(0))).collect();
        assert_eq!(held.len(), FIRST_LOOK_UPS_PER_HOST);
        held.extend((1..=u16::MAX).map_while(|number| places.take(host(number))));
        assert_eq!(held.len(), FIRST_LOOK_UPS);
        drop(held.swap_remove(0));
        assert!(places.take(host(0)).is_some(), "a place has returned");
        drop(held);
        assert_eq!(places.taken(), 0);
        assert_eq!(places.hosts(), 0);
    }
}
