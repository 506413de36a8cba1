//! TLS of TCP connections: what `zgate-tls` leaves to the gateway. Its handshakes
//! and sessions on sockets, and records that the kernel makes. Knows no RPC: the
//! protocol above begins a handshake when the peer has asked for it.

pub(crate) mod kernel;
mod socket;

pub(crate) use socket::Socket;
