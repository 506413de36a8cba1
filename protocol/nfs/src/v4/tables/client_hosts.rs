//! The hosts of a client.
//!
//! Without state protection (SP4_NONE) RFC 8881 lets every connection use a
//! session whose id it knows. This server also requires that it comes from one
//! of the client's own hosts: the one that registered the client, or one that
//! presented the credential of the registration. So clients with several
//! addresses (trunking, RFC 8881 §2.10.5) and clients whose address changes can
//! continue after one EXCHANGE_ID, BIND_CONN_TO_SESSION or CREATE_SESSION from
//! each address. See docs/spec-exceptions/connections-of-other-hosts.md.

use crate::limits::MAX_HOSTS_PER_CLIENT;
use std::net::IpAddr;

/// Addresses from which a client was active, at most [`MAX_HOSTS_PER_CLIENT`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientHosts(Vec<IpAddr>);

impl ClientHosts {
    /// The host that registers the client.
    #[must_use]
    pub fn new(first: IpAddr) -> Self {
        Self(vec![first.to_canonical()])
    }

    /// True if the host is one of them.
    #[must_use]
    pub fn contains(&self, host: IpAddr) -> bool {
        self.0.contains(&host.to_canonical())
    }

    /// Adds a host; if there are too many, the oldest is removed.
    pub fn add(&mut self, host: IpAddr) {
        if self.contains(host) {
            return;
        }
        if self.0.len() >= MAX_HOSTS_PER_CLIENT {
            self.0.remove(0);
        }
        self.0.push(host.to_canonical());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_of_too_many_hosts_goes() {
        let host = |last: usize| IpAddr::from([192, 0, 2, last as u8]);
        let mut hosts = ClientHosts::new("::ffff:192.0.2.0".parse().unwrap());
        assert!(hosts.contains(host(0)));
        for last in 0..=MAX_HOSTS_PER_CLIENT {
            hosts.add(host(last));
        }
        assert_eq!(hosts.0.len(), MAX_HOSTS_PER_CLIENT);
        assert!(!hosts.contains(host(0)) && hosts.contains(host(MAX_HOSTS_PER_CLIENT)));
    }
}
