//! A TCP connection, in the clear until TLS begins on it.

use super::send::Sender;
use super::stream::read_some;
use super::tls::Socket;
use super::tls::kernel::KeyUse;
use std::io;
use std::sync::OnceLock;
use tokio::net::TcpStream;
use zgate_tls::TlsSession;

/// The two ends of a connection's bytes: a socket, and TLS if it has begun.
pub(crate) struct Channel {
    pub(crate) socket: TcpStream,
    tls: OnceLock<TlsSession>,
    /// Bytes that the kernel has encrypted.
    key_use: KeyUse,
}

impl Channel {
    pub(crate) fn new(socket: TcpStream) -> Self {
        Self { socket, tls: OnceLock::new(), key_use: KeyUse::default() }
    }

    /// Continues with TLS. Nothing may be on its way in the clear.
    pub(crate) fn begin_tls(&self, session: TlsSession) {
        // A channel in TLS begins no other handshake.
        let _ = self.tls.set(session);
    }

    /// Returns the session if TLS has begun.
    pub(crate) fn tls(&self) -> Option<&TlsSession> {
        self.tls.get()
    }

    /// Returns whether TLS has begun.
    pub(crate) fn is_tls(&self) -> bool {
        self.tls.get().is_some()
    }

    /// Reads the available data without waiting. `Ok(0)`: the peer closed.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if no data is available; the socket's
    /// error; [`io::ErrorKind::InvalidData`] for bytes that are not TLS.
    pub(crate) fn read_some(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.tls.get() {
            None => read_some(&self.socket, buffer),
            Some(tls) => tls.read_some(&Socket(&self.socket), buffer),
        }
    }

    /// Returns whether there is data that the socket does not announce.
    pub(crate) fn has_more(&self) -> bool {
        self.tls.get().is_some_and(TlsSession::has_more)
    }

    /// Returns whether the kernel encrypts what is sent.
    pub(crate) fn kernel_encrypts(&self) -> bool {
        self.tls.get().is_some_and(|tls| tls.by_kernel)
    }

    /// Returns whether TLS itself has something to send.
    pub(crate) fn must_answer(&self) -> bool {
        self.tls.get().is_some_and(TlsSession::must_answer)
    }

    /// Sends as much of what is queued as the socket accepts.
    ///
    /// # Errors
    /// The socket's error.
    pub(crate) fn flush(&self, sender: &mut Sender) -> io::Result<usize> {
        match self.tls.get() {
            None => sender.flush(&self.socket),
            Some(tls) if tls.by_kernel => {
                let sent = sender.flush(&self.socket)?;
                if self.key_use.exceeds(sent) && sender.is_empty() {
                    return Err(io::Error::other("the keys of this TLS connection are used up"));
                }
                Ok(sent)
            }
            Some(tls) => sender.flush_sealed(&self.socket, tls),
        }
    }

    /// Takes leave of the peer within TLS, if the socket has room. Nothing may
    /// be queued.
    pub(crate) fn say_goodbye(&self) {
        if let Some(tls) = self.tls.get() {
            // A courtesy.
            let _ = self.socket.try_write(&tls.farewell());
        }
    }
}
