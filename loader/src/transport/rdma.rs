//! RPC over one RDMA connection (RFC 8166). The destination of a READ is the
//! call's write chunk, which the server's device writes; it is registered for
//! that one call, and deregistered before its content is used.

use super::read_buffer::{Arrived, ReadBuffer};
use super::{Callbacks, Counters, Placed, lost};
use crate::error::ClientError;
use bytes::Bytes;
use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use zgate_fabric::endpoint::receives;
use zgate_fabric::{
    Access, ConnectError, Endpoint, EndpointEvent, Exposed, Fabric, QueueOptions, RemoteSlice,
    SendPart, Setup,
};
use zgate_rpcrdma::client::{CallFrame, CallParts, Reply, ReplyError, Results};
use zgate_rpcrdma::limits::PREFERRED_INLINE_BYTES;
use zgate_rpcrdma::{
    Body, Chunks, Credit, Direction, Header, InlineBytes, PrivateData, Segment, SendCredits,
    WriteChunk, Xid, direction,
};
use zgate_store::{AlignedBuf, BufferPool, Payload};
use zgate_xdr::{Message, Segment as Piece};

/// Most outstanding calls, if the server grants as many.
const CREDITS: u32 = 64;
/// Receives reserved for callbacks.
const MORE_RECEIVES: u32 = 8;
/// Memory for a reply other than READ's, in bytes: more than a page of a
/// directory.
pub(crate) const REPLY_BYTES: usize = 256 << 10;
/// Interval at which a server that owes replies is probed: a cut link is not
/// reported otherwise.
const PROBE_PERIOD: Duration = Duration::from_secs(2);
/// A call for the task that owns the connection.
#[derive(Debug)]
struct Call {
    xid: u32,
    message: Message,
    read_buffer: Option<ReadBuffer>,
    sender: oneshot::Sender<Arrived>,
}

/// A connection to a server.
#[derive(Debug)]
pub struct RdmaConnection {
    address: SocketAddr,
    xid: AtomicU32,
    closed: Arc<AtomicBool>,
    calls: mpsc::UnboundedSender<Call>,
    callbacks: Arc<dyn Callbacks>,
    task: JoinHandle<()>,
}

impl Drop for RdmaConnection {
    fn drop(&mut self) {
        self.task.abort();
        self.callbacks.connection_lost();
    }
}

impl RdmaConnection {
    /// Connects. `pool` is for messages, not for data; `callbacks` answers
    /// calls of the server.
    ///
    /// # Errors
    /// [`ClientError::Transport`].
    pub async fn connect(
        address: SocketAddr,
        fabric: Arc<dyn Fabric>,
        pool: BufferPool,
        counters: Arc<Counters>,
        callbacks: Arc<dyn Callbacks>,
    ) -> Result<Self, ClientError> {
        // The memory of a call is deregistered here, whatever the server does.
        let own = PrivateData {
            remote_invalidation: false,
            send_bytes: PREFERRED_INLINE_BYTES,
            receive_bytes: PREFERRED_INLINE_BYTES,
        };
        let depth = CREDITS + MORE_RECEIVES;
        let receives = receives(&pool, depth, PREFERRED_INLINE_BYTES as usize);
        let options = QueueOptions { receives: depth, ..QueueOptions::default() };
        let setup = Setup { options, receives, private_data: own.encode().to_vec() };
        let made = fabric.connect(address, setup).await.map_err(|error| {
            let source = match error {
                ConnectError::Io(source) => source,
                rejected @ ConnectError::Rejected(_) => {
                    io::Error::new(io::ErrorKind::ConnectionRefused, rejected.to_string())
                }
            };
            ClientError::Transport { address: format!("{address} over RDMA"), source }
        })?;
        let inline = InlineBytes::negotiate(&own, &PrivateData::decode(&made.private_data));
        let closed = Arc::new(AtomicBool::new(false));
        let (calls, queue) = mpsc::unbounded_channel();
        let driver = Driver {
            address,
            endpoint: Endpoint::new(made.connection),
            fabric,
            pool,
            counters,
            callbacks: Arc::clone(&callbacks),
            inline,
            credits: SendCredits::default(),
            waiting: VecDeque::new(),
            outstanding: HashMap::new(),
        };
        let task = tokio::spawn(driver.run(queue, Arc::clone(&closed)));
        Ok(Self { address, xid: AtomicU32::new(1), closed, calls, callbacks, task })
    }

    /// Returns whether it is lost.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Returns an unused transaction id.
    pub fn next_xid(&self) -> u32 {
        self.xid.fetch_add(1, Ordering::Relaxed)
    }

    /// Sends a call, whose header contains `xid`, and waits for the reply. The
    /// data of a READ is placed in `read_buffer`.
    pub async fn call_into(
        &self,
        xid: u32,
        message: Message,
        read_buffer: Option<ReadBuffer>,
    ) -> Arrived {
        let (sender, receiver) = oneshot::channel();
        let nothing =
            |read_buffer| Arrived { reply: Err(lost(self.address)), read_buffer, placed: None };
        let call = Call { xid, message, read_buffer, sender };
        if let Err(mpsc::error::SendError(call)) = self.calls.send(call) {
            return nothing(call.read_buffer);
        }
        receiver.await.unwrap_or_else(|_| nothing(None))
    }
}

/// The caller's memory while a device may write it.
#[derive(Debug)]
enum Lent {
    /// The memory itself, registered here.
    Direct(Box<dyn Exposed>),
    /// Memory of another device, registered by its owner.
    Registered(RemoteSlice, ReadBuffer),
    /// A buffer in its place, because its kind cannot be registered.
    Beside(Box<dyn Exposed>, ReadBuffer),
}

impl Lent {
    fn segment(&self) -> Segment {
        match self {
            Self::Direct(exposed) | Self::Beside(exposed, _) => segment(&**exposed),
            Self::Registered(slice, _) => {
                Segment { handle: slice.rkey, length: slice.len, offset: slice.address }
            }
        }
    }

    /// Ends the device's access; `bytes` of the memory were written.
    fn withdraw(self, bytes: usize) -> (Option<ReadBuffer>, Placed) {
        match self {
            Self::Direct(exposed) => {
                let placed = Placed { device_bytes: bytes as u64, ..Placed::default() };
                (exposed.withdraw().into_lent().ok().map(ReadBuffer::new), placed)
            }
            Self::Registered(_, mut read_buffer) => {
                if bytes > 0 {
                    read_buffer.written_by_peer();
                }
                let placed = Placed { device_bytes: bytes as u64, ..Placed::default() };
                (Some(read_buffer), placed)
            }
            Self::Beside(exposed, mut read_buffer) => {
                let buffer = exposed.withdraw();
                let bytes = bytes.min(buffer.len()).min(read_buffer.bytes().len());
                read_buffer.bytes()[..bytes].copy_from_slice(&buffer[..bytes]);
                let placed = Placed { copied_bytes: bytes as u64, ..Placed::default() };
                (Some(read_buffer), placed)
            }
        }
    }
}

/// Memory that the server may use for a call.
#[derive(Debug, Default)]
struct Memory {
    read_buffer: Option<Lent>,
    reply: Option<Box<dyn Exposed>>,
    sources: Vec<Box<dyn Exposed>>,
}

/// A call that was sent.
#[derive(Debug)]
struct Outstanding {
    sender: oneshot::Sender<Arrived>,
    credit: Credit,
    offered: Chunks,
    memory: Memory,
}

/// Task that owns the connection.
struct Driver {
    address: SocketAddr,
    /// Nothing is read from the server's memory.
    endpoint: Endpoint<Infallible>,
    fabric: Arc<dyn Fabric>,
    pool: BufferPool,
    counters: Arc<Counters>,
    callbacks: Arc<dyn Callbacks>,
    inline: InlineBytes,
    credits: SendCredits,
    /// Calls that wait for a credit.
    waiting: VecDeque<Call>,
    outstanding: HashMap<Xid, Outstanding>,
}

impl Driver {
    async fn run(mut self, mut queue: mpsc::UnboundedReceiver<Call>, closed: Arc<AtomicBool>) {
        let why = self.serve(&mut queue).await;
        tracing::debug!(address = %self.address, why, "RDMA connection lost");
        closed.store(true, Ordering::Release);
        self.callbacks.connection_lost();
        queue.close();
        // Afterwards the device no longer writes: the memory belongs to the callers again.
        self.endpoint.close().await;
        for (_, call) in std::mem::take(&mut self.outstanding) {
            let read_buffer = call.memory.read_buffer.and_then(|lent| lent.withdraw(0).0);
            answer(call.sender, Err(lost(self.address)), read_buffer, None);
        }
        while let Some(call) = self.waiting.pop_front() {
            answer(call.sender, Err(lost(self.address)), call.read_buffer, None);
        }
        while let Some(call) = queue.recv().await {
            answer(call.sender, Err(lost(self.address)), call.read_buffer, None);
        }
    }

    async fn serve(&mut self, queue: &mut mpsc::UnboundedReceiver<Call>) -> String {
        let mut probe = tokio::time::interval(PROBE_PERIOD);
        loop {
            while !self.waiting.is_empty() {
                let Some(credit) = self.credits.take() else { break };
                let Some(call) = self.waiting.pop_front() else { break };
                if let Err(why) = self.send_call(call, credit) {
                    return why;
                }
            }
            let result = tokio::select! {
                event = self.endpoint.event() => self.event(event),
                call = queue.recv() => match call {
                    Some(call) => {
                        self.waiting.push_back(call);
                        Ok(())
                    }
                    None => Err("the connection is no longer needed".to_owned()),
                },
                _ = probe.tick() => self.probe(),
            };
            if let Err(why) = result {
                return why;
            }
        }
    }

    fn send(&mut self, message: Bytes) -> Result<(), String> {
        let send = SendPart { gather: vec![message], invalidate: None };
        self.endpoint.send(Vec::new(), Some(send)).map_err(|error| error.to_string())
    }

    /// Probes a server that owes replies.
    fn probe(&mut self) -> Result<(), String> {
        if self.outstanding.is_empty() {
            return Ok(());
        }
        self.endpoint.probe().map_err(|error| error.to_string())
    }

    fn expose(&self, buffer: AlignedBuf, read: bool) -> Result<Box<dyn Exposed>, String> {
        self.fabric.expose(buffer, Access { read, write: !read }).map_err(not_registered)
    }

    /// Sends a call. If that fails, the connection fails, and the call is
    /// repeated on another one.
    fn send_call(&mut self, call: Call, credit: Credit) -> Result<(), String> {
        let Call { xid, message, read_buffer, sender } = call;
        let mut memory = Memory::default();
        if let Some(read_buffer) = read_buffer {
            match self.lend(read_buffer) {
                Ok(lent) => memory.read_buffer = Some(lent),
                Err((why, read_buffer)) => {
                    answer(sender, Err(lost(self.address)), Some(read_buffer), None);
                    return Err(why);
                }
            }
        }
        let framed = self.frame(xid, &message, &mut memory);
        let outstanding = |memory, offered| Outstanding { sender, credit, offered, memory };
        match framed {
            Ok((bytes, offered)) => {
                self.outstanding.insert(Xid(xid), outstanding(memory, offered));
                self.send(bytes)
            }
            Err(why) => {
                // It is completed together with all others.
                self.outstanding.insert(Xid(xid), outstanding(memory, Chunks::default()));
                Err(why)
            }
        }
    }

    /// Registers a caller's memory for the device.
    fn lend(&self, mut read_buffer: ReadBuffer) -> Result<Lent, (String, ReadBuffer)> {
        if let Some(slice) = read_buffer.registered() {
            return Ok(Lent::Registered(slice, read_buffer));
        }
        let access = Access { read: false, write: true };
        if read_buffer.can_be_lent() && !read_buffer.bytes().is_empty() {
            return match self.fabric.lend(read_buffer.lend(), access) {
                Ok(exposed) => Ok(Lent::Direct(exposed)),
                Err((error, buffer)) => {
                    let memory = buffer.into_lent().unwrap_or_default();
                    Err((not_registered(error), ReadBuffer::new(memory)))
                }
            };
        }
        let buffer = self.pool.take(read_buffer.bytes().len().max(1));
        match self.fabric.expose(buffer, access) {
            Ok(exposed) => Ok(Lent::Beside(exposed, read_buffer)),
            Err(error) => Err((not_registered(error), read_buffer)),
        }
    }

    /// Builds the message of a call, and its chunk lists.
    fn frame(
        &self,
        xid: u32,
        message: &Message,
        memory: &mut Memory,
    ) -> Result<(Bytes, Chunks), String> {
        let flat = message.flatten().ok_or("a client sends memory, never a file span")?;
        let mut parts = CallParts { len: flat.len(), ..CallParts::default() };
        match &memory.read_buffer {
            Some(lent) => {
                let segments = vec![lent.segment()];
                parts.writes.push(WriteChunk { segments });
            }
            None => {
                let exposed = self.expose(self.pool.take(REPLY_BYTES), false)?;
                parts.reply = Some(WriteChunk { segments: vec![segment(&*exposed)] });
                memory.reply = Some(exposed);
            }
        }
        let mut bulk = Vec::new();
        let mut whole = Vec::new();
        if flat.len() + PREFERRED_INLINE_BYTES as usize / 4 > self.inline.send as usize {
            if let Some((position, data)) = bulk_of(message) {
                bulk.push(self.source(&data, memory)?);
                parts.bulk = Some((position, data.len(), &bulk));
            } else {
                whole.push(self.source(&flat, memory)?);
                parts.whole = &whole;
            }
        }
        let frame = CallFrame::new(Xid(xid), CREDITS, self.inline.send, parts)
            .map_err(|error| error.to_string())?;
        let len = frame.header.len() + frame.inline.iter().map(std::ops::Range::len).sum::<usize>();
        // From the pool, because that is registered already.
        let mut bytes = self.pool.take(len);
        let mut at = frame.header.len();
        bytes[..at].copy_from_slice(&frame.header);
        for range in frame.inline {
            let piece = flat.get(range).ok_or("a frame beyond its call")?;
            bytes[at..at + piece.len()].copy_from_slice(piece);
            at += piece.len();
        }
        Ok((bytes.into_bytes(), frame.offered))
    }

    /// Registers memory from which the server reads a part of a call.
    fn source(&self, data: &[u8], memory: &mut Memory) -> Result<Segment, String> {
        let mut buffer = self.pool.take(data.len());
        buffer.copy_from_slice(data);
        let exposed = self.expose(buffer, true)?;
        let segment = segment(&*exposed);
        memory.sources.push(exposed);
        Ok(segment)
    }

    fn event(&mut self, event: EndpointEvent<Infallible>) -> Result<(), String> {
        match event {
            EndpointEvent::Received(message) => {
                let received = self.received(message.bytes());
                self.endpoint.post_receive(message.buffer);
                received
            }
            EndpointEvent::Sent => Ok(()),
            EndpointEvent::Read { note, .. } => match note {},
            EndpointEvent::Failed { kind, status } => Err(format!("{kind:?} failed: {status}")),
            EndpointEvent::Disconnected(why) => Err(why.to_string()),
        }
    }

    /// Answers a callback, inline as it arrived (RFC 8167 §4.2, §5.2).
    fn called(&mut self, xid: Xid, call: &[u8]) -> Result<(), String> {
        let Some(answer) = self.callbacks.answer(call) else { return Ok(()) };
        let body = Body::Message(Chunks::default());
        let head = Header { xid, credits: MORE_RECEIVES, body }.encode();
        let len = head.len() + answer.len();
        if len > self.inline.send as usize {
            tracing::debug!(address = %self.address, "cannot answer a callback");
            return Ok(());
        }
        let mut bytes = self.pool.take(len);
        bytes[..head.len()].copy_from_slice(&head);
        bytes[head.len()..len].copy_from_slice(&answer);
        self.send(bytes.into_bytes())
    }

    /// Handles a message: the reply to a call, or a callback.
    fn received(&mut self, message: &[u8]) -> Result<(), String> {
        let xid = Reply::xid(message).ok_or("a message without a transaction id")?;
        let header = Header::decode(message);
        if let Ok(decoded) = header
            && direction(xid, decoded.inline) == Some(Direction::Call)
        {
            return self.called(xid, decoded.inline);
        }
        let Some(call) = self.outstanding.remove(&xid) else { return Ok(()) };
        let Outstanding { sender, credit, offered, memory } = call;
        let reply = match Reply::read(message, &offered) {
            Ok(reply) => reply,
            Err(error @ (ReplyError::Chunk | ReplyError::Version { .. })) => {
                self.credits.forfeit(credit);
                let read_buffer = memory.read_buffer.and_then(|lent| lent.withdraw(0).0);
                answer(sender, Err(ClientError::Rpc(error.to_string())), read_buffer, None);
                return Ok(());
            }
            Err(error) => {
                // Completed together with all others, when the device no longer
                // writes.
                self.outstanding.insert(xid, Outstanding { sender, credit, offered, memory });
                return Err(error.to_string());
            }
        };
        self.credits.answered(credit, reply.credits);
        let written = reply.written.first().copied().unwrap_or(0);
        let bytes = match reply.results {
            Results::Inline(bytes) => Ok(Bytes::copy_from_slice(bytes)),
            Results::InReplyChunk { len } => memory
                .reply
                .map(|exposed| {
                    let mut buffer = exposed.withdraw();
                    buffer.truncate(len);
                    buffer.into_bytes()
                })
                .ok_or_else(|| lost(self.address)),
        };
        let mut read_buffer = None;
        if let Some(lent) = memory.read_buffer {
            let (back, placed) = lent.withdraw(written);
            self.counters.add(placed);
            read_buffer = back;
        }
        answer(sender, bytes, read_buffer, (written > 0).then_some(written));
        Ok(())
    }
}

/// Returns the result to the caller, which may have gone.
fn answer(
    sender: oneshot::Sender<Arrived>,
    reply: Result<Bytes, ClientError>,
    read_buffer: Option<ReadBuffer>,
    placed: Option<usize>,
) {
    let _ = sender.send(Arrived { reply, read_buffer, placed });
}

fn not_registered(error: io::Error) -> String {
    format!("cannot register memory: {error}; is the limit of locked memory too low?")
}

fn segment(exposed: &dyn Exposed) -> Segment {
    Segment {
        handle: exposed.rkey(),
        length: u32::try_from(exposed.len()).unwrap_or(u32::MAX),
        offset: exposed.address(),
    }
}

/// Returns the bulk data of a call and its position.
fn bulk_of(message: &Message) -> Option<(usize, Bytes)> {
    let mut at = 0;
    for piece in &message.segments {
        match piece {
            Piece::Payload(Payload::Bytes(data)) => return Some((at, data.clone())),
            other => at += other.len(),
        }
    }
    None
}
