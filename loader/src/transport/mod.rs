//! Transports of calls, and of data into the caller's memory.

pub mod choice;
pub mod dial;
pub mod rdma;
pub mod read_buffer;
pub mod tcp;

pub use choice::TransportChoice;
pub use dial::{Dial, Dialing, Halves, ReceiveHalf};
pub use read_buffer::{Arrived, PlacementBuffer, ReadBuffer};

use crate::error::ClientError;
use bytes::Bytes;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use zgate_xdr::Message;

/// Placement of the data of READs, in bytes.
#[derive(Debug, Default)]
pub struct Counters {
    device: AtomicU64,
    socket: AtomicU64,
    copied: AtomicU64,
}

/// Values of [`Counters`] at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Placed {
    /// Written by the RDMA device to its final place.
    pub device_bytes: u64,
    /// Received from a socket to its final place.
    pub socket_bytes: u64,
    /// Received elsewhere first, and copied.
    pub copied_bytes: u64,
}

impl Counters {
    pub(crate) fn add(&self, placed: Placed) {
        self.device.fetch_add(placed.device_bytes, Ordering::Relaxed);
        self.socket.fetch_add(placed.socket_bytes, Ordering::Relaxed);
        self.copied.fetch_add(placed.copied_bytes, Ordering::Relaxed);
    }

    /// Returns the present values.
    #[must_use]
    pub fn read(&self) -> Placed {
        Placed {
            device_bytes: self.device.load(Ordering::Relaxed),
            socket_bytes: self.socket.load(Ordering::Relaxed),
            copied_bytes: self.copied.load(Ordering::Relaxed),
        }
    }
}

/// Handler of a server's callbacks (RFC 8881 §2.10.3).
pub trait Callbacks: std::fmt::Debug + Send + Sync {
    /// Returns the reply to an RPC call; none if it is not a call.
    fn answer(&self, call: &[u8]) -> Option<Bytes>;
    /// Reports that a connection for callbacks was lost.
    fn connection_lost(&self);
}

/// A connection to a server.
#[derive(Debug)]
pub enum Connection {
    /// Over TCP.
    Tcp(tcp::RpcConnection),
    /// Over RDMA.
    Rdma(rdma::RdmaConnection),
}

impl Connection {
    /// Returns whether it uses RDMA.
    #[must_use]
    pub fn is_rdma(&self) -> bool {
        matches!(self, Self::Rdma(_))
    }

    /// Returns whether it is lost.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        match self {
            Self::Tcp(connection) => connection.is_closed(),
            Self::Rdma(connection) => connection.is_closed(),
        }
    }

    /// Returns an unused transaction id.
    pub fn next_xid(&self) -> u32 {
        match self {
            Self::Tcp(connection) => connection.next_xid(),
            Self::Rdma(connection) => connection.next_xid(),
        }
    }

    /// Sends a call, whose header contains `xid`, and waits for the reply, the
    /// whole RPC message.
    ///
    /// # Errors
    /// [`ClientError::Transport`] if the connection is lost.
    pub async fn call(&self, xid: u32, message: Message) -> Result<Bytes, ClientError> {
        self.call_into(xid, message, None).await.reply
    }

    /// Sends a READ whose data is to be placed in `read_buffer`.
    pub async fn call_into(
        &self,
        xid: u32,
        message: Message,
        read_buffer: Option<ReadBuffer>,
    ) -> Arrived {
        match self {
            Self::Tcp(connection) => connection.call_into(xid, message, read_buffer).await,
            Self::Rdma(connection) => connection.call_into(xid, message, read_buffer).await,
        }
    }
}

/// Returns the error for a lost connection.
fn lost(address: SocketAddr) -> ClientError {
    ClientError::Transport {
        address: address.to_string(),
        source: io::Error::from(io::ErrorKind::ConnectionReset),
    }
}
