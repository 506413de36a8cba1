//! One NFSv4 server: what all its COMPOUNDs share.

use crate::namespace::Namespace;
use crate::runtime::Runtime;
use crate::v4::attrs::Trunks;
use crate::v4::state::State;
use crate::v4::wire::{OpNum, Status};
use crate::write_verifier::WriteVerifier;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// Who the server is (RFC 8881 §2.10.4). Servers with equal owner and scope
/// are trunkable; a stable scope lets clients reclaim after a move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// so_major_id.
    pub owner_major: Vec<u8>,
    /// so_minor_id.
    pub owner_minor: u64,
    /// eir_server_scope.
    pub scope: Vec<u8>,
}

/// Hears of every finished operation; the gateway measures and counts.
pub trait Observer: Send + Sync {
    /// A moment to measure from, in whatever unit the observer likes.
    fn begin(&self) -> u64;
    /// An operation ended.
    fn end(&self, op: OpNum, status: Status, begun: u64);
}

/// An observer that does nothing.
#[derive(Debug, Default)]
pub struct NoObserver;

impl Observer for NoObserver {
    fn begin(&self) -> u64 {
        0
    }
    fn end(&self, _: OpNum, _: Status, _: u64) {}
}

/// Settings that hold while the server runs.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Who it is.
    pub identity: Identity,
    /// Number of this start, greater than all before; stands in stateids,
    /// so that older ones are recognized as stale.
    pub boot_epoch: u32,
    /// Changes at every start: unstable writes may be lost (RFC 8881 §18.32).
    pub write_verifier: [u8; 8],
    /// Lease in seconds.
    pub lease_seconds: u32,
    /// Grace period in seconds; 0: none.
    pub grace_seconds: u32,
    /// Highest minor version served (0 to 2).
    pub max_minor: u8,
    /// The addresses clients may use together.
    pub trunks: Trunks,
}

/// The server.
pub struct Server {
    /// Settings.
    pub options: ServerOptions,
    /// Clients, sessions, opens, locks, delegations.
    pub state: State,
    /// The outside.
    pub runtime: Arc<dyn Runtime>,
    /// Measures operations.
    pub observer: Arc<dyn Observer>,
    /// How clients learn that unstable data may be lost.
    pub write_verifier: WriteVerifier,
    /// Hosts that are in no export's client list, for the log.
    pub(crate) refused_hosts: RefusedHosts,
    /// NFSv4.0 clients that want to be called back elsewhere, for the log.
    pub(crate) foreign_callbacks: ForeignCallbacks,
    namespace: RwLock<Arc<Namespace>>,
    /// How often the exports were replaced.
    replacements: AtomicU64,
}

/// Lines in the log about what others do, at most one in ten seconds: they must
/// not fill it.
#[derive(Debug, Default)]
struct RareLine {
    next_seconds: AtomicU64,
}

impl RareLine {
    const PAUSE_SECONDS: u64 = 10;

    /// Whether it is time for another line.
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

/// Tells of hosts that no export names and that call all the same.
#[derive(Debug, Default)]
pub(crate) struct RefusedHosts(RareLine);

impl RefusedHosts {
    pub(crate) fn note(&self, address: IpAddr, now_seconds: u64) {
        if self.0.is_due(now_seconds) {
            tracing::warn!(
                client = %address,
                "refused: no export names this host; add it to the `clients` of an export"
            );
        }
    }
}

/// Tells of NFSv4.0 clients that want to be called back elsewhere.
#[derive(Debug, Default)]
pub(crate) struct ForeignCallbacks(RareLine);

impl ForeignCallbacks {
    pub(crate) fn note(&self, client: IpAddr, callback: SocketAddr, now_seconds: u64) {
        if self.0.is_due(now_seconds) {
            tracing::info!(
                %client,
                %callback,
                "no delegations: the NFSv4.0 client gave a callback address that is not the one \
                 it calls from; give it the right one (clientaddr=), or mount 4.1 or later"
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
            refused_hosts: RefusedHosts::default(),
            foreign_callbacks: ForeignCallbacks::default(),
            namespace: RwLock::new(Arc::new(namespace)),
            replacements: AtomicU64::new(0),
        }
    }

    /// Whether any export names the host, whatever the protocol version and
    /// transport. Others are given nothing; the log names them once in a while.
    #[must_use]
    pub fn admits_host(&self, address: IpAddr) -> bool {
        let named = self.namespace().names_host(address);
        if !named {
            self.refused_hosts.note(address, self.runtime.now().seconds());
        }
        named
    }

    /// A number that changes after the exports did: what [`Self::admits_host`]
    /// said holds as long as it stays.
    #[must_use]
    pub fn namespace_version(&self) -> u64 {
        self.replacements.load(Ordering::Acquire)
    }

    /// The exports as they are now.
    #[must_use]
    pub fn namespace(&self) -> Arc<Namespace> {
        Arc::clone(&self.namespace.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the exports; COMPOUNDs under way keep the old ones. Of exports
    /// that are no more, nothing stays open: their file systems can be
    /// unmounted.
    pub fn replace_namespace(&self, namespace: Namespace) {
        let namespace = Arc::new(namespace);
        *self.namespace.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&namespace);
        self.replacements.fetch_add(1, Ordering::Release);
        self.state.close_vanished(&namespace, self.runtime.now().seconds());
    }
}
