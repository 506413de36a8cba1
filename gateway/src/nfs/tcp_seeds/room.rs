//! The gateway's side of a seed: listener, core, connections and NFS, as shipped, on this
//! thread, over a tree in memory.

use super::calls::{FILE_BYTES, FILL};
use super::draw::NAMED;
use super::plan::Plan;
use super::store::PooledFiles;
use crate::net::accept::{accept_loop, bind};
use crate::net::arrival::{Arrival, NewConnection, Protocol};
use crate::net::connection_end::Ends;
use crate::net::connections::{ConnectionLimits, Connections};
use crate::net::core::{Core, Network};
use crate::net::drain::Drain;
use crate::net::interfaces::Interfaces;
use crate::net::memory_quota::MemoryQuota;
use crate::net::peer::Peer;
use crate::net::seeds::client_end::SOCKET_BYTES;
use crate::net::seeds::served::Served;
use crate::nfs::service::{Nfs, NfsOptions, Service};
use crate::nfs::tcp;
use crate::state_dir::StateDir;
use bytes::Bytes;
use rustix::net::sockopt::set_tcp_congestion;
use socket2::SockRef;
use std::net::{Ipv4Addr, SocketAddr};
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
const LIMITS: ConnectionLimits = ConnectionLimits { total: 160, per_client: PER_CLIENT };
pub(super) const PER_CLIENT: usize = 40;
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
    /// Some READs never end.
    ReadsLost,
}

/// The gateway's side.
pub(super) struct Room {
    pub network: Arc<Network>,
    pub nfs: Arc<Nfs>,
    /// Address of the listener.
    pub address: SocketAddr,
    pub served: Rc<Served>,
    /// Handle of the only file.
    pub file: Vec<u8>,
    pub fault: Option<Fault>,
}

impl Room {
    /// Starts to serve.
    pub(super) async fn start(
        plan: &Plan,
        state_dir: &Arc<StateDir>,
        fault: Option<Fault>,
    ) -> Self {
        let pool = BufferPool::new(IDLE_BYTES);
        let connections = Arc::new(Connections::new(LIMITS));
        let budget_bytes = if fault == Some(Fault::NoQuota) { 1 << 40 } else { plan.budget_bytes };
        let quota = MemoryQuota::new(budget_bytes, true, pool.clone());
        let (export, file) = export(plan, &pool, fault).await;
        let nfs = Arc::new(nfs(export, state_dir, &connections));
        let network = || {
            let v4 = Arc::clone(&nfs.v4);
            Arc::new(Network {
                connections: Arc::clone(&connections),
                ends: Ends::default(),
                pool: pool.clone(),
                interfaces: Interfaces::default(),
                rdma: Arc::default(),
                rdma_stall: Duration::from_secs(60),
                quota: Arc::clone(&quota),
                poll_microseconds: 0,
                drain: Drain::default(),
                tls: Arc::default(),
                names_host: Box::new(move |host| v4.namespace().names_host(host)),
            })
        };
        let (main, other) = (network(), network());
        let listener = bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let address = listener.local_addr().unwrap();
        // Connections inherit it from their listener.
        SockRef::from(&listener).set_send_buffer_size(SOCKET_BYTES).unwrap();
        SockRef::from(&listener).set_recv_buffer_size(SOCKET_BYTES).unwrap();
        set_tcp_congestion(&listener, "reno").unwrap();
        let (arrivals, incoming) = mpsc::unbounded_channel();
        let accepting = accept_loop(listener, Protocol::Rpc, Arc::clone(&main), vec![arrivals]);
        spawn_local(accepting);
        let (home, returning) = Home::new(Handle::current());
        spawn_local(returning.run());
        let service = |network: &Arc<Network>| {
            let core = Rc::new(Core::new(0, Arc::clone(network)));
            Service::new(Arc::clone(&nfs), core, home.clone())
        };
        let served = Rc::<Served>::default();
        let (all, forgotten) = (service(&main), service(&other));
        let of_core = OneCore { all, forgotten, served: Rc::clone(&served), fault };
        spawn_local(of_core.run(incoming));
        Self { network: main, nfs, address, served, file, fault }
    }

    /// Returns the number of ends of connections that were the gateway's fault.
    pub(super) fn bugs(&self) -> u64 {
        let bugs = self.network.ends.counts().filter(|(kind, _)| kind.reason == "bug");
        bugs.map(|(_, count)| count).sum()
    }

    /// Returns the memory in use, in bytes: as counted, or in buffers if that is more.
    pub(super) fn memory_bytes(&self) -> usize {
        self.network.quota.held().max(self.network.pool.in_use_bytes())
    }

    /// Returns what is left of connections that have ended; `None` if nothing is.
    pub(super) fn left(&self) -> Option<String> {
        let Self { network, nfs, served, .. } = self;
        let counts = [
            ("connections in service", served.running()),
            ("connections in the table", network.connections.len()),
            ("connections in the event loop", network.drain.busy()),
            ("registrations for callbacks", nfs.back_channels.len()),
            ("clients with calls", nfs.loads.clients().len()),
            ("bytes of the quota", network.quota.held()),
            ("bytes of buffers", network.pool.in_use_bytes()),
        ];
        let left = counts.iter().filter(|(_, count)| *count > 0);
        let left: Vec<_> = left.map(|(what, count)| format!("{count} {what}")).collect();
        (!left.is_empty()).then(|| left.join(", "))
    }
}

/// An export with one file that everybody may read and write; and the handle of the file.
async fn export(plan: &Plan, pool: &BufferPool, fault: Option<Fault>) -> (Export, Vec<u8>) {
    let store = MemoryStore::builder().root_mode(0o777).build();
    let (who, root) = (Caller::root(), store.root());
    let attrs = SetAttr { mode: Some(0o666), ..SetAttr::default() };
    let made = store.create_file(&who, &root, b"file", CreateMode::Guarded, &attrs).await.unwrap();
    let content = Bytes::from(vec![FILL; FILE_BYTES]);
    store.write(&made.open.unwrap(), 0, content, Stability::FileSync).await.unwrap();
    let names_all = fault == Some(Fault::StrangersNamed);
    let networks = if names_all { Vec::new() } else { vec![NAMED.parse().unwrap()] };
    let id = ExportId::from_pseudo_path("/export");
    let file = FileHandle::Node(id, made.node.handle).to_fh().0;
    let export = Export {
        id,
        pseudo_path: "/export".to_owned(),
        source: "/tank/data".to_owned(),
        store: Arc::new(PooledFiles {
            store,
            pool: pool.clone(),
            delay: plan.store_delay,
            loses_reads: fault == Some(Fault::ReadsLost),
            reads: AtomicU64::new(0),
        }),
        clients: vec![ClientRule { networks, ..ClientRule::open_to_all() }],
        read_only: false,
        max_transfer_bytes: FILE_BYTES as u32,
        versions: Versions::ALL,
        tcp: true,
        rdma: true,
        delegations: false,
        delegated_times: false,
        reserved_port_only: false,
    };
    (export, file)
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
