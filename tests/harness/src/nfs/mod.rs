//! One server on stores in memory, its clients, and virtual time.

mod callbacks;
mod client;
mod files;
mod fixture;
mod ops;
mod record_store;
mod simulation;
mod tcp;

pub use callbacks::CallbackBehavior;
pub use client::{Client, Pending, by_kerberos};
pub use files::{Locked, OpenRequest, Opened, attrs, mode};
pub use fixture::{Fixture, each, every_minor, sessions};
pub use ops::{Ops, Reply, name};
pub use record_store::RecordStore;
pub use simulation::{CallbackCall, FixedNames, Simulation};
pub use tcp::TcpServer;

use simulation::SimulatedRuntime;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use zgate_memory::MemoryStore;
use zgate_nfs::limits::MAX_OPEN_FILES;
use zgate_nfs::namespace::export::Versions;
use zgate_nfs::namespace::{
    AbsentExport, ClientRule, Export, ExportId, FileHandle, Flavor, Namespace,
};
use zgate_nfs::v4::Server;
use zgate_nfs::v4::server::{Identity, NoObserver, ServerOptions};
use zgate_nfs::v4::state::State;
use zgate_nfs::v4::state::grace::GracePeriod;
use zgate_nfs::v4::state::recovery::RecoveryStore;
use zgate_nfs_wire::v4::Fh;
use zgate_store::FileStore;
use zgate_store::attr::FsId;

/// Lease of all test servers, in seconds.
pub const LEASE: u64 = 20;
/// Grace period in seconds; at most three times that.
pub const GRACE: u64 = 30;

/// Open files, and bytes of clients' state, as on a machine with much memory.
const NO_LIMITS: (usize, usize) = (MAX_OPEN_FILES, usize::MAX);

/// Number of the tree that [`Harness::move_export`] puts in the place of another.
const ELSEWHERE: u64 = 99;

/// A server, its stores and the simulation around it.
pub struct Harness {
    pub simulation: Arc<Simulation>,
    server: RefCell<Arc<Server>>,
    pub records: Arc<RecordStore>,
    /// The tree behind `/export`.
    pub store: MemoryStore,
    exports: Vec<Arc<Export>>,
    epoch: Cell<u32>,
    generation: Cell<u64>,
    connections: Cell<u64>,
    /// Limits: open files, and bytes of clients' state.
    limits: Cell<(usize, usize)>,
}

/// An export that is open to all, at a pseudo path.
#[must_use]
pub fn open_export(path: &str, store: Arc<dyn FileStore>) -> Export {
    Export {
        id: ExportId::from_pseudo_path(path),
        pseudo_path: path.to_owned(),
        source: format!("/tank{path}"),
        store,
        clients: vec![ClientRule::open_to_all()],
        read_only: false,
        max_transfer_bytes: 1 << 20,
        versions: Versions::ALL,
        tcp: true,
        rdma: true,
        delegations: true,
        delegated_times: true,
        reserved_port_only: false,
        shares_files: false,
    }
}

fn export(path: &str, store: MemoryStore) -> Export {
    open_export(path, Arc::new(store))
}

fn store(minor: u64) -> MemoryStore {
    let fsid = FsId { major: 7, minor };
    MemoryStore::builder().fsid(fsid).root_mode(0o777).build()
}

impl Harness {
    /// The exports: `/export` and `/dir/second` are open, the latter without
    /// delegated times, `/dir/ro` is read-only (the same tree as `/export`),
    /// `/closed` is for other clients, `/weak` accepts only AUTH_NONE, `/old`
    /// only minor version 0.
    pub fn new() -> Rc<Self> {
        Self::over(store(1))
    }

    /// Like [`Self::new`], with a tree for `/export`.
    pub fn over(store_one: MemoryStore) -> Rc<Self> {
        let mut second = export("/dir/second", store(2));
        second.delegated_times = false;
        let mut first = export("/export", store_one.clone());
        let mut read_only = export("/dir/ro", store_one.clone());
        read_only.read_only = true;
        (first.shares_files, read_only.shares_files) = (true, true);
        let mut closed = export("/closed", store(3));
        closed.clients[0].networks = vec!["198.51.100.0/24".parse().unwrap()];
        let mut weak = export("/weak", store(4));
        weak.clients[0].flavors = [Flavor::None].into_iter().collect();
        let mut old = export("/old", store(5));
        old.versions.v4 = [true, false, false];
        let exports = [first, second, read_only, closed, weak, old];
        let exports: Vec<_> = exports.into_iter().map(Arc::new).collect();
        let (simulation, records) = (Simulation::new(), Arc::<RecordStore>::default());
        let server = serve(&simulation, &records, &exports, (1, GRACE as u32), NO_LIMITS);
        Rc::new(Self {
            simulation,
            server: RefCell::new(server),
            records,
            store: store_one,
            exports,
            epoch: Cell::new(1),
            generation: Cell::new(1),
            connections: Cell::new(0),
            limits: Cell::new(NO_LIMITS),
        })
    }

    pub fn server(&self) -> Arc<Server> {
        Arc::clone(&self.server.borrow())
    }

    /// Restarts the server on the same stores; all connections are lost.
    pub fn restart(&self) {
        self.restart_with_grace(GRACE);
    }

    pub fn restart_with_grace(&self, grace_seconds: u64) {
        for number in 0..=self.connections.get() {
            self.simulation.cut(zgate_nfs::runtime::ConnectionId(number));
        }
        self.epoch.set(self.epoch.get() + 1);
        let times = (self.epoch.get(), grace_seconds as u32);
        let limits = self.limits.get();
        let server = serve(&self.simulation, &self.records, &self.exports, times, limits);
        *self.server.borrow_mut() = server;
    }

    /// Exports from now on only those whose pseudo path `keep` accepts.
    pub fn reload(&self, keep: impl Fn(&str) -> bool) {
        let kept = self.exports.iter().filter(|e| keep(&e.pseudo_path)).cloned().collect();
        self.server().replace_namespace(self.next_namespace(kept));
    }

    fn next_namespace(&self, exports: Vec<Arc<Export>>) -> Namespace {
        self.generation.set(self.generation.get() + 1);
        Namespace::new(exports, self.generation.get()).unwrap()
    }

    /// Serves all exports from now on, with this change of each.
    fn change_exports(&self, change: impl Fn(&mut Export)) {
        let changed = |export: &Arc<Export>| {
            let mut export = Export {
                pseudo_path: export.pseudo_path.clone(),
                source: export.source.clone(),
                store: Arc::clone(&export.store),
                clients: export.clients.clone(),
                ..**export
            };
            change(&mut export);
            Arc::new(export)
        };
        let exports = self.exports.iter().map(changed).collect();
        self.server().replace_namespace(self.next_namespace(exports));
    }

    /// The export with this pseudo path has another, empty tree from now on.
    pub fn move_export(&self, path: &str) {
        let (_, mut exports): (Vec<_>, Vec<_>) =
            self.exports.iter().cloned().partition(|export| export.pseudo_path == path);
        exports.push(Arc::new(export(path, store(ELSEWHERE))));
        self.server().replace_namespace(self.next_namespace(exports));
    }

    /// The export with this pseudo path is served through another store from now on, with
    /// the same root.
    pub fn serve_through(&self, path: &str, store: Arc<dyn FileStore>) {
        self.change_exports(|export| {
            if export.pseudo_path == path {
                export.store = Arc::clone(&store);
            }
        });
    }

    /// The trees of exports whose pseudo path `away` accepts cannot be opened
    /// from now on.
    pub fn exports_away(&self, away: impl Fn(&str) -> bool) {
        let (gone, kept): (Vec<_>, Vec<_>) =
            self.exports.iter().cloned().partition(|export| away(&export.pseudo_path));
        let absent = gone.iter().map(|export| AbsentExport {
            id: export.id,
            pseudo_path: export.pseudo_path.clone(),
            clients: export.clients.clone(),
            versions: export.versions,
            tcp: export.tcp,
            rdma: export.rdma,
        });
        let namespace = self.next_namespace(kept).with_absent(absent.collect()).unwrap();
        self.server().replace_namespace(namespace);
    }

    /// One export is the whole tree from now on, and it cannot be opened.
    pub fn whole_tree_away(&self) {
        let absent = AbsentExport {
            id: ExportId::from_pseudo_path("/"),
            pseudo_path: "/".to_owned(),
            clients: vec![ClientRule::open_to_all()],
            versions: Versions::ALL,
            tcp: true,
            rdma: true,
        };
        let namespace = self.next_namespace(Vec::new()).with_absent(vec![absent]).unwrap();
        self.server().replace_namespace(namespace);
    }

    /// The server has not found any export yet, or has found all of them.
    pub fn exports_unknown(&self, unknown: bool) {
        let known = if unknown { Vec::new() } else { self.exports.to_vec() };
        self.server().replace_namespace(self.next_namespace(known).with_incomplete(unknown));
    }

    /// Exports from now on to all hosts but those of other networks than these;
    /// none: to all.
    pub fn admit_only(&self, networks: &[ipnet::IpNet]) {
        self.admit_by(&ClientRule { networks: networks.to_vec(), ..ClientRule::open_to_all() });
    }

    /// Exports from now on by this rule.
    pub fn admit_by(&self, rule: &ClientRule) {
        self.change_exports(|export| export.clients = vec![rule.clone()]);
    }

    /// The export with this pseudo path gives no delegations from now on.
    pub fn without_delegations(&self, path: &str) {
        self.change_exports(|export| export.delegations &= export.pseudo_path != path);
    }

    /// Advances time; the server is ticked every second.
    pub fn pass_seconds(&self, seconds: u64) {
        for _ in 0..seconds {
            self.simulation.one_second();
            self.server().tick(self.simulation.clock().seconds());
            self.simulation.settle();
        }
    }

    /// Advances time in which the server is held: it takes no requests and is not
    /// ticked. Then it is resumed.
    pub fn hold_seconds(&self, seconds: u64) {
        for _ in 0..seconds {
            self.simulation.one_second();
        }
        self.server().resume(seconds, self.simulation.clock().seconds());
    }

    /// The root of an export as a file handle, made without the server.
    pub fn root_of(&self, path: &str) -> Fh {
        let export = self.exports.iter().find(|e| e.pseudo_path == path).unwrap();
        FileHandle::Node(export.id, export.store.root()).to_fh()
    }

    fn new_connection(&self) -> u64 {
        self.connections.set(self.connections.get() + 1);
        self.connections.get()
    }

    /// Restarts the server, with descriptors for `files` open files.
    pub fn restart_with_open_files(&self, files: usize) {
        self.limits.set((files, usize::MAX));
        self.restart_with_grace(0);
    }

    /// Restarts the server, without grace, with so little memory that the state of
    /// clients has the least limits.
    pub fn restart_with_least_memory(&self) {
        self.limits.set((MAX_OPEN_FILES, 0));
        self.restart_with_grace(0);
    }

    /// An unregistered client.
    pub fn stranger(self: &Rc<Self>, name: &str, minor: u8) -> Client {
        Client::new(self, name, minor)
    }

    /// A registered client without callbacks: it gets no delegations.
    pub fn client(self: &Rc<Self>, name: &str, minor: u8) -> Client {
        let client = self.stranger(name, minor);
        client.introduce(false);
        client
    }

    /// A registered client with callbacks.
    pub fn reachable(self: &Rc<Self>, name: &str, minor: u8) -> Client {
        let client = self.stranger(name, minor);
        client.introduce(true);
        client
    }
}

fn serve(
    simulation: &Arc<Simulation>,
    records: &Arc<RecordStore>,
    exports: &[Arc<Export>],
    (boot_epoch, grace_seconds): (u32, u32),
    (open_files, state_bytes): (usize, usize),
) -> Arc<Server> {
    let recovery: Arc<dyn RecoveryStore> = Arc::<RecordStore>::clone(records);
    let now = simulation.clock().seconds();
    let grace = GracePeriod { seconds: grace_seconds, max_seconds: 3 * grace_seconds };
    let outside = Arc::new(SimulatedRuntime(Arc::clone(simulation)));
    let runtime: Arc<dyn zgate_nfs::Runtime> = Arc::<SimulatedRuntime>::clone(&outside);
    let state = State::new(boot_epoch, LEASE as u32, grace, recovery, now, runtime)
        .with_limits(open_files, state_bytes);
    let mut write_verifier = *b"verifier";
    write_verifier[7] = boot_epoch as u8;
    let options = ServerOptions {
        identity: Identity {
            owner_major: b"harness".to_vec(),
            owner_minor: 0,
            scope: b"harness".to_vec(),
        },
        boot_epoch,
        write_verifier,
        lease_seconds: LEASE as u32,
        grace_seconds,
        max_minor: 2,
        addresses: zgate_nfs::v4::server::ServerAddresses::default(),
    };
    let namespace = Namespace::new(exports.to_vec(), 1).unwrap();
    Arc::new(Server::new(options, state, namespace, outside, Arc::new(NoObserver)))
}
