//! Connection requests of RDMA clients, spread over the cores.

use crate::listen::accept::{Arrival, NewConnection};
use crate::serve::service::Service;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use zgate_fabric::{Fabric, Request};
use zgate_nfs::Peer;

/// What stands for the port of every client: the connection manager chooses
/// another one at each reconnect, and a retry has to be known again.
const NO_PORT: u16 = 0;

/// A client that wants to connect, on its way to its core.
#[derive(Debug)]
pub(crate) struct RdmaArrival {
    pub request: Box<dyn Request>,
    /// Whether the fabric can invalidate the client's memory.
    pub can_invalidate: bool,
}

/// Listens, and hands requests to the cores in turn. An address that cannot be
/// listened on is told of once; TCP goes on.
pub(crate) async fn accept_loop(
    fabric: Arc<dyn Fabric>,
    address: SocketAddr,
    service: Rc<Service>,
    cores: Vec<mpsc::UnboundedSender<NewConnection>>,
) {
    let mut listener = match fabric.listen(address) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(%address, %error, "cannot listen for RDMA; TCP is served");
            return;
        }
    };
    tracing::info!(address = %listener.local_address(), "listening for RDMA");
    let can_invalidate = fabric.send_with_invalidate();
    let mut next = 0;
    loop {
        let request = match listener.accept().await {
            Ok(request) => request,
            Err(error) => {
                tracing::warn!(%error, "an RDMA connection cannot be accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let from = request.peer_address();
        let Some(connection) = service.shared.connections.admit(from.ip()) else {
            service.shared.metrics.connection_refused();
            tracing::warn!(peer = %from, "refused: too many connections");
            request.reject(Vec::new()).await;
            continue;
        };
        let address = from.ip().to_canonical();
        let peer = Peer { address, port: NO_PORT, connection, rdma: true };
        let arrival = Arrival::Rdma(RdmaArrival { request, can_invalidate });
        if cores[next % cores.len()].send(NewConnection { arrival, peer }).is_err() {
            return;
        }
        next += 1;
    }
}
