//! TLS on TCP connections (RFC 9289), by `rustls`, in user space: certificates,
//! handshakes, and the records of a connection. Knows no RPC: the protocol above
//! begins a handshake when the peer has asked for it.

pub(crate) mod authorities;
pub(crate) mod certificates;
pub(crate) mod handshake;
mod kernel;
pub(crate) mod offer;
pub(crate) mod session;
