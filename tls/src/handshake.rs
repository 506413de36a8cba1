//! One handshake, within its limits.

use crate::certificates::Certificates;
use crate::limits::{HANDSHAKE_PATIENCE, MAX_HANDSHAKE_BYTES};
use crate::offer::HandshakeSlot;
use crate::session::{Records, TlsSession};
use crate::stream::ByteStream;
use rustls::{KeyLog, ServerConfig, ServerConnection, SupportedCipherSuite};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;

/// Reason for which a handshake ends its connection.
#[derive(Debug, Error)]
pub enum HandshakeFault {
    /// The peer closed the connection.
    #[error("closed by the peer")]
    Closed,
    /// The peer has sent more than any handshake needs.
    #[error("the handshake is too long")]
    TooLong,
    /// The stream's error; [`io::ErrorKind::InvalidData`] for a violation of TLS, or a
    /// certificate that is refused.
    #[error(transparent)]
    Stream(#[from] io::Error),
}

/// A handshake in progress.
pub struct Handshake {
    records: Records,
    unsent: Vec<u8>,
    received_bytes: usize,
    /// End of its time, by the clock of its caller.
    deadline: Duration,
    slot: HandshakeSlot,
    certificates: Arc<Certificates>,
}

impl Handshake {
    /// Waits for the peer's first message. `now` is a moment of a monotonic clock;
    /// `key_log` is told the secrets of the connection.
    ///
    /// # Errors
    /// If the certificates cannot be used, which reading them has excluded.
    pub fn new(
        certificates: Arc<Certificates>,
        slot: HandshakeSlot,
        key_log: Option<Arc<dyn KeyLog>>,
        now: Duration,
    ) -> Result<Self, rustls::Error> {
        let config = match key_log {
            None => Arc::clone(&certificates.config),
            Some(key_log) => {
                let mut config = ServerConfig::clone(&certificates.config);
                config.key_log = key_log;
                Arc::new(config)
            }
        };
        let records = Records::new(ServerConnection::new(config)?);
        let deadline = now + HANDSHAKE_PATIENCE;
        Ok(Self { records, unsent: Vec::new(), received_bytes: 0, deadline, slot, certificates })
    }

    /// Returns whether a message waits for room in the stream.
    #[must_use]
    pub fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Returns the time that is left at a moment of the clock of [`Self::new`].
    #[must_use]
    pub fn left(&self, now: Duration) -> Duration {
        self.deadline.saturating_sub(now)
    }

    /// Makes all progress that is possible without waiting; returns whether the
    /// handshake is complete.
    ///
    /// # Errors
    /// The reason for which the connection must end. The peer has its alert
    /// then, if its stream accepts one.
    pub fn advance(&mut self, stream: &impl ByteStream) -> Result<bool, HandshakeFault> {
        loop {
            self.send(stream)?;
            if !self.records.tls.is_handshaking() {
                return Ok(self.unsent.is_empty());
            }
            if !self.records.has_received() {
                let most = MAX_HANDSHAKE_BYTES - self.received_bytes;
                if most == 0 {
                    return Err(HandshakeFault::TooLong);
                }
                match self.records.receive(stream, most) {
                    Ok(0) => return Err(HandshakeFault::Closed),
                    Ok(got) => self.received_bytes += got,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                    Err(error) => return Err(error.into()),
                }
            }
            if let Err(error) = self.records.process() {
                // The alert is a courtesy.
                let _ = self.send(stream);
                return Err(error.into());
            }
        }
    }

    fn send(&mut self, stream: &impl ByteStream) -> io::Result<()> {
        self.unsent.append(&mut self.records.take_ciphertext()?);
        while !self.unsent.is_empty() {
            match stream.try_write(&self.unsent) {
                Ok(sent) => drop(self.unsent.drain(..sent)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Returns the cipher suite, unless something of TLS waits to be sent: it would
    /// come behind the keys of whoever encrypts from now on.
    #[must_use]
    pub fn suite_to_hand_over(&self) -> Option<SupportedCipherSuite> {
        let tls = &self.records.tls;
        tls.negotiated_cipher_suite().filter(|_| !tls.wants_write())
    }

    /// Returns the session of a complete handshake, and the slot: what else has
    /// to be known of the client is bounded with its handshake. `by_kernel`: from
    /// now on the kernel encrypts what is sent.
    #[must_use]
    pub fn finish(mut self, by_kernel: bool) -> (TlsSession, HandshakeSlot) {
        self.slot.complete(by_kernel);
        (TlsSession::new(self.records, &self.certificates, by_kernel), self.slot)
    }
}
