//! The peer of a connection.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Number of a connection, never reused while the gateway runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ConnectionId(pub u64);

/// Peer of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    /// Address of the peer; IPv4-mapped addresses as IPv4.
    pub address: IpAddr,
    pub port: u16,
    pub connection: ConnectionId,
    /// Set for RDMA, clear for TCP.
    pub rdma: bool,
}

/// Ends of a TCP connection. IPv4-mapped addresses count as IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TcpEnds {
    /// Address of the gateway.
    pub local: SocketAddr,
    /// Address of the peer.
    pub peer: SocketAddr,
}

impl TcpEnds {
    /// Returns the ends of a connection between these addresses. `None` for those of one link
    /// (fe80::/10), which mean nothing without its interface, and for those that are no host's.
    pub(crate) fn new(local: SocketAddr, peer: SocketAddr) -> Option<Self> {
        let plain = |at: SocketAddr| SocketAddr::new(at.ip().to_canonical(), at.port());
        let (local, peer) = (plain(local), plain(peer));
        let is_whole = local.is_ipv4() == peer.is_ipv4() && is_of_host(local) && is_of_host(peer);
        is_whole.then_some(Self { local, peer })
    }

    /// Returns the ends in a text that [`fmt::Display`] has made.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (local, peer) = text.split_once(' ')?;
        Self::new(local.parse().ok()?, peer.parse().ok()?)
    }
}

/// Returns whether one host may have the address, whatever the interface.
fn is_of_host(at: SocketAddr) -> bool {
    let ip = at.ip();
    let is_of_link = matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
    let is_of_many = ip.is_multicast() || ip == Ipv4Addr::BROADCAST;
    !is_of_link && !is_of_many && !ip.is_unspecified() && at.port() != 0
}

impl fmt::Display for TcpEnds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.local, self.peer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_of_a_connection_are_read_as_they_are_written() {
        let ends =
            |local: &str, peer: &str| TcpEnds::new(local.parse().unwrap(), peer.parse().unwrap());
        for (local, peer, text) in [
            ("10.0.0.1:2049", "10.0.0.7:700", "10.0.0.1:2049 10.0.0.7:700"),
            ("[::ffff:10.0.0.1]:2049", "[::ffff:10.0.0.7]:700", "10.0.0.1:2049 10.0.0.7:700"),
            ("[fd00::1]:3260", "[fd00::7]:40000", "[fd00::1]:3260 [fd00::7]:40000"),
        ] {
            let ends = ends(local, peer).unwrap();
            assert_eq!(ends.to_string(), text);
            assert_eq!(TcpEnds::parse(text), Some(ends));
        }
        assert_eq!(ends("[fe80::1%2]:2049", "[fe80::7%2]:700"), None);
        for text in ["", "10.0.0.1:2049", "10.0.0.1:2049 10.0.0.7", "10.0.0.1:1 [fd00::7]:1"] {
            assert_eq!(TcpEnds::parse(text), None, "{text}");
        }
    }

    #[test]
    fn ends_at_what_is_no_host_are_no_connection() {
        for peer in ["224.0.0.1:700", "255.255.255.255:700", "0.0.0.0:700", "10.0.0.7:0"] {
            assert_eq!(TcpEnds::parse(&format!("10.0.0.1:2049 {peer}")), None, "{peer}");
        }
        for peer in ["[ff02::1]:700", "[::]:700", "[fd00::7]:0"] {
            assert_eq!(TcpEnds::parse(&format!("[fd00::1]:2049 {peer}")), None, "{peer}");
        }
        assert_eq!(TcpEnds::parse("0.0.0.0:2049 10.0.0.7:700"), None);
    }
}
