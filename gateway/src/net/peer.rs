//! The peer of a connection.

use std::net::IpAddr;

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
