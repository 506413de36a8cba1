//! What the protocol needs from the outside: who calls, what time it is, and
//! a way to let work go on after a reply.

use std::future::{Future, poll_fn};
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::task::Poll;
use zgate_rpc::Credential;
use zgate_store::Timestamp;
use zgate_xdr::Message;

/// The moment a request is served; both clocks are read once by the gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Wall clock.
    pub wall: Timestamp,
    /// Monotonic clock in nanoseconds; leases are counted on it.
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
    /// Whether the connection is RDMA (else TCP).
    pub rdma: bool,
}

/// One RPC call as the operations see it.
#[derive(Clone, Debug)]
pub struct Call {
    /// Where it came from.
    pub peer: Peer,
    /// Who it says it is.
    pub credential: Credential,
    /// Transaction id.
    pub xid: u32,
    /// Whether bulk data may be answered as a file span (plain TCP).
    pub span_allowed: bool,
}

/// A boxed future that stays on its core.
pub type LocalFuture<T> = Pin<Box<dyn Future<Output = T>>>;

/// Where a callback is sent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CallbackPath {
    /// Back along a connection the client made (RFC 8881 §2.10.3.1).
    Connection(ConnectionId),
    /// To an address the client named (NFSv4.0): universal address parsed.
    Address(std::net::SocketAddr),
}

/// Why a callback got no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallbackFailure {
    /// The path is gone or cannot be reached.
    Unreachable,
    /// No answer in time.
    TimedOut,
}

/// The gateway's side of the protocol: threads, sockets and timers live there.
pub trait Runtime: Send + Sync {
    /// Lets `work` run to its end on the current core, after the reply.
    fn spawn(&self, work: LocalFuture<()>);

    /// Sends an RPC call to a client and waits, for a bounded time, for the
    /// reply: the whole RPC reply message. `call` carries its own xid.
    fn callback(
        &self,
        path: CallbackPath,
        xid: u32,
        call: Message,
    ) -> LocalFuture<Result<bytes::Bytes, CallbackFailure>>;

    /// Waits.
    fn sleep(&self, milliseconds: u64) -> LocalFuture<()>;

    /// The clocks, for work that outlives its request.
    fn now(&self) -> Now;

    /// Whether a connection is still there.
    fn connected(&self, connection: ConnectionId) -> bool;

    /// 64 bits that nobody can guess, not even who knows those before.
    fn random(&self) -> u64;
}

/// The outcome of `work`, or `None` when it takes longer than this: it is
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
