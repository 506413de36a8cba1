//! The ways from clients to this server: addresses, the hosts that use them,
//! and whether these come over RDMA.

use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};
use zgate_config::{Cidr, InterfaceConfig};
use zgate_nfs::v4::attrs::Trunks;

/// One way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Way {
    /// The server's address.
    pub address: IpAddr,
    /// Hosts that take it.
    pub clients: Vec<Cidr>,
    /// The port of RDMA, while it is served there.
    pub rdma_port: Option<u16>,
    /// RDMA is configured here, whether it is served or not.
    pub rdma_wanted: bool,
    /// Whether TCP is offered, too.
    pub tcp: bool,
    /// Connections of one mount over TCP.
    pub nconnect: u8,
    /// How much each of these hosts counts when buffers run short.
    pub weight: u16,
}

/// All of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ways {
    /// With RDMA as it is configured.
    all: Vec<Way>,
}

/// Whether a listener at `at` serves `address`.
fn serves(at: SocketAddr, address: IpAddr) -> bool {
    at.ip().is_unspecified() || at.ip() == address
}

impl Ways {
    /// From the configuration; `rdma` is where RDMA is to be served.
    pub(crate) fn new(interfaces: &[InterfaceConfig], rdma: &[SocketAddr]) -> Self {
        let port_of =
            |address: IpAddr| rdma.iter().find(|at| serves(**at, address)).map(SocketAddr::port);
        let way = |interface: &InterfaceConfig| Way {
            address: interface.address,
            clients: interface.clients.clone(),
            rdma_port: port_of(interface.address).filter(|_| interface.role.rdma()),
            rdma_wanted: interface.role.rdma(),
            tcp: interface.role.tcp(),
            nconnect: interface.nconnect,
            weight: interface.weight,
        };
        Self { all: interfaces.iter().map(way).collect() }
    }

    /// All, in the order of the configuration, with RDMA where it is listened
    /// for now.
    pub(crate) fn now(&self, listening: &[SocketAddr]) -> Vec<Way> {
        let shown = |way: &Way| {
            let is_served = |port: &u16| {
                listening.iter().any(|at| at.port() == *port && serves(*at, way.address))
            };
            Way { rdma_port: way.rdma_port.filter(is_served), ..way.clone() }
        };
        self.all.iter().map(shown).collect()
    }

    /// How much the host at `client` counts beside others.
    pub(crate) fn weight_of(&self, client: IpAddr) -> u16 {
        let contains = |way: &&Way| way.clients.iter().any(|network| network.contains(client));
        self.all.iter().find(contains).map_or(1, |way| way.weight)
    }

    /// What clients are told of other addresses. Who comes over RDMA is told
    /// all that have it by the configuration: a device may be away for a while.
    pub(crate) fn trunks(&self) -> Trunks {
        let addresses = |takes: fn(&&Way) -> bool| {
            self.all.iter().filter(takes).map(|way| way.address).collect::<Vec<_>>()
        };
        Trunks { tcp: addresses(|way| way.tcp), rdma: addresses(|way| way.rdma_port.is_some()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zgate_config::InterfaceRole;

    fn interface(address: &str, role: InterfaceRole) -> InterfaceConfig {
        let clients = vec!["10.0.0.0/8".parse().unwrap()];
        InterfaceConfig { address: address.parse().unwrap(), role, clients, nconnect: 4, weight: 3 }
    }

    #[test]
    fn rdma_is_offered_where_it_is_served() {
        let interfaces = [
            interface("10.9.0.1", InterfaceRole::Rdma),
            interface("10.9.1.1", InterfaceRole::Both),
            interface("192.0.2.1", InterfaceRole::Tcp),
        ];
        let listen = ["0.0.0.0:20049".parse().unwrap()];
        let served = Ways::new(&interfaces, &listen);
        let ips =
            |texts: &[&str]| texts.iter().map(|t| t.parse().unwrap()).collect::<Vec<IpAddr>>();
        assert_eq!(served.trunks().rdma, ips(&["10.9.0.1", "10.9.1.1"]));
        assert_eq!(served.trunks().tcp, ips(&["10.9.1.1", "192.0.2.1"]));
        assert_eq!(served.weight_of("10.9.0.7".parse().unwrap()), 3);
        assert_eq!(served.weight_of("192.0.2.7".parse().unwrap()), 1);
        let port = |way: &Way| way.rdma_port;
        let now = served.now(&listen);
        assert_eq!(now.iter().map(port).collect::<Vec<_>>(), [Some(20049), Some(20049), None]);
        let without = served.now(&[]);
        assert!(without[0].rdma_wanted && without.iter().all(|way| way.rdma_port.is_none()));
        let one = served.now(&["10.9.1.1:20049".parse().unwrap()]);
        assert_eq!(one.iter().map(port).collect::<Vec<_>>(), [None, Some(20049), None]);
        assert!(Ways::new(&interfaces, &[]).trunks().rdma.is_empty());
    }
}
