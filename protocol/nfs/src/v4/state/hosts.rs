//! The hosts of a client.
//!
//! Without state protection (SP4_NONE) RFC 8881 lets every connection use a
//! session whose id it knows. This server also requires that it comes from one
//! of the client's own hosts: the one that registered the client, or one that
//! presented the credential of the registration. So clients with several
//! addresses (trunking, RFC 8881 §2.10.5) and clients whose address changes can
//! continue after one EXCHANGE_ID, BIND_CONN_TO_SESSION or CREATE_SESSION from
//! each address. See docs/spec-exceptions/connections-of-other-hosts.md.

use super::State;
use super::session::Session;
use super::tables::{Client, Principal, Tables};
use crate::limits::MAX_HOSTS_PER_CLIENT;
use crate::runtime::Call;
use std::net::IpAddr;
use zgate_nfs_wire::v4::{ClientId, Status};

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

impl Client {
    /// Returns whether a call may act for the client: it comes from one of the
    /// client's hosts, or it presents the credential of the client's
    /// registration. In the second case its host is added to the client's
    /// hosts.
    pub(crate) fn admits(&mut self, call: &Call) -> bool {
        let own = self.hosts.contains(call.peer.address);
        if !own && self.principal == Principal::of(&call.credential) {
            self.hosts.add(call.peer.address);
            return true;
        }
        own
    }
}

impl Tables {
    /// The client of minor version 1 and above with this id, if the call may
    /// act for it; otherwise `refused`.
    pub(crate) fn client_of_caller(
        &mut self,
        id: ClientId,
        call: &Call,
        refused: Status,
    ) -> Result<&mut Client, Status> {
        let client = self.clients.get_mut(&id).filter(|client| !client.minor_zero);
        let client = client.ok_or(Status::StaleClientid)?;
        if client.admits(call) { Ok(client) } else { Err(refused) }
    }
}

impl State {
    /// Returns whether a call over a connection that is not bound to the
    /// session yet may use it: the session's client admits it.
    pub(crate) fn may_use(&self, session: &Session, call: &Call) -> bool {
        let mut tables = self.lock();
        tables.clients.get_mut(&session.client).is_some_and(|client| client.admits(call))
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
