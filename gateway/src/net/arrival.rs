//! A new connection that is handed to the core that serves it.

use super::connections::Slot;
use super::peer::Peer;
use std::net::{SocketAddr, TcpStream};
use zgate_fabric::Request;

/// Protocol of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// RPC: NFS and MOUNT.
    Rpc,
    /// iSCSI.
    Iscsi,
}

/// A connection request for a core.
#[derive(Debug)]
pub(crate) struct RdmaArrival {
    pub request: Box<dyn Request>,
    /// Set if the fabric can invalidate the client's memory.
    pub can_invalidate: bool,
    /// Protocol of the connection.
    pub protocol: Protocol,
    /// Local address of the listener.
    pub local: SocketAddr,
}

/// A connection that arrived.
#[derive(Debug)]
pub(crate) enum Arrival {
    /// A TCP connection.
    Tcp(Protocol, TcpStream),
    /// A request for an RDMA connection.
    Rdma(RdmaArrival),
}

/// A new connection for a core.
#[derive(Debug)]
pub(crate) struct NewConnection {
    pub arrival: Arrival,
    pub peer: Peer,
    pub slot: Slot,
}
