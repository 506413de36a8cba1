//! A connection to the callback service of an NFSv4.0 client, for one call and
//! what must come before it: callbacks of minor version 0 are rare.

use bytes::Bytes;
use std::io;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use zgate_rpc::record::{MARKER_BYTES, Marker};

/// Longest callback reply accepted, in bytes.
pub(crate) const MAX_CALLBACK_REPLY_BYTES: usize = 64 << 10;

// The token of a security context fits.
const _: () = assert!(zgate_rpc::gss::MAX_TOKEN_BYTES <= MAX_CALLBACK_REPLY_BYTES);

/// The connection.
#[derive(Debug)]
pub(crate) struct CallbackStream(TcpStream);

impl CallbackStream {
    /// # Errors
    /// The error of connect(2).
    pub(crate) async fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self(stream))
    }

    /// Sends a call, and returns the next record that arrives.
    ///
    /// # Errors
    /// Those of the socket, and of a record that is too long.
    pub(crate) async fn exchange(&mut self, call: &[u8]) -> io::Result<Bytes> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidData);
        let marker = Marker::whole(call.len()).ok_or_else(invalid)?;
        self.0.write_all(&[&marker[..], call].concat()).await?;
        let mut reply = Vec::new();
        loop {
            let mut raw = [0; MARKER_BYTES];
            self.0.read_exact(&mut raw).await?;
            let marker = Marker::parse(raw);
            let at = reply.len();
            if at + marker.len > MAX_CALLBACK_REPLY_BYTES {
                return Err(invalid());
            }
            reply.resize(at + marker.len, 0);
            self.0.read_exact(&mut reply[at..]).await?;
            if marker.last {
                return Ok(Bytes::from(reply));
            }
        }
    }
}
