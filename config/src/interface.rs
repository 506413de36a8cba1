//! `[[interface]]`: the addresses at which clients reach this server, and which
//! networks use which.

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

/// Returns whether one of the listening addresses covers `ip`.
fn covers(listen: &[SocketAddr], ip: IpAddr) -> bool {
    let covers = |at: &SocketAddr| match (at.ip(), ip) {
        (IpAddr::V6(all), _) if all.is_unspecified() => true,
        (IpAddr::V4(all), IpAddr::V4(_)) if all.is_unspecified() => true,
        (own, ip) => own == ip,
    };
    listen.iter().any(covers)
}

/// Adds the problems of all interfaces.
pub(crate) fn problems(config: &Config, found: &mut Vec<String>) {
    for (index, interface) in config.interfaces.iter().enumerate() {
        let InterfaceConfig { address, role, clients, nconnect, weight } = interface;
        let mut say = |text: &str| found.push(format!("interface {address}: {text}"));
        if address.is_unspecified() || address.is_multicast() {
            say("an address that clients can name is needed");
        }
        if config.interfaces[..index].iter().any(|before| before.address == *address) {
            say("is listed twice; keep one, with role = \"both\"");
        }
        if clients.is_empty() {
            say("clients is empty; name the networks whose hosts use it");
        }
        if !(1..=MAX_NCONNECT).contains(nconnect) {
            say(&format!("nconnect = {nconnect}: must be between 1 and {MAX_NCONNECT}"));
        }
        if !(1..=MAX_WEIGHT).contains(weight) {
            say(&format!("weight = {weight}: must be between 1 and {MAX_WEIGHT}"));
        }
        if role.tcp() && !covers(&config.server.listen, *address) {
            say("server.listen does not cover it; add it there, or role = \"rdma\"");
        }
        if role.rdma() && !config.rdma.listen.is_empty() && !covers(&config.rdma.listen, *address) {
            say("rdma.listen does not cover it; add it there, or role = \"tcp\"");
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
