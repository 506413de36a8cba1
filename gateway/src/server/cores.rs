//! One core: its thread's runtime and connections, and the tasks that the first
//! core does for all.

use super::shared::Shared;
use super::{handover, health};
use crate::iscsi::luns::unit::Unit;
use crate::iscsi::service::IscsiService;
use crate::iscsi::{self, iser};
use crate::net;
use crate::net::accept::accept_loop;
use crate::net::arrival::{Arrival, NewConnection, Protocol};
use crate::net::boundary::{bring_down, caught, essential};
use crate::net::core::Network;
use crate::net::rdma::fabric::FabricSource;
use crate::net::rdma::supervise::supervise;
use crate::nfs;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::mpsc;
use tokio::task::LocalSet;
use zgate_io::continuation::Home;

/// RDMA addresses, and the protocol at each.
pub(super) type RdmaPortals = Vec<(SocketAddr, Protocol)>;

/// State with which one core serves connections.
struct Core {
    net: Rc<net::core::Core>,
    nfs: Rc<nfs::service::Service>,
    iscsi: Arc<IscsiService>,
}

/// Tasks of the first core for all cores.
pub(super) struct First {
    pub listeners: Vec<(std::net::TcpListener, Protocol)>,
    /// RDMA fabric and its addresses.
    pub fabric: Option<(FabricSource, RdmaPortals)>,
    pub cores: Vec<mpsc::UnboundedSender<NewConnection>>,
    /// Logical units that need background work.
    pub units: mpsc::UnboundedReceiver<Arc<Unit>>,
}

/// Runs one core: its runtime, its connections. The first one accepts
/// connections and advances leases. Returns whether it was told to end.
pub(super) fn run_core(
    core: usize,
    shared: Arc<Shared>,
    (mut incoming, questions): (
        mpsc::UnboundedReceiver<NewConnection>,
        mpsc::Receiver<health::Question>,
    ),
    first: Option<First>,
    mut stopped: tokio::sync::watch::Receiver<bool>,
) -> bool {
    // Cores ask at their start, one soon after the other: up to THREAD_SHARDS of them count in
    // shards of their own.
    let _ = zgate_store::thread_shard();
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "cannot start a core");
            return false;
        }
    };
    let local = LocalSet::new();
    let network = Arc::clone(&shared.network);
    let net = Rc::new(net::core::Core::new(core, Arc::clone(&network)));
    let (home, returning) = Home::new(runtime.handle().clone());
    let core = Rc::new(Core {
        nfs: nfs::service::Service::new(Arc::clone(&shared.nfs), Rc::clone(&net), home),
        iscsi: Arc::clone(&shared.iscsi),
        net,
    });
    if first.is_some() {
        shared.nfs.runtime.set_home(runtime.handle().clone());
    }
    local.block_on(&runtime, async move {
        let watcher = Rc::clone(&core.net);
        let watch = async move { watcher.busy_poll.watch().await };
        begin_essential("busy polling", &network, watch);
        begin_essential("continuing requests", &network, returning.run());
        begin_essential("answering for the core", &network, health::answer(questions));
        if let Some(First { listeners, fabric, cores, mut units }) = first {
            for (listener, protocol) in listeners {
                let accept = accept_loop(listener, protocol, Arc::clone(&network), cores.clone());
                begin_essential("accepting", &network, accept);
            }
            if let Some((source, portals)) = fabric {
                let supervise = supervise(source, portals, Arc::clone(&network), cores);
                let network = Arc::clone(&network);
                tokio::task::spawn_local(async move {
                    // It ends once every address has a listener.
                    if caught("RDMA", supervise).await.is_none() && !network.drain.is_wanted() {
                        bring_down("RDMA");
                    }
                });
            }
            begin_essential("the clock of leases", &network, tick(shared));
            begin_essential("background work of logical units", &network, async move {
                while let Some(unit) = units.recv().await {
                    tokio::task::spawn_local(caught("background work", unit.run_background()));
                }
            });
        }
        loop {
            tokio::select! {
                Some(connection) = incoming.recv() => begin(connection, &core),
                _ = stopped.changed() => break,
            }
        }
    });
    // Requests of workers to storage are not waited for.
    runtime.shutdown_background();
    true
}

/// Starts a task on this core that the gateway cannot work without.
fn begin_essential(
    what: &'static str,
    network: &Arc<Network>,
    work: impl Future<Output = ()> + 'static,
) {
    let network = Arc::clone(network);
    tokio::task::spawn_local(async move { essential(what, &network.drain, work).await });
}

fn begin(connection: NewConnection, core: &Core) {
    let NewConnection { arrival, peer, slot } = connection;
    let (nfs, iscsi, net) = (Rc::clone(&core.nfs), Arc::clone(&core.iscsi), Rc::clone(&core.net));
    let (protocol, stream) = match arrival {
        Arrival::Tcp(protocol, stream) => (protocol, stream),
        Arrival::Rdma(arrival) => {
            match arrival.protocol {
                Protocol::Rpc => {
                    tokio::task::spawn_local(nfs::rdma::serve(arrival, peer, slot, nfs))
                }
                Protocol::Iscsi => {
                    tokio::task::spawn_local(iser::serve(arrival, peer, slot, iscsi, net))
                }
            };
            return;
        }
    };
    match tokio::net::TcpStream::from_std(stream) {
        Ok(stream) => {
            match protocol {
                Protocol::Rpc => tokio::task::spawn_local(nfs::tcp::serve(stream, peer, slot, nfs)),
                Protocol::Iscsi => {
                    tokio::task::spawn_local(iscsi::tcp::serve(stream, peer, slot, iscsi, net))
                }
            };
        }
        Err(error) => {
            tracing::warn!(%error, "cannot register a connection with the runtime");
        }
    }
}

async fn tick(shared: Arc<Shared>) {
    let mut every = tokio::time::interval(Duration::from_secs(1));
    loop {
        every.tick().await;
        handover::resume_if_due(&shared);
        // While clients are kept waiting, nothing of theirs expires: nor at the stop
        // after it, for the next gateway reads the records of clients.
        if !shared.network.drain.keeps_waiting() {
            shared.nfs.tick();
            shared.iscsi.tick();
        }
        shared.iscsi.look_after_sessions();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        shared.network.tls.notice_expiry(now);
        shared.recent.tick(&shared);
    }
}
