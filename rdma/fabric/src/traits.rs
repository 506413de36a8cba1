//! Traits of a fabric and its connections.

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

/// Access of peers to exposed memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Peers may read.
    pub read: bool,
    /// Peers may write.
    pub write: bool,
}

/// Sizes of a connection's queues.
#[derive(Clone, Copy, Debug)]
pub struct QueueOptions {
    /// Number of receives that may be posted.
    pub receives: u32,
    /// Number of sends, RDMA Writes and RDMA Reads in flight; more are queued
    /// until there is room.
    pub sends: u32,
    /// Number of RDMA Reads in flight to the peer; limited by the peer as well.
    pub initiator_depth: u8,
    /// Number of RDMA Reads that the peer may have in flight.
    pub responder_resources: u8,
    /// Number of retries for a peer without a posted receive; 7 means
    /// unlimited.
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

/// Parameters of one side of a connection.
#[derive(Debug, Default)]
pub struct Setup {
    /// Sizes of its queues.
    pub options: QueueOptions,
    /// Receives that are posted before the peer can send.
    pub receives: Vec<(WorkId, AlignedBuf)>,
    /// Private data for the peer; see [`crate::limits`].
    pub private_data: Vec<u8>,
}

/// Reason for which a connection was not established.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// The peer rejected it, with this private data.
    #[error("the peer rejects the connection")]
    Rejected(Vec<u8>),
    /// The peer did not answer, or the system failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A connection initiated by this side.
#[derive(Debug)]
pub struct Established {
    /// The connection.
    pub connection: Box<dyn Connection>,
    /// Private data of the peer's answer. Zeros may follow it.
    pub private_data: Vec<u8>,
}

/// A fabric: makes connections and registers memory.
pub trait Fabric: Send + Sync + fmt::Debug {
    /// Listens on an address.
    ///
    /// # Errors
    /// The error of the operating system.
    fn listen(&self, address: SocketAddr) -> io::Result<Box<dyn Listener>>;

    /// Connects to an address.
    fn connect(
        &self,
        to: SocketAddr,
        setup: Setup,
    ) -> BoxFuture<'static, Result<Established, ConnectError>>;

    /// Registers a buffer for peers. The owner cannot access it until it is
    /// withdrawn.
    ///
    /// # Errors
    /// The error of the operating system: usually memory that cannot be locked.
    fn expose(&self, buffer: AlignedBuf, access: Access) -> io::Result<Box<dyn Exposed>>;

    /// Registers memory of the caller for peers; returns the memory on failure.
    ///
    /// # Errors
    /// The error of the operating system, and the buffer.
    fn lend(
        &self,
        buffer: AlignedBuf,
        access: Access,
    ) -> Result<Box<dyn Exposed>, (io::Error, AlignedBuf)> {
        self.expose(buffer, access).map_err(|error| (error, AlignedBuf::zeroed(0)))
    }

    /// Lets peers write part of another device's memory until the window is
    /// dropped. Registration may take long.
    ///
    /// # Errors
    /// The error of the operating system: the devices cannot reach each other.
    fn expose_foreign(&self, memory: Arc<dyn Foreign>, range: Range<usize>) -> io::Result<Window> {
        let _ = (memory, range);
        Err(io::Error::new(io::ErrorKind::Unsupported, "the fabric reaches host memory only"))
    }

    /// Returns whether a Send can invalidate memory of the peer.
    fn send_with_invalidate(&self) -> bool;

    /// Returns a stream of the devices' events. Needs a tokio runtime. Never
    /// ends.
    fn device_events(&self) -> BoxStream<'static, DeviceEvent> {
        stream::pending().boxed()
    }

    /// Returns whether a peer's Send can invalidate exposed memory.
    fn remote_invalidation(&self) -> bool;
}

/// Memory exposed to peers.
pub trait Exposed: Send + fmt::Debug {
    /// Returns the key by which a peer names it.
    fn rkey(&self) -> u32;

    /// Returns the address by which a peer names its first byte.
    fn address(&self) -> u64;

    /// Returns the length in bytes.
    fn len(&self) -> usize;

    /// Returns whether there are no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Ends the exposure. No peer can access the buffer afterwards.
    fn withdraw(self: Box<Self>) -> AlignedBuf;
}

/// Source of connection requests.
pub trait Listener: Send + fmt::Debug {
    /// Returns the address it listens on.
    fn local_address(&self) -> SocketAddr;

    /// Waits for the next request.
    ///
    /// # Errors
    /// The error of the operating system.
    fn accept(&mut self) -> BoxFuture<'_, io::Result<Box<dyn Request>>>;
}

/// A peer that wants to connect.
pub trait Request: Send + fmt::Debug {
    /// Returns the peer's address.
    fn peer_address(&self) -> SocketAddr;

    /// Returns the local address of the request, if the system reports it.
    fn local_address(&self) -> Option<SocketAddr>;

    /// Returns the peer's private data. Zeros may follow it.
    fn private_data(&self) -> &[u8];

    /// Accepts; the connection is established on return.
    fn accept(self: Box<Self>, setup: Setup)
    -> BoxFuture<'static, io::Result<Box<dyn Connection>>>;

    /// Rejects.
    fn reject(self: Box<Self>, private_data: Vec<u8>) -> BoxFuture<'static, ()>;
}

/// A reliable connection. Work is done in the order in which it was posted;
/// work posted on a broken connection is returned as flushed.
pub trait Connection: Send + fmt::Debug {
    /// Returns the peer's address.
    fn peer_address(&self) -> SocketAddr;

    /// Posts a buffer for one message.
    fn post_receive(&mut self, id: WorkId, buffer: AlignedBuf);

    /// Reads the peer's memory.
    ///
    /// # Errors
    /// [`PostError`]; the buffers are dropped.
    fn post_read(&mut self, batch: ReadBatch) -> Result<(), PostError>;

    /// Writes the peer's memory, and then sends a message.
    ///
    /// # Errors
    /// [`PostError`].
    fn post_send(&mut self, batch: SendBatch) -> Result<(), PostError>;

    /// Posts a batch whose completion is not urgent: its [`Event::Sent`] may
    /// come as late as that of work behind it, and the device need not raise an
    /// interrupt for it.
    ///
    /// # Errors
    /// [`PostError`].
    fn post_send_quietly(&mut self, batch: SendBatch) -> Result<(), PostError> {
        self.post_send(batch)
    }

    /// Polls for the next event. [`Event::Disconnected`] is the last one.
    fn poll_event(&mut self, task: &mut Context<'_>) -> Poll<Event>;

    /// Returns the next event that arrived together with an earlier one. Does
    /// not poll the device.
    fn next_at_hand(&mut self) -> Option<Event>;

    /// Ends the connection. All work is returned, then [`Event::Disconnected`].
    fn disconnect(&mut self);
}

impl dyn Connection + '_ {
    /// Waits for the next event.
    pub async fn event(&mut self) -> Event {
        std::future::poll_fn(|task| self.poll_event(task)).await
    }
}
