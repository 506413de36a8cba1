//! Accepts connection requests of RDMA clients and distributes them over the
//! cores.

use super::state::RdmaState;
use crate::net::accept::standing;
use crate::net::arrival::RdmaArrival;
use crate::net::arrival::{Arrival, NewConnection, Protocol};
use crate::net::connections::Standing;
use crate::net::core::Network;
use crate::net::drain::Phase;
use crate::net::peer::Peer;
use crate::observe::audit::refused;
use crate::observe::throttle::warn_seldom;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use zgate_fabric::{Fabric, Listener, Request};
use zgate_io::interface_of;

/// Time between two attempts to listen on an address without a device.
const LISTEN_PERIOD: Duration = Duration::from_secs(2);
/// Interval at which the interface of a listener's address is looked up.
const LOOK_PERIOD: Duration = Duration::from_secs(2);
/// Placeholder for the port of every client: the connection manager chooses a
/// new port for each reconnect, and a retry must be recognized.
const NO_PORT: u16 = 0;

/// Number of the interface that has an address.
type Place = Option<u32>;

fn place_of(address: IpAddr) -> Place {
    interface_of(address).unwrap_or_default()
}

/// Waits until the address is not at its place any more.
async fn moved(address: IpAddr, place: Place) {
    if address.is_unspecified() {
        // Such a listener has all devices, those that come later, too.
        std::future::pending::<()>().await;
    }
    loop {
        tokio::time::sleep(LOOK_PERIOD).await;
        if interface_of(address).is_ok_and(|now| now != place) {
            return;
        }
    }
}

/// Waits for the next request. Fails, too, once the address has another place: the
/// listener stays with the device of the first one, where requests arrive no more, and the
/// connection manager does not tell.
async fn next_request(
    listener: &mut dyn Listener,
    address: IpAddr,
    place: Place,
) -> io::Result<Box<dyn Request>> {
    tokio::select! {
        biased;
        accepted = listener.accept() => accepted,
        () = moved(address, place) => {
            let text = "the address was deleted, or moved to another interface";
            Err(io::Error::new(io::ErrorKind::AddrNotAvailable, text))
        }
    }
}

/// Waits until it can listen on the address: its device may be absent. Each
/// reason is logged once; TCP is not affected. Returns the address's place, too.
async fn listen(
    fabric: &dyn Fabric,
    address: SocketAddr,
    protocol: Protocol,
    state: &RdmaState,
) -> (Box<dyn Listener>, Place) {
    loop {
        // Before it listens, so that no move is missed.
        let place = place_of(address.ip());
        match fabric.listen(address) {
            Ok(listener) => {
                state.set_portal(address, None);
                let address = listener.local_address();
                tracing::info!(%address, ?protocol, "listening for RDMA");
                return (listener, place);
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
    let (mut listener, mut place) = listen(&*fabric, address, protocol, &state).await;
    let mut next = 0;
    loop {
        let request = match next_request(&mut *listener, address.ip(), place).await {
            Ok(request) => request,
            Err(error) => {
                tracing::warn!(%address, %error, "listening for RDMA ended");
                state.set_portal(address, Some(error.to_string()));
                drop(listener);
                tokio::time::sleep(Duration::from_millis(100)).await;
                (listener, place) = listen(&*fabric, address, protocol, &state).await;
                continue;
            }
        };
        let (from, local) = (request.peer_address(), listener.local_address());
        if network.drain.phase() != Phase::Serving {
            // Nothing would be served on it. Clients try again, by themselves.
            tracing::debug!(peer = %from, "refused: the gateway is handed over, or stops");
            request.reject(Vec::new()).await;
            continue;
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use zgate_fabric::EmulatedFabric;

    #[tokio::test(start_paused = true)]
    async fn a_listener_whose_address_moves_ends() {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut listener = EmulatedFabric::new().listen(any).unwrap();
        let here = place_of(any.ip());
        assert!(here.is_some());
        let waits = next_request(&mut *listener, any.ip(), here);
        assert!(tokio::time::timeout(LOOK_PERIOD * 10, waits).await.is_err());
        // It was on another interface, or on none.
        for elsewhere in [here.map(|place| place + 1), None] {
            let error = next_request(&mut *listener, any.ip(), elsewhere).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AddrNotAvailable);
        }
        // A listener of all addresses stays.
        let waits = next_request(&mut *listener, IpAddr::from([0, 0, 0, 0]), here);
        assert!(tokio::time::timeout(LOOK_PERIOD * 10, waits).await.is_err());
    }
}
