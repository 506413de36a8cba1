//! Bounds on tokens that are being worked on, by host.

use super::limits::{MAX_ESTABLISHING, MAX_ESTABLISHING_PER_HOST};
use zgate_store::HostPlaces;

/// Tokens that are being worked on.
pub(super) type TokenSlots = HostPlaces<MAX_ESTABLISHING, MAX_ESTABLISHING_PER_HOST>;

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;
    use std::sync::Arc;
    use zgate_store::HostKey;

    #[test]
    fn a_host_cannot_take_all_slots() {
        let all = Arc::new(TokenSlots::default());
        let host = |last: u8| HostKey::from(IpAddr::from([10, 0, 0, last]));
        let of = |last| std::iter::from_fn(|| all.take(host(last))).collect::<Vec<_>>();
        let one = of(1);
        assert_eq!(one.len(), MAX_ESTABLISHING_PER_HOST);
        let others: Vec<_> = (2..200).map(of).collect();
        let total: usize = others.iter().map(Vec::len).sum::<usize>() + one.len();
        assert_eq!(total, MAX_ESTABLISHING);
        drop(one);
        assert!(all.take(host(250)).is_some());
        drop(others);
        assert!(all.hosts() == 0 && all.taken() == 0);
    }
}
