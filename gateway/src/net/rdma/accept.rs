//! Accepts connection requests of RDMA clients and distributes them over the
//! cores.

use super::state::RdmaState;
use crate::net::accept::standing;
use crate::net::arrival::RdmaArrival;
use crate::net::arrival::{Arrival, NewConnection, Protocol};
use crate::net::connections::Standing;
use crate::net::core::Network;
use crate::net::peer::Peer;
use crate::observe::audit::refused;
use crate::observe::throttle::warn_seldom;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use zgate_fabric::{Fabric, Listener};

/// Time between two attempts to listen on an address without a device.
const LISTEN_PERIOD: Duration = Duration::from_secs(2);
/// Placeholder for the port of every client: the connection manager chooses a
/// new port for each reconnect, and a retry must be recognized.
const NO_PORT: u16 = 0;

/// Waits until it can listen on the address: its device may be absent. Each
/// reason is logged once; TCP is not affected.
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
    network: Arc<Network>,
    cores: Vec<mpsc::UnboundedSender<NewConnection>>,
) {
    let state = Arc::clone(&network.rdma);
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
        let standing = standing(&network, protocol, from.ip());
        if standing == Standing::Unnamed {
            // Checked before a receive is posted for it.
            let reason = "no export names this host; add it to the `clients` of an export";
            refused!(Nfs, from.ip(), address = %from.ip(), rdma = true, reason, "NFS refused");
            network.connections.count_refused();
            request.reject(Vec::new()).await;
            continue;
        }
        let Some(slot) = network.connections.admit(from.ip(), standing) else {
            network.connections.count_refused();
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
