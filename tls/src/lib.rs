//! TLS of RPC connections (RFC 9289), by `rustls`: certificates, the request for
//! TLS, handshakes within their limits, and the records of a session.
//!
//! Nothing here has a socket or a clock. Bytes come and go by a [`ByteStream`]
//! that never waits; the time since a handshake was granted is an argument; the
//! time by which certificates are valid is that of their [`rustls`]
//! configuration. The gateway brings sockets and lets the kernel encrypt what is
//! sent; the simulator brings a network of its own.

mod authorities;
mod certificates;
mod handshake;
pub mod limits;
mod offer;
mod session;
mod starttls;
mod stream;

pub use authorities::{CertificateDigest, ClientCertificate};
pub use certificates::{Certificates, Material, TlsFault, Validity};
pub use handshake::{Handshake, HandshakeFault};
pub use offer::{HandshakeCounts, HandshakeSlot, TlsOffer};
pub use session::TlsSession;
pub use starttls::{StartTls, reply, request};
pub use stream::ByteStream;
