//! One server over stores in memory, its clients, and the time they live in.

mod callbacks;
mod client;
mod files;
mod ops;
mod scene;
mod shelf;
mod world;

pub(crate) use callbacks::{Heard, Manner};
pub(crate) use client::{Client, Pending};
pub(crate) use files::{Locked, Opened, Wish, attrs, mode};
pub(crate) use ops::{Ops, Reply, name};
pub(crate) use scene::{Scene, each, every_minor, sessions};
pub(crate) use shelf::Shelf;
pub(crate) use world::World;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use world::Outside;
use zgate_memory::MemoryStore;
use zgate_nfs::limits::MAX_OPEN_FILES;
use zgate_nfs::namespace::export::Versions;
use zgate_nfs::namespace::policy::Network;
use zgate_nfs::namespace::{ClientRule, Export, ExportId, Fh, Namespace, Place};
use zgate_nfs::v4::Server;
use zgate_nfs::v4::server::{Identity, NoObserver, ServerOptions};
use zgate_nfs::v4::state::State;
use zgate_nfs::v4::state::grace::GracePeriod;
use zgate_nfs::v4::state::recovery::RecoveryStore;
use zgate_store::attr::FsId;

/// The lease of every server here, in seconds.
pub(crate) const LEASE: u64 = 20;
/// The grace period, in seconds; three times that at most.
pub(crate) const GRACE: u64 = 30;

/// A server, its stores and the world around it.
pub(crate) struct Rig {
    pub(crate) world: Arc<World>,
    server: RefCell<Arc<Server>>,
    pub(crate) shelf: Arc<Shelf>,
    /// The tree behind `/export`.
    pub(crate) store: MemoryStore,
    exports: Vec<Arc<Export>>,
    epoch: Cell<u32>,
    generation: Cell<u64>,
    connections: Cell<u64>,
    open_files: Cell<usize>,
}

fn export(path: &str, store: MemoryStore) -> Export {
    Export {
        id: ExportId::from_pseudo_path(path),
        pseudo_path: path.to_owned(),
        source: format!("/tank{path}"),
        store: Arc::new(store),
        clients: vec![ClientRule::open_to_all()],
        read_only: false,
        max_transfer_bytes: 1 << 20,
        versions: Versions::ALL,
        tcp: true,
        rdma: true,
        delegations: true,
        delegated_times: true,
        reserved_port_only: false,
    }
}

fn store(minor: u64) -> MemoryStore {
    let fsid = FsId { major: 7, minor };
    MemoryStore::builder().fsid(fsid).root_mode(0o777).build()
}

impl Rig {
    /// The exports: `/export` and `/dir/second` are open, the latter without
    /// delegated times, `/dir/ro` is read-only (the same tree as `/export`), `/closed` is for others,
    /// `/weak` takes AUTH_NONE only, `/old` knows minor version 0 only.
    pub(crate) fn new() -> Rc<Self> {
        Self::over(store(1))
    }

    /// The same with a tree for `/export`.
    pub(crate) fn over(store_one: MemoryStore) -> Rc<Self> {
        let mut second = export("/dir/second", store(2));
        second.delegated_times = false;
        let mut read_only = export("/dir/ro", store_one.clone());
        read_only.read_only = true;
        let mut closed = export("/closed", store(3));
        closed.clients[0].networks =
            vec![Network { address: [198, 51, 100, 0].into(), prefix_bits: 24 }];
        let mut weak = export("/weak", store(4));
        weak.clients[0].sys = false;
        let mut old = export("/old", store(5));
        old.versions.v4 = [true, false, false];
        let exports = [export("/export", store_one.clone()), second, read_only, closed, weak, old];
        let exports: Vec<_> = exports.into_iter().map(Arc::new).collect();
        let (world, shelf) = (World::new(), Arc::<Shelf>::default());
        let server = serve(&world, &shelf, &exports, (1, GRACE as u32), MAX_OPEN_FILES);
        Rc::new(Self {
            world,
            server: RefCell::new(server),
            shelf,
            store: store_one,
            exports,
            epoch: Cell::new(1),
            generation: Cell::new(1),
            connections: Cell::new(0),
            open_files: Cell::new(MAX_OPEN_FILES),
        })
    }

    pub(crate) fn server(&self) -> Arc<Server> {
        Arc::clone(&self.server.borrow())
    }

    /// The server goes down and comes up again over the same stores; all
    /// connections are lost.
    pub(crate) fn restart(&self) {
        self.restart_with_grace(GRACE);
    }

    pub(crate) fn restart_with_grace(&self, grace_seconds: u64) {
        for number in 0..=self.connections.get() {
            self.world.cut(zgate_nfs::runtime::ConnectionId(number));
        }
        self.epoch.set(self.epoch.get() + 1);
        let times = (self.epoch.get(), grace_seconds as u32);
        let files = self.open_files.get();
        let server = serve(&self.world, &self.shelf, &self.exports, times, files);
        *self.server.borrow_mut() = server;
    }

    /// Exports only those whose pseudo path `keep` likes, from now on.
    pub(crate) fn reload(&self, keep: impl Fn(&str) -> bool) {
        self.generation.set(self.generation.get() + 1);
        let kept = self.exports.iter().filter(|e| keep(&e.pseudo_path)).cloned().collect();
        let namespace = Namespace::new(kept, self.generation.get()).unwrap();
        self.server().replace_namespace(namespace);
    }

    /// Lets time pass; the server is ticked every second.
    pub(crate) fn pass_seconds(&self, seconds: u64) {
        for _ in 0..seconds {
            self.world.one_second();
            self.server().tick(self.world.clock().seconds());
            self.world.settle();
        }
    }

    /// The root of an export as a file handle, made without the server.
    pub(crate) fn root_of(&self, path: &str) -> Fh {
        let export = self.exports.iter().find(|e| e.pseudo_path == path).unwrap();
        Place::Node(export.id, export.store.root()).to_fh()
    }

    fn new_connection(&self) -> u64 {
        self.connections.set(self.connections.get() + 1);
        self.connections.get()
    }

    /// The server starts again, with descriptors for so many open files.
    pub(crate) fn restart_with_open_files(&self, files: usize) {
        self.open_files.set(files);
        self.restart_with_grace(0);
    }

    /// A client that said nothing yet.
    pub(crate) fn stranger(self: &Rc<Self>, name: &str, minor: u8) -> Client {
        Client::new(self, name, minor)
    }

    /// A client ready to work, without callbacks: nothing is delegated to it.
    pub(crate) fn client(self: &Rc<Self>, name: &str, minor: u8) -> Client {
        let client = self.stranger(name, minor);
        client.introduce(false);
        client
    }

    /// A client ready to work that takes callbacks.
    pub(crate) fn reachable(self: &Rc<Self>, name: &str, minor: u8) -> Client {
        let client = self.stranger(name, minor);
        client.introduce(true);
        client
    }
}

fn serve(
    world: &Arc<World>,
    shelf: &Arc<Shelf>,
    exports: &[Arc<Export>],
    (boot_epoch, grace_seconds): (u32, u32),
    open_files: usize,
) -> Arc<Server> {
    let recovery: Arc<dyn RecoveryStore> = Arc::<Shelf>::clone(shelf);
    let now = world.clock().seconds();
    let grace = GracePeriod { seconds: grace_seconds, max_seconds: 3 * grace_seconds };
    let outside = Arc::new(Outside(Arc::clone(world)));
    let runtime: Arc<dyn zgate_nfs::Runtime> = Arc::<Outside>::clone(&outside);
    let state = State::new(boot_epoch, LEASE as u32, grace, recovery, now, runtime)
        .with_open_files(open_files);
    let mut write_verifier = *b"verifier";
    write_verifier[7] = boot_epoch as u8;
    let options = ServerOptions {
        identity: Identity { owner_major: b"rig".to_vec(), owner_minor: 0, scope: b"rig".to_vec() },
        boot_epoch,
        write_verifier,
        lease_seconds: LEASE as u32,
        grace_seconds,
        max_minor: 2,
        trunks: zgate_nfs::v4::attrs::Trunks::default(),
    };
    let namespace = Namespace::new(exports.to_vec(), 1).unwrap();
    Arc::new(Server::new(options, state, namespace, outside, Arc::new(NoObserver)))
}
