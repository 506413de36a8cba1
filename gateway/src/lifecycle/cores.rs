//! One core: its thread's runtime, the connections it serves, and what the first
//! one does for all.

use super::fabric::FabricSource;
use crate::block::unit::Unit;
use crate::block::{connection, iser};
use crate::listen::accept::{Arrival, NewConnection, Protocol, accept_loop};
use crate::listen::{rdma, tcp};
use crate::serve::attention::Attention;
use crate::serve::boundary::{bring_down, caught, essential};
use crate::serve::health;
use crate::serve::service::{Service, Shared};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::LocalSet;
use zgate_nfs::runtime::Runtime;

/// Where RDMA is listened for, and what is spoken there.
pub(super) type RdmaPortals = Vec<(SocketAddr, Protocol)>;

/// What the first core does for all.
pub(super) struct First {
    pub listeners: Vec<(std::net::TcpListener, Protocol)>,
    /// RDMA, and where it listens.
    pub fabric: Option<(FabricSource, RdmaPortals)>,
    pub cores: Vec<mpsc::UnboundedSender<NewConnection>>,
    /// Logical units whose background work is to be done.
    pub units: mpsc::UnboundedReceiver<Arc<Unit>>,
}

/// One core: its runtime, its connections. The first one accepts and ticks.
/// Returns whether it was told to end.
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
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "a core cannot start");
            return false;
        }
    };
    let local = LocalSet::new();
    let attention = Attention::new(shared.poll_microseconds);
    let service = Rc::new(Service { shared, attention, admitted: Default::default() });
    local.block_on(&runtime, async move {
        let watcher = Rc::clone(&service);
        let watch = async move { watcher.attention.watch().await };
        begin_essential("busy polling", &service, watch);
        begin_essential("answering for the core", &service, health::answer(questions));
        if let Some(First { listeners, fabric, cores, mut units }) = first {
            for (listener, protocol) in listeners {
                let accept = accept_loop(listener, protocol, Rc::clone(&service), cores.clone());
                begin_essential("accepting", &service, accept);
            }
            if let Some((source, portals)) = fabric {
                let supervise = rdma::supervise(source, portals, Rc::clone(&service), cores);
                let drain = Rc::clone(&service);
                tokio::task::spawn_local(async move {
                    // It ends once everything listens.
                    if caught("RDMA", supervise).await.is_none() && !drain.shared.drain.is_wanted()
                    {
                        bring_down("RDMA");
                    }
                });
            }
            begin_essential("the clock of leases", &service, tick(Rc::clone(&service)));
            begin_essential("background work of logical units", &service, async move {
                while let Some(unit) = units.recv().await {
                    tokio::task::spawn_local(caught("background work", unit.run_background()));
                }
            });
        }
        loop {
            tokio::select! {
                Some(connection) = incoming.recv() => begin(connection, core, &service),
                _ = stopped.changed() => break,
            }
        }
    });
    // What helpers still ask of storage is not waited for.
    runtime.shutdown_background();
    true
}

/// Begins work on this core that nothing works without.
fn begin_essential(
    what: &'static str,
    service: &Rc<Service>,
    work: impl Future<Output = ()> + 'static,
) {
    let service = Rc::clone(service);
    tokio::task::spawn_local(async move { essential(what, &service.shared.drain, work).await });
}

fn begin(connection: NewConnection, core: usize, service: &Rc<Service>) {
    let NewConnection { arrival, peer, slot } = connection;
    let (protocol, stream) = match arrival {
        Arrival::Tcp(protocol, stream) => (protocol, stream),
        Arrival::Rdma(arrival) => {
            let service = Rc::clone(service);
            match arrival.protocol {
                Protocol::Rpc => {
                    tokio::task::spawn_local(rdma::serve(arrival, peer, slot, service))
                }
                Protocol::Iscsi => {
                    tokio::task::spawn_local(iser::serve(arrival, peer, slot, core, service))
                }
            };
            return;
        }
    };
    match tokio::net::TcpStream::from_std(stream) {
        Ok(stream) => {
            let service = Rc::clone(service);
            match protocol {
                Protocol::Rpc => tokio::task::spawn_local(tcp::serve(stream, peer, slot, service)),
                Protocol::Iscsi => {
                    tokio::task::spawn_local(connection::serve(stream, peer, slot, core, service))
                }
            };
        }
        Err(error) => {
            tracing::warn!(%error, "a connection cannot be watched");
        }
    }
}

async fn tick(service: Rc<Service>) {
    let mut every = tokio::time::interval(Duration::from_secs(1));
    loop {
        every.tick().await;
        service.shared.v4.tick(service.shared.runtime.now().seconds());
        service.shared.block.tick();
    }
}
