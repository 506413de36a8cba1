//! State of the NFS service: shared by all cores, and of each core.

use super::back_channels::BackChannels;
use super::counters::Counters;
use super::gss::kerberos::Kerberos;
use super::loads::{ConnectionLoad, Loads};
use super::recovery::DirRecovery;
use super::runtime::GatewayRuntime;
use crate::net::connections::Connections;
use crate::net::core::Core;
use crate::net::interfaces::Interfaces;
use crate::net::peer::{ConnectionId, Peer};
use crate::observe::data_path::DataPath;
use crate::state_dir::StateDir;
use std::io;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use zgate_io::continuation::Home;
use zgate_nfs::namespace::{ClientRule, Namespace};
use zgate_nfs::runtime::{PeerCertificate, Protection, Runtime};
use zgate_nfs::v4::guard::StateGuard;
use zgate_nfs::v4::server::{Identity, Observer, ServerAddresses, ServerOptions};
use zgate_nfs::v4::state::State;
use zgate_nfs::v4::state::grace::GracePeriod;
use zgate_rpc::AuthSys;
use zgate_rpc::drc::ReplyCache;

/// State of the process.
pub(crate) struct Nfs {
    pub v4: Arc<zgate_nfs::v4::Server>,
    pub v3: zgate_nfs::v3::Server,
    pub mount: zgate_nfs::mount::Server,
    pub replies: ReplyCache,
    pub kerberos: Arc<Kerberos>,
    pub runtime: Arc<GatewayRuntime>,
    pub back_channels: Arc<BackChannels>,
    pub metrics: Arc<Counters>,
    /// Load by client and by export.
    pub loads: Arc<Loads>,
}

/// Options of the NFS service.
pub(crate) struct NfsOptions {
    pub identity: Identity,
    /// Number of this server start.
    pub boot_epoch: u32,
    pub write_verifier: [u8; 8],
    pub lease_seconds: u32,
    pub grace: GracePeriod,
    /// Most files that clients may have open.
    pub open_files: usize,
    /// Most memory of the state of all clients, in bytes.
    pub state_bytes: usize,
}

impl Nfs {
    /// # Errors
    /// Errors of the system: random numbers, or the thread that writes client
    /// records.
    pub(crate) fn new(
        options: NfsOptions,
        state_dir: Arc<StateDir>,
        namespace: Namespace,
        connections: &Arc<Connections>,
        interfaces: &Interfaces,
        data: Arc<DataPath>,
    ) -> io::Result<Self> {
        let back_channels = Arc::<BackChannels>::default();
        let kerberos = Arc::<Kerberos>::default();
        let runtime = Arc::new(GatewayRuntime::new(
            Arc::clone(connections),
            Arc::clone(&back_channels),
            Arc::clone(&kerberos),
        )?);
        let metrics = Arc::new(Counters::counting_data(data, runtime.started()));
        let NfsOptions {
            identity,
            boot_epoch,
            write_verifier,
            lease_seconds,
            grace,
            open_files,
            state_bytes,
        } = options;
        let state = State::new(
            boot_epoch,
            lease_seconds,
            grace,
            Arc::new(DirRecovery::start(state_dir)?),
            runtime.now().seconds(),
            Arc::<GatewayRuntime>::clone(&runtime),
        )
        .with_limits(open_files, state_bytes);
        let options = ServerOptions {
            identity,
            boot_epoch,
            write_verifier,
            lease_seconds,
            grace_seconds: grace.seconds,
            max_minor: 2,
            addresses: server_addresses(interfaces),
        };
        let observer: Arc<dyn Observer> = Arc::<Counters>::clone(&metrics);
        let outside: Arc<dyn Runtime> = Arc::<GatewayRuntime>::clone(&runtime);
        let v4 = Arc::new(zgate_nfs::v4::Server::new(options, state, namespace, outside, observer));
        let guard = Arc::new(StateGuard::default());
        guard.connect(&v4);
        let of_v4 = Arc::clone(&v4);
        let source: zgate_nfs::v3::NamespaceSource = Arc::new(move || of_v4.namespace());
        Ok(Self {
            v3: zgate_nfs::v3::Server {
                namespace: Arc::clone(&source),
                write_verifier: v4.write_verifier,
                guard,
            },
            v4,
            mount: zgate_nfs::mount::Server::new(source),
            replies: ReplyCache::new(),
            kerberos,
            runtime,
            back_channels,
            metrics,
            loads: Arc::default(),
        })
    }

    /// Replaces the exports.
    pub(crate) fn replace_exports(&self, namespace: Namespace, connections: &Connections) {
        self.v4.replace_namespace(namespace);
        let namespace = self.v4.namespace();
        connections.exports_changed(|host| namespace.names_host(host));
    }

    /// Goes on after a time in which clients were kept waiting: nothing of theirs
    /// has become older by it.
    pub(crate) fn resume(&self, held: Duration) {
        // A part of a second may have been the step to the next one.
        let held_seconds = held.as_secs() + u64::from(held.subsec_nanos() > 0);
        self.v4.resume(held_seconds, self.runtime.now().seconds());
    }

    /// Handles timeouts: leases, recalls, grace, security contexts.
    pub(crate) fn tick(&self) {
        let now_seconds = self.runtime.now().seconds();
        self.v4.tick(now_seconds);
        self.kerberos.tick(now_seconds);
    }
}

/// Returns the addresses announced for trunking. Clients over RDMA are told all
/// addresses configured for RDMA, because a device may be absent temporarily.
fn server_addresses(interfaces: &Interfaces) -> ServerAddresses {
    ServerAddresses { tcp: interfaces.tcp_addresses(), rdma: interfaces.rdma_addresses() }
}

/// Converts a peer to the protocol's type.
fn protocol_peer(peer: Peer, protected: Protected) -> zgate_nfs::Peer {
    let Peer { address, port, connection, rdma } = peer;
    let Protected { protection, certificate, kernel_encrypts } = protected;
    let connection = zgate_nfs::runtime::ConnectionId(connection.0);
    zgate_nfs::Peer { address, port, connection, rdma, protection, kernel_encrypts, certificate }
}

/// Protection of a connection, and the client's certificate in mutual TLS; by
/// default none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Protected {
    pub protection: Protection,
    pub certificate: Option<Arc<PeerCertificate>>,
    /// The socket encrypts what is sent.
    pub kernel_encrypts: bool,
}

/// State of one core.
pub(crate) struct Service {
    pub nfs: Arc<Nfs>,
    pub core: Rc<Core>,
    /// Home of the requests that begin on this core.
    pub home: Home,
}

/// Source of calls: a connection, and the server that it calls.
pub(crate) struct CallSource {
    pub nfs: Arc<Nfs>,
    pub peer: zgate_nfs::Peer,
    load: OnceLock<ConnectionLoad>,
    managed: ManagedUsers,
}

/// Rules of a connection's host that take the groups of users from this machine.
#[derive(Default)]
struct ManagedUsers {
    rules: Mutex<Arc<[ClientRule]>>,
    /// Set if there are any, for exports with this version. Most hosts have none,
    /// and take no lock.
    are_any: AtomicBool,
    /// Version of the exports, and one more.
    version: AtomicU64,
}

impl CallSource {
    /// Returns the counters of the connection, of a host that an export names.
    pub(crate) fn load(&self) -> &ConnectionLoad {
        self.load.get_or_init(|| self.nfs.loads.connected(&self.peer))
    }

    /// Returns the users of this machine that a caller is, by the rules that take
    /// their groups from here.
    pub(crate) fn managed_users(&self, sys: &AuthSys) -> Option<Vec<u32>> {
        let (managed, version) = (&self.managed, self.nfs.v4.namespace_version() + 1);
        let is_known = managed.version.load(Ordering::Acquire) == version;
        if is_known && !managed.are_any.load(Ordering::Relaxed) {
            return None;
        }
        let mut rules = managed.rules.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_known {
            *rules = self.nfs.v4.namespace().rules_with_server_groups(&self.peer).into();
            managed.are_any.store(!rules.is_empty(), Ordering::Relaxed);
            managed.version.store(version, Ordering::Release);
        }
        let mut users: Vec<u32> =
            rules.iter().filter_map(|rule| rule.user_with_server_groups(sys)).collect();
        users.sort_unstable();
        users.dedup();
        (!users.is_empty()).then_some(users)
    }
}

impl Service {
    pub(crate) fn new(nfs: Arc<Nfs>, core: Rc<Core>, home: Home) -> Rc<Self> {
        Rc::new(Self { nfs, core, home })
    }

    /// Creates the source of a connection's calls.
    pub(crate) fn call_source(&self, peer: Peer, protected: Protected) -> Arc<CallSource> {
        let (nfs, peer) = (Arc::clone(&self.nfs), protocol_peer(peer, protected));
        Arc::new(CallSource { nfs, peer, load: OnceLock::new(), managed: ManagedUsers::default() })
    }

    /// Removes a connection from all tables.
    pub(crate) fn connection_closed(&self, connection: zgate_nfs::runtime::ConnectionId) {
        self.core.network.connections.remove(ConnectionId(connection.0));
        self.nfs.v4.connection_closed(connection);
    }
}
