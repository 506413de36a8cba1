//! A session: its slots, and SEQUENCE in front of every COMPOUND.

use crate::callback;
use crate::compound::{Ops, Results};
use crate::error::ClientError;
use crate::transport::Connection;
use bytes::Bytes;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use tokio::sync::{Semaphore, SemaphorePermit};
use zgate_nfs_wire::PROGRAM;
use zgate_nfs_wire::v4::op::create_session::{self, ChannelAttrs};
use zgate_nfs_wire::v4::op::{bind_conn_to_session, exchange_id, sequence};
use zgate_nfs_wire::v4::{COMPOUND, ClientId, OpNum, SessionId, VERSION};
use zgate_rpc::auth::OpaqueAuth;
use zgate_rpc::{CallHeader, Credential};
use zgate_xdr::{Decoder, Encode, Encoder, Message, Opaque};

/// A slot: the sequence number of its next request.
#[derive(Debug)]
struct Slot {
    number: u32,
    sequence: u32,
    /// Set while a request with this number is in flight, or was abandoned.
    unanswered: bool,
}

impl Slot {
    fn new(number: u32) -> Self {
        Self { number, sequence: 1, unanswered: false }
    }
}

/// A session with a server.
#[derive(Debug)]
pub struct Session {
    id: SessionId,
    /// Client id assigned by the server.
    pub(crate) clientid: ClientId,
    minor: u32,
    credential: OpaqueAuth,
    free: Mutex<Vec<Slot>>,
    permits: Semaphore,
    /// Limits of the fore channel set by the server.
    pub fore: ChannelAttrs,
    highest_slot: u32,
    /// Set if the server uses a back channel, with this many slots.
    has_back: AtomicBool,
    back_slots: u32,
}

/// A slot in use. Returns it when dropped.
#[derive(Debug)]
pub(crate) struct SlotGuard<'a> {
    session: &'a Session,
    slot: Option<Slot>,
    _permit: SemaphorePermit<'a>,
}

impl SlotGuard<'_> {
    /// Advances the sequence number after a reply (RFC 8881 §2.10.6.1).
    pub(crate) fn advance(&mut self) {
        if let Some(slot) = &mut self.slot {
            slot.sequence = slot.sequence.wrapping_add(1);
            slot.unanswered = false;
        }
    }

    /// Returns whether the last request of this slot was abandoned: before
    /// another request uses its number, it must be determined whether the
    /// server has run it.
    pub(crate) fn is_unanswered(&self) -> bool {
        self.slot.as_ref().is_some_and(|slot| slot.unanswered)
    }

    /// Encodes the request.
    pub(crate) fn encode(&mut self, xid: u32, cache_this: bool, ops: &Ops) -> Message {
        let (number, sequence) = self.slot.as_mut().map_or((0, 0), |slot| {
            slot.unanswered = true;
            (slot.number, slot.sequence)
        });
        let args = sequence::Args {
            session: self.session.id,
            sequence,
            slot: number,
            highest_slot: self.session.highest_slot,
            cache_this,
        };
        encode(xid, &self.session.credential, self.session.minor, Some(&args), ops.clone())
    }
}

impl Drop for SlotGuard<'_> {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            self.session.free.lock().unwrap_or_else(PoisonError::into_inner).push(slot);
        }
    }
}

/// Encodes one RPC call with a COMPOUND.
pub(crate) fn encode(
    xid: u32,
    credential: &OpaqueAuth,
    minor: u32,
    first: Option<&sequence::Args>,
    ops: Ops,
) -> Message {
    let mut e = Encoder::with_capacity(256);
    let header = CallHeader {
        xid,
        program: PROGRAM,
        version: VERSION,
        procedure: COMPOUND,
        credential: credential.clone(),
        verifier: OpaqueAuth::none(),
    };
    header.encode(&mut e);
    e.opaque(b"");
    e.u32(minor);
    e.u32(ops.count() + u32::from(first.is_some()));
    if let Some(args) = first {
        OpNum::Sequence.encode(&mut e);
        args.encode(&mut e);
    }
    e.append(&ops.into_message());
    e.finish()
}

/// Parses an RPC reply that carries the results of a COMPOUND.
///
/// # Errors
/// [`ClientError::RpcRefused`], [`ClientError::Garbled`].
pub fn decode(raw: Bytes) -> Result<Results, ClientError> {
    let mut d = Decoder::new(&raw);
    zgate_rpc::message::decode_reply(&mut d)
        .map_err(|(_, error)| ClientError::RpcRefused(error))?;
    let at = d.position();
    Results::parse(raw.slice(at..))
}

/// Sends a COMPOUND without a session.
pub(crate) async fn alone(
    connection: &Connection,
    credential: &OpaqueAuth,
    minor: u32,
    ops: Ops,
) -> Result<Results, ClientError> {
    let xid = connection.next_xid();
    decode(connection.call(xid, encode(xid, credential, minor, None, ops)).await?)
}

/// Parameters of a session.
#[derive(Clone, Debug)]
pub struct SessionRequest {
    /// Name of the client; the same name continues the same client.
    pub owner: Vec<u8>,
    /// Verifier that changes when the client restarts.
    pub verifier: [u8; 8],
    /// Minor version, 1 or 2.
    pub minor: u32,
    /// Credential.
    pub credential: Credential,
    /// Requested slots.
    pub slots: u32,
    /// Largest request and response requested, in bytes.
    pub max_message_bytes: u32,
}

impl SessionRequest {
    /// The arguments of EXCHANGE_ID.
    pub(crate) fn exchange_id(&self) -> exchange_id::Args {
        exchange_id::Args {
            verifier: self.verifier,
            owner: Opaque(self.owner.clone()),
            flags: 0,
            protect: exchange_id::Protect::None,
            implementation: None,
        }
    }

    /// Sends EXCHANGE_ID: identifies the client, and returns the server.
    ///
    /// # Errors
    /// The error of the server or the connection.
    pub async fn introduce(
        &self,
        connection: &Connection,
    ) -> Result<exchange_id::Res, ClientError> {
        let ops = Ops::new().op(OpNum::ExchangeId, &self.exchange_id());
        let credential = self.credential.to_opaque();
        let mut results = alone(connection, &credential, self.minor, ops).await?;
        results.next(OpNum::ExchangeId)
    }

    /// Builds the arguments of CREATE_SESSION from EXCHANGE_ID's result.
    /// `back`: callbacks are answered on the connection it is sent over.
    pub(crate) fn create_session(
        &self,
        known: &exchange_id::Res,
        back: bool,
    ) -> create_session::Args {
        let channel = ChannelAttrs {
            header_pad_bytes: 0,
            max_request_bytes: self.max_message_bytes,
            max_response_bytes: self.max_message_bytes,
            max_cached_bytes: 4096,
            max_ops: 16,
            slots: self.slots,
        };
        create_session::Args {
            clientid: known.clientid,
            sequence: known.sequenceid,
            flags: if back { create_session::BACK_CHANNEL } else { 0 },
            fore: channel,
            back: callback::attributes(),
            callback_program: callback::PROGRAM,
            security: vec![create_session::CallbackSecurity::None],
        }
    }
}

impl Session {
    /// Sends CREATE_SESSION after EXCHANGE_ID; `connection` answers callbacks.
    /// State held before a restart of the server must be reclaimed next, and
    /// RECLAIM_COMPLETE sent.
    ///
    /// # Errors
    /// The error of the server or the connection.
    pub(crate) async fn create(
        connection: &Connection,
        request: &SessionRequest,
        known: &exchange_id::Res,
    ) -> Result<Self, ClientError> {
        let credential = request.credential.to_opaque();
        let ops = Ops::new().op(OpNum::CreateSession, &request.create_session(known, true));
        let mut results = alone(connection, &credential, request.minor, ops).await?;
        let made: create_session::Res = results.next(OpNum::CreateSession)?;
        // Whatever the server says: memory is for as many as were asked for.
        let slots = made.fore.slots.clamp(1, request.slots.max(1));
        Ok(Self {
            id: made.session,
            clientid: known.clientid,
            minor: request.minor,
            credential,
            free: Mutex::new((0..slots).rev().map(Slot::new).collect()),
            permits: Semaphore::new(slots as usize),
            fore: ChannelAttrs { slots, ..made.fore },
            highest_slot: slots - 1,
            has_back: AtomicBool::new(made.flags & create_session::BACK_CHANNEL != 0),
            back_slots: made.back.slots,
        })
    }

    /// Returns whether the server uses a back channel.
    pub(crate) fn has_back(&self) -> bool {
        self.has_back.load(Ordering::Relaxed)
    }

    /// Records that the server cannot call back any more.
    pub(crate) fn give_up_back(&self) {
        self.has_back.store(false, Ordering::Relaxed);
    }

    pub(crate) fn back_slots(&self) -> u32 {
        self.back_slots
    }

    /// Makes the server use this connection for callbacks, too; returns whether it
    /// does. The fore channel may have the connection by its use: a server may refuse
    /// what would be content with the back channel alone (RFC 8881 §18.34.3).
    ///
    /// # Errors
    /// The error of the server or the connection.
    pub(crate) async fn bind_back(&self, connection: &Connection) -> Result<bool, ClientError> {
        /// CDFS4_BACK, a bit of CDFS4_BOTH.
        const BACK: u32 = 2;
        let args = bind_conn_to_session::Args {
            session: self.id,
            direction: bind_conn_to_session::Direction::ForeOrBoth,
            rdma_mode: false,
        };
        let ops = Ops::new().op(OpNum::BindConnToSession, &args);
        let mut results = alone(connection, &self.credential, self.minor, ops).await?;
        let bound: bind_conn_to_session::Res = results.next(OpNum::BindConnToSession)?;
        Ok(bound.direction & BACK != 0)
    }

    /// Returns its id.
    pub(crate) fn id(&self) -> SessionId {
        self.id
    }

    /// Takes a free slot; waits while all are in use.
    pub(crate) async fn free_slot(&self) -> Result<SlotGuard<'_>, ClientError> {
        let closed = |_| ClientError::Garbled("SEQUENCE");
        let permit = self.permits.acquire().await.map_err(closed)?;
        let slot = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        Ok(SlotGuard { session: self, slot, _permit: permit })
    }

    /// Takes a slot whose last request was answered.
    async fn settled_slot(&self) -> Result<SlotGuard<'_>, ClientError> {
        let mut passed = Vec::new();
        while passed.len() <= self.highest_slot as usize {
            let guard = self.free_slot().await?;
            if !guard.is_unanswered() {
                return Ok(guard);
            }
            passed.push(guard);
        }
        Err(ClientError::Garbled("SEQUENCE"))
    }

    /// Sends a COMPOUND on one connection without repeating it. The results
    /// begin behind SEQUENCE.
    ///
    /// # Errors
    /// The error of the server or the connection.
    pub(crate) async fn call(
        &self,
        connection: &Connection,
        ops: &Ops,
        cache_this: bool,
    ) -> Result<Results, ClientError> {
        let mut guard = self.settled_slot().await?;
        let xid = connection.next_xid();
        let mut results = decode(connection.call(xid, guard.encode(xid, cache_this, ops)).await?)?;
        results.next::<sequence::Res>(OpNum::Sequence)?;
        guard.advance();
        Ok(results)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::Counters;
    use crate::transport::tcp::RpcConnection;
    use crate::transport::tcp::tests::Uncalled;
    use std::sync::Arc;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use zgate_nfs_wire::v4::Status;
    use zgate_store::BufferPool;

    const ID: SessionId = SessionId([7; 16]);

    fn session() -> Session {
        Session {
            id: ID,
            clientid: ClientId(1),
            minor: 1,
            credential: OpaqueAuth::none(),
            free: Mutex::new(Vec::new()),
            permits: Semaphore::new(0),
            fore: callback::attributes(),
            highest_slot: 0,
            has_back: AtomicBool::new(true),
            back_slots: 1,
        }
    }

    /// Binds the next connection to these channels; returns those that were asked for.
    async fn bind(listener: &TcpListener, direction: u32) -> u32 {
        let (mut stream, _) = listener.accept().await.unwrap();
        let marker = stream.read_u32().await.unwrap();
        let mut call = vec![0; (marker & 0x7fff_ffff) as usize];
        stream.read_exact(&mut call).await.unwrap();
        let xid = Decoder::new(&call).u32().unwrap();
        // Behind it is the RDMA mode alone.
        let asked = Decoder::new(&call[call.len() - 8..]).u32().unwrap();
        let mut e = Encoder::new();
        zgate_rpc::message::encode_success(&mut e, xid);
        Status::Ok.encode(&mut e);
        e.opaque(b"");
        e.u32(1);
        OpNum::BindConnToSession.encode(&mut e);
        Status::Ok.encode(&mut e);
        bind_conn_to_session::Res { session: ID, direction, rdma_mode: false }.encode(&mut e);
        let reply = e.finish().flatten().unwrap();
        stream.write_u32(0x8000_0000 | reply.len() as u32).await.unwrap();
        stream.write_all(&reply).await.unwrap();
        asked
    }

    /// Linux's server refuses CDFC4_BACK_OR_BOTH for a connection that SEQUENCE has used.
    #[tokio::test]
    async fn a_connection_in_use_is_asked_for_both_channels() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = listener.local_addr().unwrap();
        for (answer, has_back) in [(1, false), (2, true), (3, true)] {
            let (pool, counters) = (BufferPool::new(0), Arc::new(Counters::default()));
            let connection = RpcConnection::connect(server, pool, counters, Arc::new(Uncalled));
            let (session, connection) = (session(), Connection::Tcp(connection.await.unwrap()));
            let (asked, bound) =
                tokio::join!(bind(&listener, answer), session.bind_back(&connection));
            assert_eq!(asked, bind_conn_to_session::Direction::ForeOrBoth as u32);
            assert_eq!(bound.unwrap(), has_back, "{answer}");
        }
    }
}
