//! `[[interface]]`: the addresses at which clients reach this server, and which
//! networks use which.

use crate::problem::{Findings, Place};
use crate::schema::{Cidr, Config};
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};

/// Port at which clients expect NFS over RDMA (RFC 8267 §9).
pub const RDMA_PORT: u16 = 20_049;
/// Most connections that the Linux client opens for one mount.
const MAX_NCONNECT: u8 = 16;
/// Largest weight of one host.
const MAX_WEIGHT: u16 = 1000;

/// Transports that an address is for. TCP is served wherever `server.listen`
/// says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InterfaceRole {
    /// RDMA; hosts of this interface are told to use nothing else.
    Rdma,
    /// TCP alone.
    Tcp,
    /// Both; hosts of this interface are told to use RDMA while it is served.
    #[default]
    Both,
}

impl InterfaceRole {
    /// Returns whether the role includes RDMA.
    #[must_use]
    pub fn rdma(self) -> bool {
        self != Self::Tcp
    }

    /// Returns whether the role includes TCP.
    #[must_use]
    pub fn tcp(self) -> bool {
        self != Self::Rdma
    }
}

const fn one() -> u16 {
    1
}

const fn four() -> u8 {
    4
}

/// One address of this server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InterfaceConfig {
    /// The address.
    #[serde(deserialize_with = "crate::text::one")]
    pub address: IpAddr,
    /// "rdma", "tcp" or "both".
    #[serde(default)]
    pub role: InterfaceRole,
    /// Networks of the hosts that use this address.
    pub clients: Vec<Cidr>,
    /// Connections of one mount over TCP.
    #[serde(default = "four")]
    pub nconnect: u8,
    /// Weight of each of these hosts when buffers run short.
    #[serde(default = "one")]
    pub weight: u16,
}

impl Config {
    /// Addresses where NFS listens over RDMA: `rdma.listen`, or else the
    /// addresses of interfaces with that role.
    #[must_use]
    pub fn rdma_listen(&self) -> Vec<SocketAddr> {
        if !self.rdma.listen.is_empty() {
            return self.rdma.listen.clone();
        }
        let with_role = self.interfaces.iter().filter(|interface| interface.role.rdma());
        with_role.map(|interface| SocketAddr::new(interface.address, RDMA_PORT)).collect()
    }
}

/// Returns whether a listener at one address gets what is sent to another one.
pub(crate) fn covers(listener: IpAddr, address: IpAddr) -> bool {
    match listener {
        IpAddr::V6(all) if all.is_unspecified() => true,
        IpAddr::V4(all) if all.is_unspecified() => address.is_ipv4(),
        own => own == address,
    }
}

/// Adds the problems of all interfaces.
pub(crate) fn problems(config: &Config, found: &mut Findings) {
    for (index, interface) in config.interfaces.iter().enumerate() {
        let InterfaceConfig { address, role, clients, nconnect, weight } = interface;
        let place = Place::root("interface").item(index);
        let at = || place.key("address");
        if address.is_unspecified() || address.is_multicast() {
            found.add(at(), "hosts cannot use it", "name one address of this machine");
        }
        if config.interfaces[..index].iter().any(|before| before.address == *address) {
            found.add(at(), "it is listed twice", "keep one entry, with role = \"both\"");
        }
        if clients.is_empty() {
            let next = "name the networks whose hosts use it";
            found.absent(place.key("clients"), "nobody is named", next);
        }
        found.range(place.key("nconnect"), *nconnect, 1, MAX_NCONNECT);
        found.range(place.key("weight"), *weight, 1, MAX_WEIGHT);
        let covered =
            |listen: &[SocketAddr]| listen.iter().any(|other| covers(other.ip(), *address));
        if role.tcp() && !covered(&config.server.listen) {
            let next = "add it to server.listen, or role = \"rdma\" here";
            found.absent(at(), "server.listen does not cover it", next);
        }
        if role.rdma() && !config.rdma.listen.is_empty() && !covered(&config.rdma.listen) {
            let next = "add it to rdma.listen, or role = \"tcp\" here";
            found.absent(at(), "rdma.listen does not cover it", next);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::parse;
    use std::path::Path;

    fn said(text: &str) -> Result<crate::Config, String> {
        parse(text, Path::new("zgate.toml")).map_err(|error| error.to_string())
    }

    #[test]
    fn roles_say_where_rdma_listens() {
        let text = "[[interface]]\naddress = \"10.9.0.1\"\nrole = \"rdma\"\nclients = [\"10.9.0.0/24\"]\n\
                    [[interface]]\naddress = \"192.0.2.1\"\nrole = \"tcp\"\nclients = [\"192.0.2.0/24\"]\n";
        let config = said(text).unwrap();
        assert_eq!(config.rdma_listen(), ["10.9.0.1:20049".parse().unwrap()]);
        assert_eq!(config.interfaces[1].nconnect, 4);
        let named = format!("[rdma]\nlisten = [\"0.0.0.0:20050\"]\n{text}");
        assert_eq!(said(&named).unwrap().rdma_listen(), ["0.0.0.0:20050".parse().unwrap()]);
    }

    #[test]
    fn contradictions_are_told() {
        let one = |more: &str, before: &str| {
            said(&format!(
                "{before}[[interface]]\naddress = \"10.9.0.1\"\nclients = [\"10.9.0.0/24\"]\n{more}"
            ))
            .unwrap_err()
        };
        assert!(one("nconnect = 17\n", "").contains("between 1 and 16"));
        assert!(one("weight = 0\n", "").contains("between 1 and 1000"));
        assert!(one("", "[server]\nlisten = [\"192.0.2.1:2049\"]\n").contains("server.listen"));
        assert!(one("", "[rdma]\nlisten = [\"192.0.2.1:20049\"]\n").contains("rdma.listen"));
        assert!(one("role = \"fast\"\n", "").contains("rdma"));
        let twice = one("[[interface]]\naddress = \"10.9.0.1\"\nclients = [\"10.0.0.0/8\"]\n", "");
        assert!(twice.contains("twice"), "{twice}");
    }
}
