//! One handshake, within its limits.

use super::certificates::Certificates;
use super::offer::HandshakeSlot;
use super::session::{Records, TlsSession};
use crate::net::connection_end::{Closed, ConnectionEnd, Misbehaved, Slow};
use crate::net::limits::{HANDSHAKE_PATIENCE, MAX_HANDSHAKE_BYTES};
use rustls::ServerConnection;
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
        let tls = ServerConnection::new(Arc::clone(&certificates.config))
            .map_err(ConnectionEnd::framing)?;
        Ok(Self {
            records: Records::new(tls),
            unsent: Vec::new(),
            received_bytes: 0,
            deadline: Instant::now() + HANDSHAKE_PATIENCE,
            slot,
            certificates,
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
    /// to be known of the client is bounded with its handshake.
    pub(crate) fn finish(mut self) -> (TlsSession, HandshakeSlot) {
        self.slot.complete();
        (TlsSession::new(self.records, &self.certificates), self.slot)
    }
}
