//! One connection with TLS: its bytes on their way, and the client's end: the
//! request for TLS, rustls, records.

use super::next_record;
use super::tap::Tap;
use bytes::{Bytes, BytesMut};
use rustls::{ClientConfig, ClientConnection};
use std::collections::VecDeque;
use std::io::{self, Read};
use std::sync::Arc;
use tokio::sync::oneshot;
use zgate_nfs_wire::PROGRAM;
use zgate_rpc::CallHeader;
use zgate_rpc::auth::{AUTH_TLS, OpaqueAuth};
use zgate_rpc::record::Marker;
use zgate_xdr::{Encode, Encoder};

/// Transaction id of a request for TLS.
pub(super) const PROBE_XID: u32 = 0x7154_0001;
/// Messages of a client in a handshake.
const FLIGHTS: u32 = 2;

/// One direction of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Up,
    Down,
}

/// Bytes on their way.
#[derive(Default)]
pub(super) struct Way {
    /// Pieces in order; an absent one is the end.
    pub(super) pieces: VecDeque<Option<Bytes>>,
    pub(super) last_arrival: u64,
    /// Bytes that were not read yet.
    pub(super) arrived: BytesMut,
    pub(super) is_closed: bool,
    /// Records that were sent under TLS and not taken by the other side.
    pub(super) promised: VecDeque<Bytes>,
}

/// Part of a connection's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Probe,
    Handshake,
    Data,
}

/// End of a client's handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Readiness {
    Secure,
    /// Somebody answered that there is no TLS.
    Downgraded,
}

/// TLS of a connection, on its way and at the client.
pub(super) struct Secure {
    config: Arc<ClientConfig>,
    pub(super) up: Way,
    pub(super) down: Way,
    /// Absent: in the clear.
    pub(super) tls: Option<Box<ClientConnection>>,
    received: BytesMut,
    pub(super) ready: Option<oneshot::Sender<Readiness>>,
    /// Messages of the client's handshake that were sent.
    flights: u32,
    pub(super) tap: Option<Tap>,
}

impl Secure {
    pub(super) fn new(config: Arc<ClientConfig>, tap: Option<Tap>) -> Self {
        let (up, down, received) = Default::default();
        Self { config, up, down, tls: None, received, ready: None, flights: 0, tap }
    }

    pub(super) fn way(&mut self, direction: Direction) -> &mut Way {
        match direction {
            Direction::Up => &mut self.up,
            Direction::Down => &mut self.down,
        }
    }

    /// Part of its life, as its bytes show; counts the client's messages.
    pub(super) fn phase(&mut self, direction: Direction) -> Phase {
        let Some(tls) = &self.tls else { return Phase::Probe };
        let is_over = match direction {
            Direction::Up => self.flights >= FLIGHTS,
            Direction::Down => !tls.is_handshaking(),
        };
        if is_over {
            return Phase::Data;
        }
        self.flights += u32::from(direction == Direction::Up);
        Phase::Handshake
    }

    /// The client has sent its handshake.
    pub(super) fn is_complete(&self) -> bool {
        self.flights >= FLIGHTS
    }

    /// The connection ends for the client. `survives`: what it has sent arrives.
    pub(super) fn end(&mut self, survives: bool) {
        self.ready = None;
        self.tap = None;
        if !survives {
            self.up.pieces.clear();
        }
    }

    /// Takes what has arrived at the client.
    ///
    /// # Errors
    /// If it is not the server's.
    pub(super) fn take(&mut self) -> Result<Vec<Bytes>, ()> {
        let arrived = self.down.arrived.split();
        let Some(tls) = &mut self.tls else {
            self.received.extend_from_slice(&arrived);
            return self.take_in_the_clear();
        };
        let mut rest = &arrived[..];
        while !rest.is_empty() {
            tls.read_tls(&mut rest).map_err(drop)?;
            tls.process_new_packets().map_err(drop)?;
            let mut buffer = [0; 4096];
            loop {
                match tls.reader().read(&mut buffer) {
                    Ok(0) => return Err(()),
                    Ok(got) => self.received.extend_from_slice(&buffer[..got]),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(_) => return Err(()),
                }
            }
        }
        if !tls.is_handshaking()
            && let Some(ready) = self.ready.take()
        {
            // The client may have given up.
            let _ = ready.send(Readiness::Secure);
        }
        Ok(std::iter::from_fn(|| next_record(&mut self.received)).collect())
    }

    /// The reply to the request for TLS, or to a call after a downgrade.
    fn take_in_the_clear(&mut self) -> Result<Vec<Bytes>, ()> {
        let records: Vec<Bytes> = std::iter::from_fn(|| next_record(&mut self.received)).collect();
        let expected = zgate_tls::reply(PROBE_XID).flatten().unwrap_or_default();
        match records.first() {
            None => return Ok(records),
            Some(first) if *first != expected => {
                let Some(ready) = self.ready.take() else { return Ok(records) };
                // The client may have given up.
                let _ = ready.send(Readiness::Downgraded);
                return Ok(Vec::new());
            }
            Some(_) => {}
        }
        if records.len() > 1 || !self.received.is_empty() {
            // Somebody has added it.
            return Err(());
        }
        let server = "server".try_into().map_err(drop)?;
        let tls = ClientConnection::new(Arc::clone(&self.config), server).map_err(drop)?;
        self.tls = Some(Box::new(tls));
        Ok(Vec::new())
    }

    /// Takes what the client's TLS has to send.
    pub(super) fn unsent(&mut self) -> Bytes {
        let mut bytes = Vec::new();
        if let Some(tls) = &mut self.tls {
            while tls.wants_write() {
                // Writing to a vector does not fail.
                let _ = tls.write_tls(&mut bytes);
            }
        }
        bytes.into()
    }
}

/// A record with its marker.
pub(super) fn framed(record: &[u8]) -> Vec<u8> {
    let marker = Marker::whole(record.len()).unwrap_or_default();
    [&marker[..], record].concat()
}

/// A request for TLS (RFC 9289 §4.1).
pub(super) fn probe() -> Bytes {
    let credential = OpaqueAuth { flavor: AUTH_TLS, ..OpaqueAuth::none() };
    let (verifier, program) = (OpaqueAuth::none(), PROGRAM);
    let header =
        CallHeader { xid: PROBE_XID, program, version: 4, procedure: 0, credential, verifier };
    let mut e = Encoder::new();
    header.encode(&mut e);
    e.finish().flatten().unwrap_or_default()
}
