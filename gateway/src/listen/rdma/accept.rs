//! Connection requests of RDMA clients, spread over the cores.

use crate::listen::accept::{Arrival, NewConnection, Protocol, standing};
use crate::observe::throttle::warn_seldom;
use crate::serve::connections::Standing;
use crate::serve::rdma_state::RdmaState;
use crate::serve::service::Service;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use zgate_fabric::{Fabric, Listener, Request};
use zgate_nfs::Peer;

/// Between two tries to listen on an address that has no device.
const LISTEN_PERIOD: Duration = Duration::from_secs(2);
/// What stands for the port of every client: the connection manager chooses
/// another one at each reconnect, and a retry has to be known again.
const NO_PORT: u16 = 0;

/// A client that wants to connect, on its way to its core.
#[derive(Debug)]
pub(crate) struct RdmaArrival {
    pub request: Box<dyn Request>,
    /// Whether the fabric can invalidate the client's memory.
    pub can_invalidate: bool,
    /// What is spoken on the connection.
    pub protocol: Protocol,
    /// Where it is listened on.
    pub local: SocketAddr,
}

/// Waits until the address can be listened on: its device may be yet to come,
/// or to come back. Each reason is told once; TCP goes on.
async fn listen(
    fabric: &dyn Fabric,
    address: SocketAddr,
    protocol: Protocol,
    state: &RdmaState,
) -> Box<dyn Listener> {
    loop {
        match fabric.listen(address) {
            Ok(listener) => {
                state.set_portal(address, None);
                let address = listener.local_address();
                tracing::info!(%address, ?protocol, "listening for RDMA");
                return listener;
            }
            Err(error) => {
                if state.set_portal(address, Some(error.to_string())) {
                    tracing::error!(%address, %error, "cannot listen for RDMA; TCP is served");
                }
                tokio::time::sleep(LISTEN_PERIOD).await;
            }
        }
    }
}

/// Listens, and hands requests to the cores in turn.
pub(crate) async fn accept_loop(
    fabric: Arc<dyn Fabric>,
    address: SocketAddr,
    protocol: Protocol,
    service: Rc<Service>,
    cores: Vec<mpsc::UnboundedSender<NewConnection>>,
) {
    let state = Arc::clone(&service.shared.rdma);
    let mut listener = listen(&*fabric, address, protocol, &state).await;
    let mut next = 0;
    loop {
        let request = match listener.accept().await {
            Ok(request) => request,
            Err(error) => {
                tracing::warn!(%address, %error, "listening for RDMA ended");
                state.set_portal(address, Some(error.to_string()));
                drop(listener);
                tokio::time::sleep(Duration::from_millis(100)).await;
                listener = listen(&*fabric, address, protocol, &state).await;
                continue;
            }
        };
        let (from, local) = (request.peer_address(), listener.local_address());
        let standing = standing(&service.shared, protocol, from.ip());
        if standing == Standing::Unnamed {
            // Before a receive is posted for it.
            tracing::debug!(peer = %from, "RDMA refused: no export names the host");
            service.shared.metrics.connection_refused();
            request.reject(Vec::new()).await;
            continue;
        }
        let Some(slot) = service.shared.connections.admit(from.ip(), standing) else {
            service.shared.metrics.connection_refused();
            warn_seldom!(peer = %from, "refused: too many connections");
            request.reject(Vec::new()).await;
            continue;
        };
        let address = from.ip().to_canonical();
        let peer = Peer { address, port: NO_PORT, connection: slot.id, rdma: true };
        let can_invalidate = fabric.send_with_invalidate();
        let arrival = Arrival::Rdma(RdmaArrival { request, can_invalidate, protocol, local });
        if cores[next % cores.len()].send(NewConnection { arrival, peer, slot }).is_err() {
            return;
        }
        next += 1;
    }
}
