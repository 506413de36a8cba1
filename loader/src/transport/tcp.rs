//! RPC over one TCP connection, any number of calls in flight.

use crate::error::ClientError;
use bytes::{Buf, Bytes, BytesMut};
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use zgate_rpc::record::{MARKER_BYTES, Marker};
use zgate_store::{BufferPool, Payload};
use zgate_xdr::{Message, Segment};

/// Largest reply taken, in bytes.
const MAX_REPLY_BYTES: usize = 8 << 20;
/// Small replies share read buffers of this size.
const STREAM_BYTES: usize = 64 << 10;

type Waiting = Arc<Mutex<HashMap<u32, oneshot::Sender<Bytes>>>>;

/// A connection to a server.
#[derive(Debug)]
pub struct RpcConnection {
    address: SocketAddr,
    xid: AtomicU32,
    waiting: Waiting,
    outgoing: mpsc::UnboundedSender<Message>,
    tasks: Vec<JoinHandle<()>>,
}

impl Drop for RpcConnection {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl RpcConnection {
    /// Connects. Replies are received into buffers of `pool`.
    ///
    /// # Errors
    /// [`ClientError::Transport`].
    pub async fn connect(address: SocketAddr, pool: BufferPool) -> Result<Self, ClientError> {
        let failed = |source| ClientError::Transport { address: address.to_string(), source };
        let stream = tokio::net::TcpStream::connect(address).await.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        let (reader, writer) = stream.into_split();
        let waiting = Waiting::default();
        let (outgoing, queue) = mpsc::unbounded_channel();
        let routes = Arc::clone(&waiting);
        let receive = tokio::spawn(async move {
            if let Err(error) = receive(reader, &routes, &pool).await {
                tracing::debug!(%error, "connection lost");
            }
            // Whoever waits hears at once that no answer comes.
            routes.lock().unwrap_or_else(PoisonError::into_inner).clear();
        });
        let send = tokio::spawn(send(writer, queue));
        Ok(Self { address, xid: AtomicU32::new(1), waiting, outgoing, tasks: vec![receive, send] })
    }

    /// The server.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A transaction id not in use.
    pub fn next_xid(&self) -> u32 {
        self.xid.fetch_add(1, Ordering::Relaxed)
    }

    /// Sends a call, whose header carries `xid`, and waits for the reply: the
    /// whole RPC message.
    ///
    /// # Errors
    /// [`ClientError::Transport`] when the connection is gone.
    pub async fn call(&self, xid: u32, message: Message) -> Result<Bytes, ClientError> {
        let (sender, receiver) = oneshot::channel();
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(xid, sender);
        let lost = || ClientError::Transport {
            address: self.address.to_string(),
            source: io::Error::from(io::ErrorKind::ConnectionReset),
        };
        self.outgoing.send(message).map_err(|_| lost())?;
        receiver.await.map_err(|_| lost())
    }
}

async fn send(mut writer: OwnedWriteHalf, mut queue: mpsc::UnboundedReceiver<Message>) {
    let mut batch = Vec::new();
    let mut small = BytesMut::new();
    while queue.recv_many(&mut batch, 64).await > 0 {
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

async fn receive(
    mut reader: OwnedReadHalf,
    waiting: &Waiting,
    pool: &BufferPool,
) -> io::Result<()> {
    let mut stream = BytesMut::with_capacity(STREAM_BYTES);
    loop {
        while stream.len() < MARKER_BYTES {
            fill(&mut reader, &mut stream).await?;
        }
        let marker = Marker::parse([stream[0], stream[1], stream[2], stream[3]]);
        if marker.len > MAX_REPLY_BYTES || !marker.last {
            return Err(io::Error::from(io::ErrorKind::InvalidData));
        }
        let record = if MARKER_BYTES + marker.len <= STREAM_BYTES / 2 {
            while stream.len() < MARKER_BYTES + marker.len {
                fill(&mut reader, &mut stream).await?;
            }
            let mut record = stream.split_to(MARKER_BYTES + marker.len).freeze();
            record.advance(MARKER_BYTES);
            record
        } else {
            let mut buffer = pool.take(marker.len);
            let have = (stream.len() - MARKER_BYTES).min(marker.len);
            buffer[..have].copy_from_slice(&stream[MARKER_BYTES..MARKER_BYTES + have]);
            let _ = stream.split_to(MARKER_BYTES + have);
            reader.read_exact(&mut buffer[have..]).await?;
            buffer.into_bytes()
        };
        let Some(xid) = record.first_chunk::<4>().map(|raw| u32::from_be_bytes(*raw)) else {
            return Err(io::Error::from(io::ErrorKind::InvalidData));
        };
        let waiter = waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&xid);
        if let Some(waiter) = waiter {
            // The caller may have given up.
            let _ = waiter.send(record);
        }
    }
}

async fn fill(reader: &mut OwnedReadHalf, stream: &mut BytesMut) -> io::Result<()> {
    stream.reserve(STREAM_BYTES / 2);
    match reader.read_buf(stream).await? {
        0 => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
        _ => Ok(()),
    }
}
