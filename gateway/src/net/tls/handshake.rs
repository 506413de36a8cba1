//! One handshake, within its limits.

use super::certificates::Certificates;
use super::kernel::{self, SendSecret};
use super::offer::HandshakeSlot;
use super::session::{Records, TlsSession};
use crate::net::connection_end::{Closed, ConnectionEnd, Misbehaved, Slow};
use crate::net::limits::{HANDSHAKE_PATIENCE, MAX_HANDSHAKE_BYTES};
use rustls::{ServerConfig, ServerConnection};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::Instant;

/// A handshake in progress.
pub(crate) struct Handshake {
    records: Records,
    unsent: Vec<u8>,
    received_bytes: usize,
    deadline: Instant,
    slot: HandshakeSlot,
    certificates: Arc<Certificates>,
    /// Secret of what is sent, if the kernel is to encrypt it.
    secret: Option<Arc<SendSecret>>,
}

impl Handshake {
    /// Waits for the peer's first message.
    ///
    /// # Errors
    /// If the certificates cannot be used, which reading them has excluded.
    pub(crate) fn new(
        certificates: Arc<Certificates>,
        slot: HandshakeSlot,
    ) -> Result<Self, ConnectionEnd> {
        let secret = certificates.kernel_records.then(Arc::<SendSecret>::default);
        let config = match &secret {
            None => Arc::clone(&certificates.config),
            Some(secret) => {
                let mut config = ServerConfig::clone(&certificates.config);
                config.key_log = Arc::<SendSecret>::clone(secret);
                Arc::new(config)
            }
        };
        let tls = ServerConnection::new(config).map_err(ConnectionEnd::framing)?;
        Ok(Self {
            records: Records::new(tls),
            unsent: Vec::new(),
            received_bytes: 0,
            deadline: Instant::now() + HANDSHAKE_PATIENCE,
            slot,
            certificates,
            secret,
        })
    }

    /// Returns whether a message waits for room in the socket.
    pub(crate) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Returns the time that is left.
    pub(crate) fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// Checks the time limit.
    pub(crate) fn check(&self) -> Result<(), Slow> {
        if self.left().is_zero() { Err(Slow::Handshake) } else { Ok(()) }
    }

    /// Makes all progress that is possible without waiting; returns whether the
    /// handshake is complete.
    ///
    /// # Errors
    /// The reason for which the connection must end. The peer has its alert
    /// then, if its socket accepts one.
    pub(crate) fn advance(&mut self, stream: &TcpStream) -> Result<bool, ConnectionEnd> {
        loop {
            self.send(stream)?;
            if !self.records.tls.is_handshaking() {
                return Ok(self.unsent.is_empty());
            }
            if !self.records.has_received() {
                let most = MAX_HANDSHAKE_BYTES - self.received_bytes;
                if most == 0 {
                    return Err(Misbehaved::Tls("the handshake is too long".into()).into());
                }
                match self.records.receive(stream, most) {
                    Ok(0) => return Err(Closed::ByPeer.into()),
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

    fn send(&mut self, stream: &TcpStream) -> io::Result<()> {
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

    /// Returns the session of a complete handshake, and the slot: what else has
    /// to be known of the client is bounded with its handshake. From now on the
    /// kernel encrypts what is sent, if it can.
    pub(crate) fn finish(mut self, socket: &TcpStream) -> (TlsSession, HandshakeSlot) {
        let by_kernel = self.hand_over(socket);
        self.slot.complete(by_kernel);
        (TlsSession::new(self.records, &self.certificates, by_kernel), self.slot)
    }

    fn hand_over(&self, socket: &TcpStream) -> bool {
        let tls = &self.records.tls;
        // Nothing of TLS may wait to be sent: it would come behind the kernel's keys.
        let (Some(secret), Some(suite), false) =
            (&self.secret, tls.negotiated_cipher_suite(), tls.wants_write())
        else {
            return false;
        };
        match kernel::begin(socket, suite, secret) {
            Ok(()) => true,
            Err(error) => {
                tracing::debug!(%error, "TLS: the kernel makes no records");
                false
            }
        }
    }
}
