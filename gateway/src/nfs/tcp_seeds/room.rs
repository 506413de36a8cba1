//! The gateway's side of a seed: listener, core, connections and NFS, as shipped, on this
//! thread, over a tree in memory.

use super::calls::{FILE_BYTES, FILL};
use super::draw::NAMED;
use super::plan::Plan;
use super::store::PooledFiles;
use crate::net::arrival::{Arrival, NewConnection, Protocol};
use crate::net::connections::{ConnectionLimits, Connections};
use crate::net::core::{Core, Network};
use crate::net::interfaces::Interfaces;
use crate::net::memory_quota::MemoryQuota;
use crate::net::peer::Peer;
use crate::net::seeds::listener::{listen, network};
use crate::net::seeds::peer::Site;
use crate::net::seeds::run::Gateway;
use crate::net::seeds::served::Served;
use crate::nfs::service::{Nfs, NfsOptions, Service};
use crate::nfs::tcp;
use crate::state_dir::StateDir;
use bytes::Bytes;
use futures_util::FutureExt;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::spawn_local;
use zgate_io::continuation::Home;
use zgate_memory::MemoryStore;
use zgate_nfs::namespace::export::Versions;
use zgate_nfs::namespace::{ClientRule, Export, ExportId, FileHandle, Namespace};
use zgate_nfs::v4::server::Identity;
use zgate_nfs::v4::state::grace::GracePeriod;
use zgate_store::file_store::{CreateMode, Stability};
use zgate_store::{BufferPool, Caller, FileStore, SetAttr};

/// Most connections, and most of one host. A crowd and its like fit beside all others.
const LIMITS: ConnectionLimits = ConnectionLimits { total: 160, per_client: 28 };
/// Connections of which a drain that forgets some forgets one.
const FORGOTTEN_ONE_IN: usize = 4;
/// Unused buffers that the pool keeps, in bytes.
const IDLE_BYTES: usize = 64 << 20;
/// Memory that a connection keeps which gives not all of it back, in bytes.
const KEPT_BYTES: usize = 64 << 10;

/// A fault that is planted, to see that it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Connections keep a part of the quota when they end.
    QuotaKept,
    /// Connections stay registered for callbacks when they end.
    RegistrationKept,
    /// There is no limit on memory.
    NoQuota,
    /// Some connections do not learn that the gateway stops.
    DrainForgets,
    /// Connections do not learn that the gateway is held.
    HoldUntold,
    /// Hosts that no export names have the time of those that one does.
    StrangersNamed,
    /// Some short READs, which are those of correct clients, never end.
    ReadsLost,
}

/// A tree in memory with one file that everybody may read and write.
pub(super) struct Tree {
    store: MemoryStore,
    /// Handle of the file.
    pub file: Vec<u8>,
}

impl Tree {
    pub(super) fn new() -> Self {
        let store = MemoryStore::builder().root_mode(0o777).build();
        let (who, root) = (Caller::root(), store.root());
        let attrs = SetAttr { mode: Some(0o666), ..SetAttr::default() };
        let made = store.create_file(&who, &root, b"file", CreateMode::Guarded, &attrs);
        let made = made.now_or_never().unwrap().unwrap();
        let content = Bytes::from(vec![FILL; FILE_BYTES]);
        let open = made.open.unwrap();
        let written = store.write(&open, 0, content, Stability::FileSync);
        written.now_or_never().unwrap().unwrap();
        let file = FileHandle::Node(export_id(), made.node.handle).to_fh().0;
        Self { store, file }
    }
}

/// The gateway's side.
pub(super) struct Room {
    network: Arc<Network>,
    nfs: Arc<Nfs>,
    served: Rc<Served>,
    most_bytes: usize,
    fault: Option<Fault>,
}

impl Room {
    /// Starts to serve a tree.
    pub(super) fn start(
        plan: &Plan,
        tree: Tree,
        state_dir: &Arc<StateDir>,
        fault: Option<Fault>,
    ) -> (Self, Site) {
        let pool = BufferPool::new(IDLE_BYTES);
        let connections = Arc::new(Connections::new(LIMITS));
        let budget_bytes = if fault == Some(Fault::NoQuota) { 1 << 40 } else { plan.budget_bytes };
        let quota = MemoryQuota::new(budget_bytes, true, pool.clone());
        let export = export(plan, tree.store, &pool, fault);
        let nfs = Arc::new(nfs(export, state_dir, &connections));
        let network_of_core = || {
            let v4 = Arc::clone(&nfs.v4);
            network(
                (&connections, &quota),
                &pool,
                Box::new(move |host| v4.namespace().names_host(host)),
            )
        };
        let (main, other) = (network_of_core(), network_of_core());
        let (home, returning) = Home::new(Handle::current());
        spawn_local(returning.run());
        let service = |network: &Arc<Network>| {
            let core = Rc::new(Core::new(0, Arc::clone(network)));
            Service::new(Arc::clone(&nfs), core, home.clone())
        };
        let (all, forgotten) = (service(&main), service(&other));
        let served = Rc::<Served>::default();
        let (address, arrivals) = listen(Protocol::Rpc, &main);
        let of_core = OneCore { all, forgotten, served: Rc::clone(&served), fault };
        spawn_local(of_core.run(arrivals));
        let site = Site { address, served: Rc::clone(&served) };
        let most_bytes = plan.most_bytes();
        (Self { network: main, nfs, served, most_bytes, fault }, site)
    }
}

impl Gateway for Room {
    fn network(&self) -> &Arc<Network> {
        &self.network
    }

    fn resume(&self, held: Duration) {
        self.nfs.resume(held);
    }

    fn keeps_hold_secret(&self) -> bool {
        self.fault == Some(Fault::HoldUntold)
    }

    fn sound(&self) -> Result<(), String> {
        let held_bytes = self.network.quota.held().max(self.network.pool.in_use_bytes());
        if held_bytes > self.most_bytes {
            return Err(format!("memory: {held_bytes} of {} bytes", self.most_bytes));
        }
        self.served.check_hosts(LIMITS)
    }

    fn remains(&self) -> Vec<(&'static str, usize)> {
        vec![
            ("registrations for callbacks", self.nfs.back_channels.len()),
            ("clients with calls", self.nfs.loads.clients().len()),
        ]
    }
}

fn export_id() -> ExportId {
    ExportId::from_pseudo_path("/export")
}

fn export(plan: &Plan, store: MemoryStore, pool: &BufferPool, fault: Option<Fault>) -> Export {
    let names_all = fault == Some(Fault::StrangersNamed);
    let networks = if names_all { Vec::new() } else { vec![NAMED.parse().unwrap()] };
    Export {
        id: export_id(),
        pseudo_path: "/export".to_owned(),
        source: "/tank/data".to_owned(),
        store: Arc::new(PooledFiles {
            store,
            pool: pool.clone(),
            delay: plan.store_delay,
            loses_reads: fault == Some(Fault::ReadsLost),
            short_reads: AtomicU64::new(0),
        }),
        clients: vec![ClientRule { networks, ..ClientRule::open_to_all() }],
        read_only: false,
        shares_files: false,
        max_transfer_bytes: FILE_BYTES as u32,
        versions: Versions::ALL,
        tcp: true,
        rdma: true,
        delegations: false,
        delegated_times: false,
        reserved_port_only: false,
    }
}

fn nfs(export: Export, state_dir: &Arc<StateDir>, connections: &Arc<Connections>) -> Nfs {
    let name = b"test".to_vec();
    let options = NfsOptions {
        identity: Identity { owner_major: name.clone(), owner_minor: 0, scope: name },
        boot_epoch: 1,
        write_verifier: [7; 8],
        lease_seconds: 90,
        grace: GracePeriod { seconds: 0, max_seconds: 0 },
        open_files: 1024,
        state_bytes: 64 << 20,
    };
    let namespace = Namespace::new(vec![Arc::new(export)], 1).unwrap();
    let (state_dir, interfaces) = (Arc::clone(state_dir), Interfaces::default());
    Nfs::new(options, state_dir, namespace, connections, &interfaces, Arc::default()).unwrap()
}

/// The core that serves all connections.
struct OneCore {
    all: Rc<Service>,
    /// For connections that do not learn of a drain.
    forgotten: Rc<Service>,
    served: Rc<Served>,
    fault: Option<Fault>,
}

impl OneCore {
    async fn run(self, mut incoming: mpsc::UnboundedReceiver<NewConnection>) {
        let mut count = 0_usize;
        while let Some(NewConnection { arrival, peer, slot }) = incoming.recv().await {
            let Arrival::Tcp(_, stream) = arrival else { continue };
            let stream = TcpStream::from_std(stream).unwrap();
            count += 1;
            let forgets = self.fault == Some(Fault::DrainForgets);
            let is_forgotten = forgets && count.is_multiple_of(FORGOTTEN_ONE_IN);
            let service = Rc::clone(if is_forgotten { &self.forgotten } else { &self.all });
            let (served, fault) = (Rc::clone(&self.served), self.fault);
            let from = SocketAddr::new(peer.address, peer.port);
            served.begin(from);
            spawn_local(async move {
                tcp::serve(stream, peer, slot, Rc::clone(&service)).await;
                keep(fault, peer, &service);
                served.end(from);
            });
        }
    }
}

/// Keeps what a connection has to give back when it ends, if that is the fault.
fn keep(fault: Option<Fault>, peer: Peer, service: &Service) {
    match fault {
        Some(Fault::QuotaKept) => {
            let mut kept = service.core.network.reservation(peer.address);
            kept.set(KEPT_BYTES);
            std::mem::forget(kept);
        }
        Some(Fault::RegistrationKept) => {
            std::mem::forget(service.nfs.back_channels.register(peer.connection));
        }
        _ => {}
    }
}
