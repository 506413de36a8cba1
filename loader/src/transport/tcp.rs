//! RPC over one TCP connection, any number of calls in flight.

use super::dial::{Dial, ReceiveHalf};
use super::read_buffer::{Arrived, LOOK_BYTES, ReadBuffer};
use super::{Callbacks, Counters, Placed, lost};
use crate::callback::MAX_MESSAGE_BYTES;
use crate::error::ClientError;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use socket2::TcpKeepalive;
use std::collections::HashMap;
use std::future::poll_fn;
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use zgate_nfs_wire::bulk::read_position;
use zgate_rpc::record::{MARKER_BYTES, Marker};
use zgate_store::{BufferPool, Payload};
use zgate_xdr::{Encoder, Message, Segment};

/// Largest reply accepted, in bytes.
const MAX_REPLY_BYTES: usize = 8 << 20;
/// Size of the read buffers that small replies share, in bytes.
const STREAM_BYTES: usize = 64 << 10;
/// Size of the pieces in which data is awaited: waking up for every segment
/// costs more than copying it.
const WAKE_BYTES: usize = 512 << 10;

/// Silence after which a server is probed, the interval of further probes, and their
/// number.
const SILENCE: Duration = Duration::from_secs(10);
const PROBE: Duration = Duration::from_secs(3);
const PROBES: u32 = 3;
/// Time after which a server's host that acknowledges nothing counts as lost, whether
/// it is probed or requests are in flight. A slow server's host acknowledges.
const DEAF: Duration = Duration::from_secs(SILENCE.as_secs() + PROBE.as_secs() * PROBES as u64);

/// Longest callback accepted, in bytes: the negotiated size, and the RPC
/// header.
const MAX_CALLBACK_BYTES: usize = MAX_MESSAGE_BYTES as usize + 1024;
/// Most replies to callbacks waiting to be sent: more than a server has slots.
const MAX_ANSWERS: usize = 64;
/// The message type of a call (RFC 5531 §9).
const CALL: [u8; 4] = [0; 4];

/// A caller that waits for a reply.
#[derive(Debug)]
struct Waiter {
    sender: oneshot::Sender<Arrived>,
    read_buffer: Option<ReadBuffer>,
}

#[derive(Debug, Default)]
struct Routes {
    waiting: HashMap<u32, Waiter>,
    closed: bool,
}

/// Waiting callers by transaction id.
type Waiting = Arc<Mutex<Routes>>;

/// A connection to a server.
#[derive(Debug)]
pub struct RpcConnection {
    address: SocketAddr,
    xid: AtomicU32,
    waiting: Waiting,
    outgoing: mpsc::UnboundedSender<Message>,
    callbacks: Arc<dyn Callbacks>,
    tasks: Vec<JoinHandle<()>>,
}

impl Drop for RpcConnection {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
        close(&self.waiting, self.address);
        self.callbacks.connection_lost();
    }
}

/// Fails all waiting callers, and returns their memory.
fn close(waiting: &Waiting, address: SocketAddr) {
    let mut waiters: Vec<(u32, Waiter)> = {
        let mut routes = waiting.lock().unwrap_or_else(PoisonError::into_inner);
        routes.closed = true;
        routes.waiting.drain().collect()
    };
    // In the order of the calls: they are repeated in this order.
    waiters.sort_unstable_by_key(|(xid, _)| *xid);
    for (_, waiter) in waiters {
        waiter.give_up(address);
    }
}

impl Waiter {
    fn give_up(self, address: SocketAddr) {
        let reply = Err(lost(address));
        // The caller may have gone.
        let _ = self.sender.send(Arrived { reply, read_buffer: self.read_buffer, placed: None });
    }
}

/// Tunes a socket: requests leave at once, and a cut link is noticed.
fn tune(stream: &TcpStream, server: SocketAddr) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let alive = TcpKeepalive::new().with_time(SILENCE).with_interval(PROBE).with_retries(PROBES);
    let socket = socket2::SockRef::from(stream);
    socket.set_tcp_keepalive(&alive)?;
    // Nobody is probed while requests are in flight: the kernel would repeat them for
    // a quarter of an hour.
    socket.set_tcp_user_timeout(Some(DEAF))?;
    // Within one machine, pacing (BBR) only costs timers. If it cannot be
    // changed, it stays.
    if stream.local_addr().is_ok_and(|local| local.ip() == server.ip()) {
        let _ = rustix::net::sockopt::set_tcp_congestion(stream, "reno");
    }
    Ok(())
}

impl RpcConnection {
    /// Connects. Replies are received into buffers of `pool`; `callbacks`
    /// answers calls of the server.
    ///
    /// # Errors
    /// [`ClientError::Transport`].
    pub async fn connect(
        address: SocketAddr,
        pool: BufferPool,
        counters: Arc<Counters>,
        callbacks: Arc<dyn Callbacks>,
    ) -> Result<Self, ClientError> {
        let failed = |source| ClientError::Transport { address: address.to_string(), source };
        let stream = TcpStream::connect(address).await.map_err(failed)?;
        tune(&stream, address).map_err(failed)?;
        let (reader, writer) = stream.into_split();
        Ok(Self::over(address, reader, writer, pool, counters, callbacks))
    }

    /// Connects as [`Self::connect`], over a stream of `dial`.
    ///
    /// # Errors
    /// [`ClientError::Transport`].
    pub async fn dialed(
        dial: &dyn Dial,
        address: SocketAddr,
        pool: BufferPool,
        counters: Arc<Counters>,
        callbacks: Arc<dyn Callbacks>,
    ) -> Result<Self, ClientError> {
        let failed = |source| ClientError::Transport { address: address.to_string(), source };
        let (reader, writer) = dial.dial(address).await.map_err(failed)?;
        Ok(Self::over(address, reader, writer, pool, counters, callbacks))
    }

    /// Starts the tasks of a connection over these halves.
    fn over(
        address: SocketAddr,
        reader: impl ReceiveHalf,
        writer: impl AsyncWrite + Send + Unpin + 'static,
        pool: BufferPool,
        counters: Arc<Counters>,
        callbacks: Arc<dyn Callbacks>,
    ) -> Self {
        let waiting = Waiting::default();
        let (outgoing, queue) = mpsc::unbounded_channel();
        let (answers, answered) = mpsc::channel(MAX_ANSWERS);
        let (routes, back) = (Arc::clone(&waiting), Arc::clone(&callbacks));
        let receive = tokio::spawn(async move {
            let called = Called { callbacks: Arc::clone(&back), answers };
            let mut receiver =
                Receiver::new(reader, Arc::clone(&routes), pool, address, counters, called);
            if let Err(error) = receiver.run().await {
                tracing::debug!(%error, %address, "connection lost");
            }
            close(&routes, address);
            back.connection_lost();
        });
        let routes = Arc::clone(&waiting);
        let send = tokio::spawn(async move {
            send(writer, queue, answered).await;
            close(&routes, address);
        });
        let (xid, tasks) = (AtomicU32::new(1), vec![receive, send]);
        Self { address, xid, waiting, outgoing, callbacks, tasks }
    }

    /// Returns the address of the server.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns whether it is lost.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).closed
    }

    /// Returns an unused transaction id.
    pub fn next_xid(&self) -> u32 {
        self.xid.fetch_add(1, Ordering::Relaxed)
    }

    /// Sends a call, whose header contains `xid`, and waits for the reply, the
    /// whole RPC message. The data of a READ is placed in `read_buffer`.
    pub async fn call_into(
        &self,
        xid: u32,
        message: Message,
        read_buffer: Option<ReadBuffer>,
    ) -> Arrived {
        let (sender, receiver) = oneshot::channel();
        let waiter = Waiter { sender, read_buffer };
        let refused = {
            let mut routes = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            if routes.closed {
                Some(waiter)
            } else {
                routes.waiting.insert(xid, waiter);
                None
            }
        };
        match refused {
            Some(waiter) => waiter.give_up(self.address),
            None => {
                if self.outgoing.send(message).is_err() {
                    close(&self.waiting, self.address);
                }
            }
        }
        receiver.await.unwrap_or_else(|_| Arrived {
            reply: Err(lost(self.address)),
            read_buffer: None,
            placed: None,
        })
    }
}

/// Returns the next message to send; none at the end. Replies to callbacks go
/// first: they are few, and a server that waits for one revokes delegations.
async fn next(
    calls: &mut mpsc::UnboundedReceiver<Message>,
    answers: &mut mpsc::Receiver<Message>,
    batch: &mut Vec<Message>,
) -> bool {
    tokio::select! {
        biased;
        answer = answers.recv() => {
            batch.extend(answer);
            !batch.is_empty()
        }
        got = calls.recv_many(batch, 64) => got > 0,
    }
}

async fn send(
    mut writer: impl AsyncWrite + Unpin,
    mut queue: mpsc::UnboundedReceiver<Message>,
    mut answers: mpsc::Receiver<Message>,
) {
    let mut batch = Vec::new();
    let mut small = BytesMut::new();
    while next(&mut queue, &mut answers, &mut batch).await {
        for message in batch.drain(..) {
            let Some(marker) = Marker::whole(message.len()) else { continue };
            small.extend_from_slice(&marker);
            for segment in message.segments {
                match segment {
                    Segment::Bytes(bytes) => small.extend_from_slice(&bytes),
                    Segment::Payload(Payload::Bytes(bytes)) => {
                        if writer.write_all(&small).await.is_err()
                            || writer.write_all(&bytes).await.is_err()
                        {
                            return;
                        }
                        small.clear();
                    }
                    // A client sends memory, never a server's file span.
                    Segment::Payload(Payload::Span(_)) => return,
                }
            }
        }
        if writer.write_all(&small).await.is_err() {
            return;
        }
        small.clear();
    }
}

/// Handler of the server's calls.
struct Called {
    callbacks: Arc<dyn Callbacks>,
    answers: mpsc::Sender<Message>,
}

impl Called {
    /// Answers a call. A server that does not read its replies gets no more of
    /// them.
    fn answer(&self, call: &[u8]) {
        if let Some(answer) = self.callbacks.answer(call) {
            let mut e = Encoder::new();
            e.raw(&answer);
            if self.answers.try_send(e.finish()).is_err() {
                tracing::debug!("cannot answer a callback");
            }
        }
    }
}

/// Receiving side.
struct Receiver<R> {
    reader: R,
    stream: BytesMut,
    waiting: Waiting,
    pool: BufferPool,
    address: SocketAddr,
    counters: Arc<Counters>,
    called: Called,
    /// Set after a large reply, when little is read first: only the data of the
    /// next reply within that read is ever copied.
    after_large: bool,
    /// Bytes that must be available before a wait ends.
    low_water: usize,
}

impl<R: ReceiveHalf> Receiver<R> {
    fn new(
        reader: R,
        waiting: Waiting,
        pool: BufferPool,
        address: SocketAddr,
        counters: Arc<Counters>,
        called: Called,
    ) -> Self {
        Self {
            reader,
            stream: BytesMut::with_capacity(STREAM_BYTES),
            waiting,
            pool,
            address,
            counters,
            called,
            after_large: false,
            low_water: 1,
        }
    }

    async fn run(&mut self) -> io::Result<()> {
        loop {
            self.have(MARKER_BYTES + 8).await?;
            let marker = self.marker();
            if !marker.last {
                let message = self.fragments().await?;
                self.deliver(message)?;
                continue;
            }
            if marker.len > MAX_REPLY_BYTES || marker.len < 8 {
                return Err(io::Error::from(io::ErrorKind::InvalidData));
            }
            self.stream.advance(MARKER_BYTES);
            self.record(marker.len).await?;
        }
    }

    /// Returns the marker that the received bytes begin with.
    fn marker(&self) -> Marker {
        Marker::parse(std::array::from_fn(|index| self.stream[index]))
    }

    /// Receives a message in several fragments (RFC 5531 §11), in memory of its own.
    async fn fragments(&mut self) -> io::Result<Bytes> {
        self.after_large = false;
        let mut message = BytesMut::new();
        loop {
            self.have(MARKER_BYTES).await?;
            let marker = self.marker();
            if message.len() + marker.len > MAX_REPLY_BYTES {
                return Err(io::Error::from(io::ErrorKind::InvalidData));
            }
            self.stream.advance(MARKER_BYTES);
            let end = message.len() + marker.len;
            while message.len() < end {
                self.have(1).await?;
                let part = self.stream.len().min(end - message.len());
                message.extend_from_slice(&self.stream.split_to(part));
            }
            if marker.last {
                return Ok(message.freeze());
            }
        }
    }

    /// Hands over a message that was received as a whole.
    fn deliver(&self, message: Bytes) -> io::Result<()> {
        let is_call = message.get(4..8).ok_or(io::ErrorKind::InvalidData)? == CALL;
        if is_call && message.len() > MAX_CALLBACK_BYTES {
            return Err(io::Error::from(io::ErrorKind::InvalidData));
        }
        if is_call {
            self.called.answer(&message);
        } else if let Some(Waiter { sender, read_buffer }) = self.waiter_of(&message) {
            // The caller may have given up.
            let _ = sender.send(Arrived { reply: Ok(message), read_buffer, placed: None });
        }
        Ok(())
    }

    /// Takes the caller that waits for the reply that begins with these bytes.
    fn waiter_of(&self, reply: &[u8]) -> Option<Waiter> {
        let xid = u32::from_be_bytes(*reply.first_chunk()?);
        let mut routes = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        routes.waiting.remove(&xid)
    }

    /// Reads until `len` bytes are available.
    async fn have(&mut self, len: usize) -> io::Result<()> {
        while self.stream.len() < len {
            let most = if self.after_large { LOOK_BYTES } else { STREAM_BYTES };
            self.wake_after(1)?;
            self.stream.reserve(most);
            let room = (&mut self.stream).limit(most);
            if self.reader.read_buf(&mut { room }).await? == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
            }
        }
        Ok(())
    }

    /// Receives one message of `len` bytes, whose marker has been consumed.
    async fn record(&mut self, len: usize) -> io::Result<()> {
        // The server's calls have their own transaction ids.
        if self.stream[4..8] == CALL {
            if len > MAX_CALLBACK_BYTES {
                return Err(io::Error::from(io::ErrorKind::InvalidData));
            }
            self.have(len).await?;
            self.called.answer(&self.stream.split_to(len));
            return Ok(());
        }
        let mut waiter = self.waiter_of(&self.stream);
        let mut read_buffer = waiter.as_mut().and_then(|waiter| waiter.read_buffer.take());
        let received = self.receive(len, read_buffer.as_mut()).await;
        let Some(mut waiter) = waiter else { return received.map(|_| ()) };
        match received {
            Ok((reply, placed)) => {
                // The caller may have given up.
                let _ = waiter.sender.send(Arrived { reply: Ok(reply), read_buffer, placed });
                Ok(())
            }
            Err(error) => {
                waiter.read_buffer = read_buffer;
                waiter.give_up(self.address);
                Err(error)
            }
        }
    }

    async fn receive(
        &mut self,
        len: usize,
        read_buffer: Option<&mut ReadBuffer>,
    ) -> io::Result<(Bytes, Option<usize>)> {
        if let Some(read_buffer) = read_buffer {
            self.have(len.min(LOOK_BYTES)).await?;
            let look = &self.stream[..len.min(LOOK_BYTES).min(self.stream.len())];
            if let Some((at, data)) = read_position(look)
                && data <= read_buffer.bytes().len()
                && at + data <= len
            {
                return self.place(len, at, &mut read_buffer.bytes()[..data]).await;
            }
        }
        self.after_large = false;
        if len <= STREAM_BYTES / 2 {
            self.have(len).await?;
            return Ok((self.stream.split_to(len).freeze(), None));
        }
        let mut buffer = self.pool.take(len);
        let have = self.stream.len().min(len);
        buffer[..have].copy_from_slice(&self.stream[..have]);
        self.stream.advance(have);
        self.wake_after(1)?;
        self.reader.read_exact(&mut buffer[have..]).await?;
        Ok((buffer.into_bytes(), None))
    }

    /// Receives a reply whose data begins at `at`, into `data`.
    async fn place(
        &mut self,
        len: usize,
        at: usize,
        data: &mut [u8],
    ) -> io::Result<(Bytes, Option<usize>)> {
        let mut head = self.stream.split_to(at);
        let have = self.stream.len().min(data.len());
        data[..have].copy_from_slice(&self.stream[..have]);
        self.stream.advance(have);
        self.fill(&mut data[have..]).await?;
        self.counters.add(Placed {
            socket_bytes: (data.len() - have) as u64,
            copied_bytes: have as u64,
            ..Placed::default()
        });
        self.after_large = true;
        let tail = len - at - data.len();
        self.have(tail).await?;
        head.extend_from_slice(&self.stream.split_to(tail));
        Ok((head.freeze(), Some(data.len())))
    }

    /// Makes the next wait end when `bytes` are available.
    fn wake_after(&mut self, bytes: usize) -> io::Result<()> {
        if self.low_water != bytes {
            self.reader.wake_after(bytes)?;
            self.low_water = bytes;
        }
        Ok(())
    }

    /// Receives all of `data`. The head of the next reply often follows it, so
    /// the same system call reads that, too.
    async fn fill(&mut self, data: &mut [u8]) -> io::Result<()> {
        let mut filled = 0;
        while filled < data.len() {
            self.wake_after(WAKE_BYTES.min(data.len() - filled))?;
            let mut next = [0; LOOK_BYTES];
            let rest = &mut data[filled..];
            let wanted = rest.len();
            let places = &mut [IoSliceMut::new(rest), IoSliceMut::new(&mut next)];
            let reader = &mut self.reader;
            let got = poll_fn(|context| reader.poll_read_vectored(context, places)).await?;
            if got == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
            }
            filled += got.min(wanted);
            self.stream.extend_from_slice(&next[..got.saturating_sub(wanted)]);
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "tcp_tests.rs"]
pub(crate) mod tests;
