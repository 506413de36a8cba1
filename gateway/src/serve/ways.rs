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
    all: Vec<Way>,
    rdma: Vec<SocketAddr>,
}

impl Ways {
    /// From the configuration; `rdma` is where RDMA is served, `None` when
    /// there is no device.
    pub(crate) fn new(interfaces: &[InterfaceConfig], rdma: Option<&[SocketAddr]>) -> Self {
        let rdma = rdma.unwrap_or_default().to_vec();
        let port_of = |address: IpAddr| {
            let serves = |at: &&SocketAddr| at.ip().is_unspecified() || at.ip() == address;
            rdma.iter().find(serves).map(SocketAddr::port)
        };
        let way = |interface: &InterfaceConfig| Way {
            address: interface.address,
            clients: interface.clients.clone(),
            rdma_port: port_of(interface.address).filter(|_| interface.role.rdma()),
            rdma_wanted: interface.role.rdma(),
            tcp: interface.role.tcp(),
            nconnect: interface.nconnect,
            weight: interface.weight,
        };
        Self { all: interfaces.iter().map(way).collect(), rdma }
    }

    /// All, in the order of the configuration.
    pub(crate) fn all(&self) -> &[Way] {
        &self.all
    }

    /// Where RDMA is served.
    pub(crate) fn rdma_addresses(&self) -> &[SocketAddr] {
        &self.rdma
    }

    /// How much the host at `client` counts beside others.
    pub(crate) fn weight_of(&self, client: IpAddr) -> u16 {
        let contains = |way: &&Way| way.clients.iter().any(|network| network.contains(client));
        self.all.iter().find(contains).map_or(1, |way| way.weight)
    }

    /// What clients are told of other addresses.
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
        let served = Ways::new(&interfaces, Some(&listen));
        let ips =
            |texts: &[&str]| texts.iter().map(|t| t.parse().unwrap()).collect::<Vec<IpAddr>>();
        assert_eq!(served.trunks().rdma, ips(&["10.9.0.1", "10.9.1.1"]));
        assert_eq!(served.trunks().tcp, ips(&["10.9.1.1", "192.0.2.1"]));
        assert_eq!(served.weight_of("10.9.0.7".parse().unwrap()), 3);
        assert_eq!(served.weight_of("192.0.2.7".parse().unwrap()), 1);
        let without = Ways::new(&interfaces, None);
        assert!(without.trunks().rdma.is_empty());
        assert!(without.all()[0].rdma_wanted && without.all()[0].rdma_port.is_none());
    }
}
