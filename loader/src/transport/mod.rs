//! Carrying calls to a server and data into the caller's memory.

pub mod choice;
pub mod landing;
pub mod rdma;
pub mod tcp;

pub use choice::TransportChoice;
pub use landing::{Arrived, Landing, Place};

use crate::error::ClientError;
use bytes::Bytes;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use zgate_xdr::Message;

/// Where the data of READs went. All in bytes.
#[derive(Debug, Default)]
pub struct Counters {
    device: AtomicU64,
    socket: AtomicU64,
    copied: AtomicU64,
}

/// What [`Counters`] said at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Placed {
    /// Written by the RDMA device where it stays.
    pub device_bytes: u64,
    /// Received from a socket to where it stays.
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

    /// What they say now.
    #[must_use]
    pub fn read(&self) -> Placed {
        Placed {
            device_bytes: self.device.load(Ordering::Relaxed),
            socket_bytes: self.socket.load(Ordering::Relaxed),
            copied_bytes: self.copied.load(Ordering::Relaxed),
        }
    }
}

/// Who answers what a server calls back (RFC 8881 §2.10.3).
pub trait Callbacks: std::fmt::Debug + Send + Sync {
    /// The answer to an RPC call; none to what is no call.
    fn answer(&self, call: &[u8]) -> Option<Bytes>;
    /// A connection that callbacks may have come on is gone.
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
    /// Whether it is one of RDMA.
    #[must_use]
    pub fn is_rdma(&self) -> bool {
        matches!(self, Self::Rdma(_))
    }

    /// Whether it is lost.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        match self {
            Self::Tcp(connection) => connection.is_closed(),
            Self::Rdma(connection) => connection.is_closed(),
        }
    }

    /// A transaction id not in use.
    pub fn next_xid(&self) -> u32 {
        match self {
            Self::Tcp(connection) => connection.next_xid(),
            Self::Rdma(connection) => connection.next_xid(),
        }
    }

    /// Sends a call, whose header carries `xid`, and waits for the reply: the
    /// whole RPC message.
    ///
    /// # Errors
    /// [`ClientError::Transport`] when the connection is gone.
    pub async fn call(&self, xid: u32, message: Message) -> Result<Bytes, ClientError> {
        self.call_into(xid, message, None).await.reply
    }

    /// The same for a READ whose data is to be placed in `landing`.
    pub async fn call_into(&self, xid: u32, message: Message, landing: Option<Landing>) -> Arrived {
        match self {
            Self::Tcp(connection) => connection.call_into(xid, message, landing).await,
            Self::Rdma(connection) => connection.call_into(xid, message, landing).await,
        }
    }
}

/// A connection is gone.
fn lost(address: SocketAddr) -> ClientError {
    ClientError::Transport {
        address: address.to_string(),
        source: io::Error::from(io::ErrorKind::ConnectionReset),
    }
}
