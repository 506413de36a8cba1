//! Environment of the protocol: callers, clocks, and a way to continue work
//! after a reply.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::task::Poll;
use zgate_rpc::Credential;
use zgate_store::Timestamp;
use zgate_xdr::Message;

/// Time of a request; the gateway reads both clocks once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Wall-clock time.
    pub wall: Timestamp,
    /// Monotonic clock in nanoseconds; used for leases.
    pub monotonic_nanos: u64,
}

impl Now {
    /// Whole seconds of the monotonic clock.
    #[must_use]
    pub fn seconds(&self) -> u64 {
        self.monotonic_nanos / 1_000_000_000
    }
}

/// Number of a transport connection, never reused while the server runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(pub u64);

/// The other end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its address.
    pub address: IpAddr,
    /// Its port.
    pub port: u16,
    /// The connection.
    pub connection: ConnectionId,
    /// The connection is RDMA (otherwise TCP).
    pub rdma: bool,
}

/// One RPC call, as seen by the operations.
#[derive(Clone, Debug)]
pub struct Call {
    /// Its source.
    pub peer: Peer,
    /// The credential of the caller.
    pub credential: Credential,
    /// Transaction id.
    pub xid: u32,
    /// True if data may be answered as a file span (TCP without encryption).
    pub span_allowed: bool,
    /// Number of the export that the call entered last, for statistics.
    pub entered: Cell<Option<u32>>,
}

/// A boxed future that is not sent between threads.
pub type LocalFuture<T> = Pin<Box<dyn Future<Output = T>>>;

/// Destination of a callback.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CallbackPath {
    /// A connection made by the client (RFC 8881 §2.10.3.1).
    Connection(ConnectionId),
    /// An address named by the client (NFSv4.0), parsed from the universal
    /// address.
    Address(std::net::SocketAddr),
}

/// Reason of a callback without a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallbackFailure {
    /// The path no longer exists or cannot be reached.
    Unreachable,
    /// No answer in time.
    TimedOut,
}

/// The gateway's part of the protocol: threads, sockets and timers.
pub trait Runtime: Send + Sync {
    /// Runs `work` to completion on the current core, after the reply.
    fn spawn(&self, work: LocalFuture<()>);

    /// Sends an RPC call to a client and waits, for a bounded time, for the
    /// reply: the whole RPC reply message. `call` carries its own xid.
    fn callback(
        &self,
        path: CallbackPath,
        xid: u32,
        call: Message,
    ) -> LocalFuture<Result<bytes::Bytes, CallbackFailure>>;

    /// Sleeps.
    fn sleep(&self, milliseconds: u64) -> LocalFuture<()>;

    /// Reads the clocks, for work that outlives its request.
    fn now(&self) -> Now;

    /// True if a connection still exists.
    fn connected(&self, connection: ConnectionId) -> bool;

    /// 64 cryptographically random bits.
    fn random(&self) -> u64;
}

/// The result of `work`, or `None` if it takes longer than this: `work` is
/// dropped then.
pub async fn within<T>(
    runtime: &dyn Runtime,
    milliseconds: u64,
    work: impl Future<Output = T>,
) -> Option<T> {
    let mut work = pin!(work);
    let mut limit = None;
    poll_fn(|context| {
        if let Poll::Ready(value) = work.as_mut().poll(context) {
            return Poll::Ready(Some(value));
        }
        let limit = limit.get_or_insert_with(|| runtime.sleep(milliseconds));
        limit.as_mut().poll(context).map(|()| None)
    })
    .await
}
