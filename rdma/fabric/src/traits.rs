//! The traits.

use crate::device::DeviceEvent;
use crate::foreign::{Foreign, Window};
use crate::work::{Event, PostError, ReadBatch, SendBatch, WorkId};
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, StreamExt};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::task::{Context, Poll};
use thiserror::Error;
use zgate_store::AlignedBuf;

/// What a peer may do with exposed memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Read it.
    pub read: bool,
    /// Write it.
    pub write: bool,
}

/// Sizes of a connection's queues.
#[derive(Clone, Copy, Debug)]
pub struct QueueOptions {
    /// Receives that may be posted.
    pub receives: u32,
    /// Sends, RDMA Writes and RDMA Reads under way at the same time; more are
    /// kept until there is room.
    pub sends: u32,
    /// RDMA Reads under way towards the peer; the peer's limit counts, too.
    pub initiator_depth: u8,
    /// RDMA Reads the peer may have under way.
    pub responder_resources: u8,
    /// How often a peer without a posted receive is tried again; 7 is for
    /// ever.
    pub rnr_retries: u8,
}

impl Default for QueueOptions {
    fn default() -> Self {
        Self {
            receives: 64,
            sends: 256,
            initiator_depth: 16,
            responder_resources: 16,
            rnr_retries: 6,
        }
    }
}

/// What a side brings to a connection.
#[derive(Debug, Default)]
pub struct Setup {
    /// Its queues.
    pub options: QueueOptions,
    /// Receives posted before the peer can send.
    pub receives: Vec<(WorkId, AlignedBuf)>,
    /// What the peer is told; see [`crate::limits`].
    pub private_data: Vec<u8>,
}

/// Why no connection was made.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// The peer said no, with this private data.
    #[error("the peer rejects the connection")]
    Rejected(Vec<u8>),
    /// Nobody answers, or the system failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A connection this side asked for.
#[derive(Debug)]
pub struct Established {
    /// The connection.
    pub connection: Box<dyn Connection>,
    /// What the peer said with its answer. Zeros may follow it.
    pub private_data: Vec<u8>,
}

/// A way to make connections and to register memory.
pub trait Fabric: Send + Sync + fmt::Debug {
    /// Listens on an address.
    ///
    /// # Errors
    /// The system's.
    fn listen(&self, address: SocketAddr) -> io::Result<Box<dyn Listener>>;

    /// Connects to an address.
    fn connect(
        &self,
        to: SocketAddr,
        setup: Setup,
    ) -> BoxFuture<'static, Result<Established, ConnectError>>;

    /// Lets peers use a buffer, which is out of reach until it is withdrawn.
    ///
    /// # Errors
    /// The system's: memory that cannot be locked, mostly.
    fn expose(&self, buffer: AlignedBuf, access: Access) -> io::Result<Box<dyn Exposed>>;

    /// The same with somebody else's memory, which comes back when it fails.
    ///
    /// # Errors
    /// The system's, and the buffer.
    fn lend(
        &self,
        buffer: AlignedBuf,
        access: Access,
    ) -> Result<Box<dyn Exposed>, (io::Error, AlignedBuf)> {
        self.expose(buffer, access).map_err(|error| (error, AlignedBuf::zeroed(0)))
    }

    /// Lets peers write part of another device's memory, until the window is
    /// dropped. Registering takes its time.
    ///
    /// # Errors
    /// The system's: the devices cannot reach each other.
    fn expose_foreign(&self, memory: Arc<dyn Foreign>, range: Range<usize>) -> io::Result<Window> {
        let _ = (memory, range);
        Err(io::Error::new(io::ErrorKind::Unsupported, "the fabric reaches host memory only"))
    }

    /// Whether a Send can take the peer's memory out of use.
    fn send_with_invalidate(&self) -> bool;

    /// What happens to the devices. Needs a tokio runtime. Never ends.
    fn device_events(&self) -> BoxStream<'static, DeviceEvent> {
        stream::pending().boxed()
    }

    /// Whether a peer's Send can take exposed memory out of use.
    fn remote_invalidation(&self) -> bool;
}

/// Memory peers may use.
pub trait Exposed: Send + fmt::Debug {
    /// The key a peer names it by.
    fn rkey(&self) -> u32;

    /// The address a peer names its first byte by.
    fn address(&self) -> u64;

    /// Length in bytes.
    fn len(&self) -> usize;

    /// Whether there are no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Ends the exposure. No peer can reach the buffer after this.
    fn withdraw(self: Box<Self>) -> AlignedBuf;
}

/// Connection requests as they come.
pub trait Listener: Send + fmt::Debug {
    /// Where it listens.
    fn local_address(&self) -> SocketAddr;

    /// The next request.
    ///
    /// # Errors
    /// The system's.
    fn accept(&mut self) -> BoxFuture<'_, io::Result<Box<dyn Request>>>;
}

/// A peer that wants to connect.
pub trait Request: Send + fmt::Debug {
    /// Its address.
    fn peer_address(&self) -> SocketAddr;

    /// The address it came to, where the system tells it.
    fn local_address(&self) -> Option<SocketAddr>;

    /// What it says. Zeros may follow it.
    fn private_data(&self) -> &[u8];

    /// Says yes; the connection is up when this returns.
    fn accept(self: Box<Self>, setup: Setup)
    -> BoxFuture<'static, io::Result<Box<dyn Connection>>>;

    /// Says no.
    fn reject(self: Box<Self>, private_data: Vec<u8>) -> BoxFuture<'static, ()>;
}

/// A reliable connection. Work is done in the order in which it was posted;
/// what is posted on a broken connection comes back flushed.
pub trait Connection: Send + fmt::Debug {
    /// The peer's address.
    fn peer_address(&self) -> SocketAddr;

    /// Gives a buffer for one message.
    fn post_receive(&mut self, id: WorkId, buffer: AlignedBuf);

    /// Reads the peer's memory.
    ///
    /// # Errors
    /// [`PostError`]; the buffers are dropped.
    fn post_read(&mut self, batch: ReadBatch) -> Result<(), PostError>;

    /// Writes the peer's memory, and sends a message behind it.
    ///
    /// # Errors
    /// [`PostError`].
    fn post_send(&mut self, batch: SendBatch) -> Result<(), PostError>;

    /// The same for a message whose end nobody waits for: its [`Event::Sent`] may come
    /// as late as that of work behind it, and a device need not wake anybody for it.
    ///
    /// # Errors
    /// [`PostError`].
    fn post_send_quietly(&mut self, batch: SendBatch) -> Result<(), PostError> {
        self.post_send(batch)
    }

    /// The next event. After [`Event::Disconnected`] there is none.
    fn poll_event(&mut self, task: &mut Context<'_>) -> Poll<Event>;

    /// The next event of those that came together with one that was returned. Looks
    /// for no others.
    fn next_at_hand(&mut self) -> Option<Event>;

    /// Ends the connection. All work comes back, then
    /// [`Event::Disconnected`].
    fn disconnect(&mut self);
}

impl dyn Connection + '_ {
    /// Waits for the next event.
    pub async fn event(&mut self) -> Event {
        std::future::poll_fn(|task| self.poll_event(task)).await
    }
}
