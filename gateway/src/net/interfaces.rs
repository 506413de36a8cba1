//! Interfaces of this server: addresses, the hosts that use them, and whether
//! these use RDMA.

use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};
use utoipa::ToSchema;
use zgate_config::{Cidr, InterfaceConfig};

/// One interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Interface {
    /// Address of the server.
    #[schema(value_type = String)]
    pub address: IpAddr,
    /// Networks of the hosts that use it.
    #[schema(value_type = Vec<String>)]
    pub clients: Vec<Cidr>,
    /// Port for RDMA, while RDMA is served there.
    pub rdma_port: Option<u16>,
    /// Set if RDMA is configured here, whether it is served or not.
    pub rdma_wanted: bool,
    /// Set if TCP is offered, too.
    pub tcp: bool,
    /// Connections of one mount over TCP.
    pub nconnect: u8,
    /// Weight of each of these hosts when buffers run short.
    pub weight: u16,
}

/// All interfaces.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interfaces {
    /// All interfaces, with RDMA as configured.
    all: Vec<Interface>,
}

/// Returns whether a listener at `at` serves `address`.
fn serves(at: SocketAddr, address: IpAddr) -> bool {
    at.ip().is_unspecified() || at.ip() == address
}

impl Interfaces {
    /// Derives the interfaces from the configuration; `rdma` are the addresses
    /// for RDMA.
    pub(crate) fn new(interfaces: &[InterfaceConfig], rdma: &[SocketAddr]) -> Self {
        let port_of =
            |address: IpAddr| rdma.iter().find(|at| serves(**at, address)).map(SocketAddr::port);
        let interface = |interface: &InterfaceConfig| Interface {
            address: interface.address,
            clients: interface.clients.clone(),
            rdma_port: port_of(interface.address).filter(|_| interface.role.rdma()),
            rdma_wanted: interface.role.rdma(),
            tcp: interface.role.tcp(),
            nconnect: interface.nconnect,
            weight: interface.weight,
        };
        Self { all: interfaces.iter().map(interface).collect() }
    }

    /// Returns all interfaces in the order of the configuration, with RDMA
    /// where it has a listener now.
    pub(crate) fn now(&self, listening: &[SocketAddr]) -> Vec<Interface> {
        let shown = |interface: &Interface| {
            let is_served = |port: &u16| {
                listening.iter().any(|at| at.port() == *port && serves(*at, interface.address))
            };
            Interface { rdma_port: interface.rdma_port.filter(is_served), ..interface.clone() }
        };
        self.all.iter().map(shown).collect()
    }

    /// Returns the weight of the host at `client`.
    pub(crate) fn weight_of(&self, client: IpAddr) -> u16 {
        let contains = |interface: &&Interface| {
            interface.clients.iter().any(|network| network.contains(client))
        };
        self.all.iter().find(contains).map_or(1, |interface| interface.weight)
    }

    fn addresses(&self, takes: fn(&&Interface) -> bool) -> Vec<IpAddr> {
        self.all.iter().filter(takes).map(|interface| interface.address).collect()
    }

    /// Returns the addresses with TCP.
    pub(crate) fn tcp_addresses(&self) -> Vec<IpAddr> {
        self.addresses(|interface| interface.tcp)
    }

    /// Returns the addresses with RDMA according to the configuration.
    pub(crate) fn rdma_addresses(&self) -> Vec<IpAddr> {
        self.addresses(|interface| interface.rdma_port.is_some())
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
        let served = Interfaces::new(&interfaces, &listen);
        let ips =
            |texts: &[&str]| texts.iter().map(|t| t.parse().unwrap()).collect::<Vec<IpAddr>>();
        assert_eq!(served.rdma_addresses(), ips(&["10.9.0.1", "10.9.1.1"]));
        assert_eq!(served.tcp_addresses(), ips(&["10.9.1.1", "192.0.2.1"]));
        assert_eq!(served.weight_of("10.9.0.7".parse().unwrap()), 3);
        assert_eq!(served.weight_of("192.0.2.7".parse().unwrap()), 1);
        let port = |interface: &Interface| interface.rdma_port;
        let now = served.now(&listen);
        assert_eq!(now.iter().map(port).collect::<Vec<_>>(), [Some(20049), Some(20049), None]);
        let without = served.now(&[]);
        assert!(
            without[0].rdma_wanted && without.iter().all(|interface| interface.rdma_port.is_none())
        );
        let one = served.now(&["10.9.1.1:20049".parse().unwrap()]);
        assert_eq!(one.iter().map(port).collect::<Vec<_>>(), [None, Some(20049), None]);
        assert!(Interfaces::new(&interfaces, &[]).rdma_addresses().is_empty());
    }
}
