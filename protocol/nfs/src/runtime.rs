//! Environment of the protocol: callers, clocks, and a way to continue work
//! after a reply.

use crate::callback_security::CallbackSecurity;
use std::future::{Future, poll_fn};
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Poll;
use zgate_rpc::Credential;
use zgate_store::{Caller, Timestamp};
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

/// Protection of a connection by TLS (RFC 9289), the weakest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protection {
    /// None.
    #[default]
    Plain,
    /// TLS; the client has not authenticated itself.
    Tls,
    /// TLS; the client has a certificate that the server trusts.
    MutualTls,
}

/// SHA-256 of a certificate in DER form.
pub type CertificateDigest = [u8; 32];

/// A client certificate that an authority of the gateway has signed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerCertificate {
    /// Its digest.
    pub digest: CertificateDigest,
    /// Digests of the gateway's authorities below which it was signed.
    pub authorities: Vec<CertificateDigest>,
    /// Its subject alternative names as `kind:value`, `dns:` and `ip:` in lower
    /// case.
    pub names: Vec<Box<str>>,
    /// The user that it names; unset while the name service has not told, and `None` where
    /// it names no user of the gateway's machine.
    pub user: OnceLock<Option<Arc<Caller>>>,
}

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
    /// Its protection by TLS.
    pub protection: Protection,
    /// The socket encrypts what is sent: replies may have file spans, as in the clear.
    pub kernel_encrypts: bool,
    /// The certificate that it has shown, in mutual TLS.
    pub certificate: Option<Arc<PeerCertificate>>,
}

impl Peer {
    /// Returns whether the process itself encrypts what it sends to the peer.
    #[must_use]
    pub fn is_sealed(&self) -> bool {
        self.protection > Protection::Plain && !self.kernel_encrypts
    }
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
    pub entered: EnteredExport,
    /// The last access that was refused, for the log.
    pub refused: RefusedAccess,
    /// Groups of the caller as the server knows them, if a client entry takes them
    /// from there: for each user that it is with such an entry.
    pub groups: Option<Arc<[UserGroups]>>,
}

/// The groups of a user of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserGroups {
    /// The user.
    pub uid: u32,
    /// All of its groups.
    pub groups: Arc<[u32]>,
}

/// An access that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Number of the export; none if it is about all of them.
    pub export: Option<u32>,
    /// The reason, for people.
    pub reason: &'static str,
}

/// The last access of a call that was refused.
#[derive(Debug, Default)]
pub struct RefusedAccess(Mutex<Option<Refused>>);

impl Clone for RefusedAccess {
    fn clone(&self) -> Self {
        Self(Mutex::new(*self.last()))
    }
}

impl RefusedAccess {
    fn last(&self) -> MutexGuard<'_, Option<Refused>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a refusal.
    pub fn set(&self, refused: Refused) {
        *self.last() = Some(refused);
    }

    /// Returns the last refusal and forgets it.
    pub fn take(&self) -> Option<Refused> {
        self.last().take()
    }
}

/// Number of the export that a call entered last.
#[derive(Debug)]
pub struct EnteredExport(AtomicU64);

impl Default for EnteredExport {
    fn default() -> Self {
        Self(AtomicU64::new(Self::NONE))
    }
}

impl Clone for EnteredExport {
    fn clone(&self) -> Self {
        Self(AtomicU64::new(self.0.load(Ordering::Relaxed)))
    }
}

impl EnteredExport {
    /// Value that is no number of an export.
    const NONE: u64 = u64::MAX;

    /// Notes that the call enters an export.
    pub fn set(&self, number: u32) {
        self.0.store(number.into(), Ordering::Relaxed);
    }

    /// Returns the number of the export; `None` if the call has entered none.
    pub fn get(&self) -> Option<u32> {
        u32::try_from(self.0.load(Ordering::Relaxed)).ok()
    }
}

/// A boxed future.
pub type BoxedFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Destination of a callback.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CallbackPath {
    /// A connection made by the client (RFC 8881 §2.10.3.1).
    Connection(ConnectionId),
    /// An address named by the client (NFSv4.0), parsed from the universal
    /// address.
    Address(std::net::SocketAddr),
    /// Such an address of a client that is known by Kerberos: the runtime puts
    /// calls under a security context, and takes replies out of it.
    Protected(std::net::SocketAddr, Arc<CallbackSecurity>),
}

/// Reason of a callback without a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallbackFailure {
    /// The path no longer exists or cannot be reached.
    Unreachable,
    /// No answer in time.
    TimedOut,
}

/// Users and groups have names and ids of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PrincipalKind {
    /// A user.
    User,
    /// A group.
    Group,
}

/// A user or a group of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PrincipalId {
    /// A user.
    User(u32),
    /// A group.
    Group(u32),
}

impl PrincipalId {
    /// Its number.
    #[must_use]
    pub fn number(self) -> u32 {
        match self {
            Self::User(id) | Self::Group(id) => id,
        }
    }
}

/// Names of users and groups of the server, by its name service. The answers are
/// kept; the futures wait while one is not known yet, so callers bound them.
pub trait Names: Send + Sync {
    /// Domain of all names.
    fn domain(&self) -> Arc<str>;

    /// The name of a user or group; `None`: it has none, or the service cannot
    /// tell.
    fn name_of(&self, id: PrincipalId) -> BoxedFuture<Option<Arc<str>>>;

    /// The id of a user or group; `None`: there is none, or the service cannot
    /// tell.
    fn id_of(&self, kind: PrincipalKind, name: &str) -> BoxedFuture<Option<u32>>;
}

/// The gateway's part of the protocol: threads, sockets and timers.
pub trait Runtime: Send + Sync {
    /// Runs `work` to completion on the current core, after the reply. From a thread that is no
    /// core's: on some core; it is dropped if none runs.
    fn spawn(&self, work: BoxedFuture<()>);

    /// Sends an RPC call to a client and waits, for a bounded time, for the
    /// reply: the whole RPC reply message. `call` carries its own xid.
    fn callback(
        &self,
        path: CallbackPath,
        xid: u32,
        call: Message,
    ) -> BoxedFuture<Result<bytes::Bytes, CallbackFailure>>;

    /// Sleeps.
    fn sleep(&self, milliseconds: u64) -> BoxedFuture<()>;

    /// Reads the clocks, for work that outlives its request.
    fn now(&self) -> Now;

    /// The seconds of [`Self::now`], without a look at the wall clock.
    fn seconds(&self) -> u64 {
        self.now().seconds()
    }

    /// True if a connection still exists.
    fn connected(&self, connection: ConnectionId) -> bool;

    /// 64 cryptographically random bits.
    fn random(&self) -> u64;

    /// Names of users and groups in NFSv4; `None`: they are numbers.
    fn names(&self) -> Option<&dyn Names> {
        None
    }
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
