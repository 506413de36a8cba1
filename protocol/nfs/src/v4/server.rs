//! One NFSv4 server: state shared by all COMPOUNDs.

use crate::namespace::{CurrentNamespace, ExportId, HeldNamespace, Namespace};
use crate::runtime::{ConnectionId, Runtime};
use crate::v4::state::State;
use crate::v4::state::view::{ClientView, Holder, StateTotals};
use crate::write_verifier::WriteVerifier;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use zgate_nfs_wire::v4::{OpNum, Status};

/// Server identity (RFC 8881 §2.10.4). Servers with equal owner and scope are
/// trunkable; a stable scope lets clients reclaim after a migration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// so_major_id.
    pub owner_major: Vec<u8>,
    /// so_minor_id.
    pub owner_minor: u64,
    /// eir_server_scope.
    pub scope: Vec<u8>,
}

/// Addresses of this server, by transport. The Linux client tries them with the
/// transport and port of its mount, so each transport has its own list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerAddresses {
    /// Over TCP.
    pub tcp: Vec<IpAddr>,
    /// Over RDMA.
    pub rdma: Vec<IpAddr>,
}

impl ServerAddresses {
    /// The addresses for a client connected over RDMA or TCP.
    #[must_use]
    pub fn of(&self, rdma: bool) -> &[IpAddr] {
        if rdma { &self.rdma } else { &self.tcp }
    }
}

/// Notified of every finished operation; for measurements and counters of the
/// gateway.
pub trait Observer: Send + Sync {
    /// Called at the end of an operation that began at `begun`; returns the
    /// present time, at which the next one begins. Both are times of
    /// [`Now::monotonic_nanos`](crate::Now).
    fn end(&self, op: OpNum, status: Status, begun: u64) -> u64;

    /// Called at the end of an operation that waits for nothing. To read the clock takes
    /// longer than most of these: their time is counted as part of that of the next operation
    /// that may wait, and not at all if none follows.
    fn end_at_once(&self, op: OpNum, status: Status);
}

/// An observer that does nothing.
#[derive(Debug, Default)]
pub struct NoObserver;

impl Observer for NoObserver {
    fn end(&self, _: OpNum, _: Status, begun: u64) -> u64 {
        begun
    }

    fn end_at_once(&self, _: OpNum, _: Status) {}
}

/// Settings of a running server.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Server identity.
    pub identity: Identity,
    /// Number of this server start, greater than all earlier ones; part of
    /// stateids, so that older ones are recognized as stale.
    pub boot_epoch: u32,
    /// Changes at every start: unstable writes may be lost (RFC 8881 §18.32).
    pub write_verifier: [u8; 8],
    /// Lease in seconds.
    pub lease_seconds: u32,
    /// Grace period in seconds; 0: none.
    pub grace_seconds: u32,
    /// Highest minor version served (0 to 2).
    pub max_minor: u8,
    /// Addresses that clients may use together.
    pub addresses: ServerAddresses,
}

/// The server.
pub struct Server {
    /// Settings.
    pub options: ServerOptions,
    /// Clients, sessions, opens, locks, delegations.
    pub state: State,
    /// Environment of the server.
    pub runtime: Arc<dyn Runtime>,
    /// Measures operations.
    pub observer: Arc<dyn Observer>,
    /// Tells clients that unstable data may have been lost.
    pub write_verifier: WriteVerifier,
    /// NFSv4.0 clients whose callback address is on another host, for the log.
    pub(crate) foreign_callbacks: ForeignCallbacks,
    namespace: CurrentNamespace,
    /// Number of replacements of the exports.
    replacements: AtomicU64,
}

/// Rate limit of log lines caused by clients: at most one in ten seconds.
#[derive(Debug, Default)]
struct LogLimit {
    next_seconds: AtomicU64,
}

impl LogLimit {
    const PAUSE_SECONDS: u64 = 10;

    /// True if another line may be logged.
    fn is_due(&self, now_seconds: u64) -> bool {
        let next = self.next_seconds.load(Ordering::Relaxed);
        let later = now_seconds + Self::PAUSE_SECONDS;
        now_seconds >= next
            && self
                .next_seconds
                .compare_exchange(next, later, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }
}

/// Logs NFSv4.0 clients whose callback address is on another host.
#[derive(Debug, Default)]
pub(crate) struct ForeignCallbacks(LogLimit);

impl ForeignCallbacks {
    pub(crate) fn note(&self, client: IpAddr, callback: SocketAddr, now_seconds: u64) {
        if self.0.is_due(now_seconds) {
            tracing::info!(
                %client,
                %callback,
                "no delegations: the callback address of the NFSv4.0 client differs from its \
                 source address; set clientaddr= on the client, or mount with NFSv4.1 or later"
            );
        }
    }
}

impl Server {
    /// A server over `namespace`.
    #[must_use]
    pub fn new(
        options: ServerOptions,
        state: State,
        namespace: Namespace,
        runtime: Arc<dyn Runtime>,
        observer: Arc<dyn Observer>,
    ) -> Self {
        Self {
            write_verifier: WriteVerifier::new(options.write_verifier),
            options,
            state,
            runtime,
            observer,
            foreign_callbacks: ForeignCallbacks::default(),
            namespace: CurrentNamespace::new(namespace),
            replacements: AtomicU64::new(0),
        }
    }

    /// True if any export names the host, regardless of protocol version and
    /// transport. Other hosts have no access.
    #[must_use]
    pub fn admits_host(&self, address: IpAddr) -> bool {
        self.namespace().names_host(address)
    }

    /// A number that changes after the exports: a result of
    /// [`Self::admits_host`] is valid until then.
    #[must_use]
    pub fn namespace_version(&self) -> u64 {
        self.replacements.load(Ordering::Acquire)
    }

    /// The current exports.
    #[must_use]
    pub fn namespace(&self) -> HeldNamespace {
        self.namespace.get()
    }

    /// Returns whether a request, of any version, uses the export at this path as it was before
    /// its latest change.
    #[must_use]
    pub fn is_used_as_before(&self, pseudo_path: &str) -> bool {
        self.namespace.is_used_as_before(pseudo_path)
    }

    /// Replaces the exports; COMPOUNDs in progress keep the old ones. The open
    /// files of exports that were removed, or have another root now, are
    /// closed: their file systems can be unmounted.
    pub fn replace_namespace(&self, namespace: Namespace) {
        let (before, namespace) = self.namespace.replace(namespace);
        self.replacements.fetch_add(1, Ordering::Release);
        let now_seconds = self.runtime.now().seconds();
        self.state.close_vanished(&before, &namespace, now_seconds);
        self.state.close_excluded(&before, &namespace, now_seconds);
    }

    /// To be called when files of some exports may have other content than a moment ago, and
    /// nobody has changed them through this server: a file system went back to a snapshot, or
    /// was away. Recalls their delegations, since nothing in their holders' caches is certain any
    /// more, and those that clients reclaim in this grace period, when they do. That uncommitted
    /// data may be gone is told by the stores ([`zgate_store::FileStore::losses`]).
    pub fn content_replaced(&self, exports: &BTreeSet<ExportId>) {
        // First: what is reclaimed in between is recalled there.
        self.state.note_replaced(exports);
        self.appeared(exports);
    }

    /// To be called when some exports that could not be opened are there. Recalls their
    /// delegations, as [`Self::content_replaced`] does, but not those that are reclaimed later:
    /// after a restart, pools come late as a rule, and are as they were before it.
    pub fn appeared(&self, exports: &BTreeSet<ExportId>) {
        if !exports.is_empty() {
            self.state.recall_all(exports, self.runtime.now().seconds());
        }
    }

    /// To be called about once a second: ends grace, expires clients, revokes
    /// delegations that were recalled a lease ago, drops waiters.
    pub fn tick(&self, now_seconds: u64) {
        self.state.tick(now_seconds);
    }

    /// Goes on after `held_seconds` without requests and without [`Self::tick`]:
    /// leases, grace, recalls and waits for locks have not become older by them.
    pub fn resume(&self, held_seconds: u64, now_seconds: u64) {
        self.state.resume(held_seconds, now_seconds);
    }

    /// Handles the loss of a connection: no channel of any session uses it any
    /// more.
    pub fn connection_closed(&self, connection: ConnectionId) {
        self.state.sessions.connection_closed(connection);
    }

    /// All confirmed clients.
    #[must_use]
    pub fn clients(&self, now_seconds: u64) -> Vec<ClientView> {
        self.state.clients(now_seconds)
    }

    /// Opens and delegations in some exports, by export and client, without
    /// those that are kept by courtesy. It looks at every open file: for rare
    /// changes only.
    #[must_use]
    pub fn holders(&self, exports: &BTreeSet<ExportId>, now_seconds: u64) -> Vec<Holder> {
        self.state.holders(exports, now_seconds)
    }

    /// Files that are open or delegated.
    #[must_use]
    pub fn open_files(&self) -> usize {
        self.state.open_files()
    }

    /// Refuses new clients, sessions, opens and locks while the gateway has no
    /// memory for more.
    pub fn set_memory_full(&self, is_full: bool) {
        self.state.hosts.set_full(is_full);
    }

    /// Sums for metrics.
    #[must_use]
    pub fn totals(&self, now_seconds: u64) -> StateTotals {
        self.state.totals(now_seconds)
    }
}
