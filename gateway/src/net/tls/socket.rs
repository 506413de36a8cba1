//! Sockets, sessions and the ends of handshakes, as the parts of TLS see each other.

use crate::net::connection_end::{Closed, ConnectionEnd, Misbehaved};
use crate::net::send::Seal;
use crate::net::stream::read_some;
use bytes::Bytes;
use std::io::{self, IoSlice};
use tokio::net::TcpStream;
use zgate_tls::{ByteStream, HandshakeFault, TlsSession};

/// A socket as a stream of bytes.
pub(crate) struct Socket<'a>(pub(crate) &'a TcpStream);

impl ByteStream for Socket<'_> {
    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        read_some(self.0, buffer)
    }

    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }
}

impl Seal for TlsSession {
    fn seal(&self, plain: &[IoSlice<'_>]) -> io::Result<(usize, Bytes)> {
        TlsSession::seal(self, plain)
    }
}

impl From<HandshakeFault> for ConnectionEnd {
    fn from(fault: HandshakeFault) -> Self {
        match fault {
            HandshakeFault::Closed => Closed::ByPeer.into(),
            HandshakeFault::TooLong => Misbehaved::Tls(fault.to_string().into()).into(),
            HandshakeFault::Stream(error) => error.into(),
        }
    }
}
