//! One connection, one thread, no runtime: for load generators, tests and small
//! tools. Requests may be pipelined: send several, then receive.

use crate::compound::{Ops, Results};
use crate::error::ClientError;
use crate::session::{SessionRequest, decode, encode};
use bytes::Bytes;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use zgate_nfs_wire::v4::op::create_session::{self, ChannelAttrs};
use zgate_nfs_wire::v4::op::{exchange_id, sequence};
use zgate_nfs_wire::v4::{ClientId, OpNum, SessionId, Status, VERSION};
use zgate_rpc::auth::OpaqueAuth;
use zgate_rpc::record::{MARKER_BYTES, Marker};
use zgate_rpc::{CallHeader, Credential};
use zgate_store::Payload;
use zgate_xdr::{Encode, Encoder, Message, Segment};

/// Largest reply accepted, in bytes.
const MAX_REPLY_BYTES: usize = 8 << 20;
/// Bytes received at once.
const RECEIVE_BYTES: usize = 256 << 10;

/// A TCP connection that carries RPC records.
#[derive(Debug)]
pub struct Connection {
    address: SocketAddr,
    stream: TcpStream,
    xid: u32,
    outgoing: Vec<u8>,
    incoming: Vec<u8>,
    /// Start of the bytes `incoming[start..end]` that were received but not
    /// returned yet.
    start: usize,
    end: usize,
}

impl Connection {
    /// Connects; a server without an answer for `patience` is an error.
    ///
    /// # Errors
    /// [`ClientError::Transport`].
    pub fn connect(address: SocketAddr, patience: Duration) -> Result<Self, ClientError> {
        let failed = |source| ClientError::Transport { address: address.to_string(), source };
        Self::over(TcpStream::connect(address).map_err(failed)?, address, patience)
    }

    /// Uses a stream that is connected already.
    ///
    /// # Errors
    /// [`ClientError::Transport`].
    pub fn over(
        stream: TcpStream,
        address: SocketAddr,
        patience: Duration,
    ) -> Result<Self, ClientError> {
        let failed = |source| ClientError::Transport { address: address.to_string(), source };
        stream.set_nodelay(true).map_err(failed)?;
        stream.set_read_timeout(Some(patience)).map_err(failed)?;
        // Two runs of one program must not look like retries of each other.
        let xid = std::process::id().wrapping_mul(0x9e37_79b9) ^ u32::from(address.port());
        Ok(Self {
            address,
            stream,
            xid,
            outgoing: Vec::new(),
            incoming: vec![0; RECEIVE_BYTES],
            start: 0,
            end: 0,
        })
    }

    fn failed(&self, source: io::Error) -> ClientError {
        ClientError::Transport { address: self.address.to_string(), source }
    }

    /// Returns a transaction id not used before on this connection.
    pub fn next_xid(&mut self) -> u32 {
        self.xid = self.xid.wrapping_add(1);
        self.xid
    }

    /// Queues a call for the next [`Self::flush`].
    ///
    /// # Errors
    /// [`ClientError::Garbled`] for a message that a client cannot send.
    pub fn queue(&mut self, message: &Message) -> Result<(), ClientError> {
        let marker = Marker::whole(message.len()).ok_or(ClientError::Garbled("the call"))?;
        self.outgoing.extend_from_slice(&marker);
        for segment in &message.segments {
            match segment {
                Segment::Bytes(bytes) | Segment::Payload(Payload::Bytes(bytes)) => {
                    self.outgoing.extend_from_slice(bytes);
                }
                Segment::Payload(Payload::Span(_)) => return Err(ClientError::Garbled("the call")),
            }
        }
        Ok(())
    }

    /// Sends raw bytes, for tests of a server's error handling.
    ///
    /// # Errors
    /// [`ClientError::Transport`].
    pub fn send_raw(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        self.stream.write_all(bytes).map_err(|error| self.failed(error))
    }

    /// Sends the queued calls.
    ///
    /// # Errors
    /// [`ClientError::Transport`].
    pub fn flush(&mut self) -> Result<(), ClientError> {
        let sent = self.stream.write_all(&self.outgoing);
        self.outgoing.clear();
        sent.map_err(|error| self.failed(error))
    }

    /// Returns whether a complete reply is available without waiting.
    #[must_use]
    pub fn has_reply(&self) -> bool {
        let received = &self.incoming[self.start..self.end];
        received.first_chunk().is_some_and(|raw: &[u8; MARKER_BYTES]| {
            received.len() >= MARKER_BYTES + Marker::parse(*raw).len
        })
    }

    fn fill(&mut self, wanted: usize) -> Result<(), ClientError> {
        if self.start + wanted > self.incoming.len() {
            self.incoming.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
            if wanted > self.incoming.len() {
                self.incoming.resize(wanted, 0);
            }
        }
        while self.end - self.start < wanted {
            let read = self.stream.read(&mut self.incoming[self.end..]);
            match read.map_err(|error| self.failed(error))? {
                0 => return Err(self.failed(io::ErrorKind::UnexpectedEof.into())),
                count => self.end += count,
            }
        }
        Ok(())
    }

    /// Returns the next reply in place: valid until the next call.
    ///
    /// # Errors
    /// [`ClientError::Transport`], [`ClientError::Garbled`].
    pub fn receive(&mut self) -> Result<&[u8], ClientError> {
        let mut len = 0;
        let first = self.start;
        loop {
            self.fill(len + MARKER_BYTES)?;
            let at = self.start + len;
            let raw = &self.incoming[at..at + MARKER_BYTES];
            let marker = Marker::parse([raw[0], raw[1], raw[2], raw[3]]);
            if len + marker.len > MAX_REPLY_BYTES {
                return Err(ClientError::Garbled("a call: reply too long"));
            }
            if marker.last && len == 0 {
                self.fill(MARKER_BYTES + marker.len)?;
                let body = self.start + MARKER_BYTES;
                self.start = body + marker.len;
                return Ok(&self.incoming[body..body + marker.len]);
            }
            // Several fragments: close the gap of the marker.
            self.fill(len + MARKER_BYTES + marker.len)?;
            let at = self.start + len;
            self.incoming.copy_within(at + MARKER_BYTES..self.end, at);
            self.end -= MARKER_BYTES;
            len += marker.len;
            if marker.last {
                let body = self.start;
                self.start += len;
                debug_assert!(first <= body + len);
                return Ok(&self.incoming[body..body + len]);
            }
        }
    }

    /// Sends a message and waits for one reply, the whole RPC message.
    ///
    /// # Errors
    /// As [`Self::receive`].
    pub fn exchange(&mut self, message: &Message) -> Result<Bytes, ClientError> {
        self.queue(message)?;
        self.flush()?;
        self.receive().map(Bytes::copy_from_slice)
    }

    /// Calls a procedure of any program; the answer is the part behind the RPC
    /// header.
    ///
    /// # Errors
    /// Also [`ClientError::RpcRefused`] when the server refuses the call.
    pub fn call(
        &mut self,
        target: (u32, u32, u32),
        credential: &Credential,
        args: &impl Encode,
    ) -> Result<Bytes, ClientError> {
        let mut e = Encoder::new();
        let header = CallHeader {
            xid: self.next_xid(),
            program: target.0,
            version: target.1,
            procedure: target.2,
            credential: credential.to_opaque(),
            verifier: OpaqueAuth::none(),
        };
        header.encode(&mut e);
        args.encode(&mut e);
        let raw = self.exchange(&e.finish())?;
        let mut d = zgate_xdr::Decoder::new(&raw);
        zgate_rpc::message::decode_reply(&mut d)
            .map_err(|(_, error)| ClientError::RpcRefused(error))?;
        let at = d.position();
        Ok(raw.slice(at..))
    }

    /// Sends a COMPOUND without a session: of minor version 0, or with an
    /// operation that needs none.
    ///
    /// # Errors
    /// As [`Self::call`].
    pub fn compound(
        &mut self,
        minor: u32,
        credential: &Credential,
        ops: Ops,
    ) -> Result<Results, ClientError> {
        let xid = self.next_xid();
        decode(self.exchange(&encode(xid, &credential.to_opaque(), minor, None, ops))?)
    }

    /// Calls the NULL procedure of NFSv4, to test whether the server answers.
    ///
    /// # Errors
    /// As [`Self::call`].
    pub fn ping(&mut self) -> Result<(), ClientError> {
        self.call((zgate_nfs_wire::PROGRAM, VERSION, 0), &Credential::None, &()).map(|_| ())
    }
}

/// A session whose caller chooses the slots.
#[derive(Debug)]
pub struct Session {
    /// Client id.
    pub client: ClientId,
    /// Session id.
    pub id: SessionId,
    /// Limits of the fore channel set by the server.
    pub fore: ChannelAttrs,
    minor: u32,
    credential: OpaqueAuth,
    /// Last sequence number of each slot.
    sequences: Vec<u32>,
}

impl Session {
    /// Sends EXCHANGE_ID and CREATE_SESSION. The caller sends RECLAIM_COMPLETE.
    ///
    /// # Errors
    /// The error of the server or the connection.
    pub fn create(
        connection: &mut Connection,
        request: &SessionRequest,
    ) -> Result<Self, ClientError> {
        let ops = Ops::new().op(OpNum::ExchangeId, &request.exchange_id());
        let mut results = connection.compound(request.minor, &request.credential, ops)?;
        let known: exchange_id::Res = results.next(OpNum::ExchangeId)?;
        let ops = Ops::new().op(OpNum::CreateSession, &request.create_session(&known, false));
        let mut results = connection.compound(request.minor, &request.credential, ops)?;
        let made: create_session::Res = results.next(OpNum::CreateSession)?;
        Ok(Self {
            client: known.clientid,
            id: made.session,
            fore: made.fore,
            minor: request.minor,
            credential: request.credential.to_opaque(),
            sequences: vec![0; made.fore.slots as usize],
        })
    }

    /// Changes the credential of later calls.
    pub fn set_credential(&mut self, credential: &Credential) {
        self.credential = credential.to_opaque();
    }

    /// Builds the next request of a slot. The slot must have no request in
    /// flight.
    #[must_use]
    pub fn request(&mut self, xid: u32, slot: u32, cache_this: bool, ops: Ops) -> Message {
        let sequence = &mut self.sequences[slot as usize];
        *sequence = sequence.wrapping_add(1);
        let args = sequence::Args {
            session: self.id,
            sequence: *sequence,
            slot,
            highest_slot: self.fore.slots - 1,
            cache_this,
        };
        encode(xid, &self.credential, self.minor, Some(&args), ops)
    }

    /// Builds the last request of a slot again, as after a lost reply.
    #[must_use]
    pub fn repeat(&mut self, xid: u32, slot: u32, cache_this: bool, ops: Ops) -> Message {
        let sequence = &mut self.sequences[slot as usize];
        *sequence = sequence.wrapping_sub(1);
        self.request(xid, slot, cache_this, ops)
    }

    /// Runs a COMPOUND in slot 0 and requests that its reply is cached; the
    /// results begin behind SEQUENCE.
    ///
    /// # Errors
    /// The error of the server or the connection.
    pub fn call(&mut self, connection: &mut Connection, ops: Ops) -> Result<Results, ClientError> {
        self.run(connection, ops, true)
    }

    /// Runs a COMPOUND without a cached reply: for READ, whose reply may exceed
    /// the slot's cache.
    ///
    /// # Errors
    /// The error of the server or the connection.
    pub fn call_uncached(
        &mut self,
        connection: &mut Connection,
        ops: Ops,
    ) -> Result<Results, ClientError> {
        self.run(connection, ops, false)
    }

    fn run(
        &mut self,
        connection: &mut Connection,
        ops: Ops,
        cache_this: bool,
    ) -> Result<Results, ClientError> {
        let xid = connection.next_xid();
        let message = self.request(xid, 0, cache_this, ops);
        let mut results = decode(connection.exchange(&message)?)?;
        results.next::<sequence::Res>(OpNum::Sequence)?;
        Ok(results)
    }

    /// Sends RECLAIM_COMPLETE; repeating it is not an error.
    ///
    /// # Errors
    /// The error of the server or the connection.
    pub fn reclaim_complete(&mut self, connection: &mut Connection) -> Result<(), ClientError> {
        let ops = Ops::new().op(OpNum::ReclaimComplete, &false);
        match self.call(connection, ops)?.skip(OpNum::ReclaimComplete) {
            Err(error) if error.status() != Some(Status::CompleteAlready) => Err(error),
            _ => Ok(()),
        }
    }
}
