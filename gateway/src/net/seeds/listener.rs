//! The listener of a gateway on the thread of its peers.

use super::client_end::SOCKET_BYTES;
use crate::net::accept::{accept_loop, bind};
use crate::net::arrival::{NewConnection, Protocol};
use crate::net::core::Network;
use rustix::net::sockopt::set_tcp_congestion;
use socket2::SockRef;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::spawn_local;

/// Begins to accept connections; returns the address, and the connections for the only core.
pub(crate) fn listen(
    protocol: Protocol,
    network: &Arc<Network>,
) -> (SocketAddr, UnboundedReceiver<NewConnection>) {
    let listener = bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let address = listener.local_addr().unwrap();
    // Connections have it from their listener.
    let socket = SockRef::from(&listener);
    socket.set_send_buffer_size(SOCKET_BYTES).unwrap();
    socket.set_recv_buffer_size(SOCKET_BYTES).unwrap();
    set_tcp_congestion(&listener, "reno").unwrap();
    let (core, arrivals) = unbounded_channel();
    spawn_local(accept_loop(listener, protocol, Arc::clone(network), vec![core]));
    (address, arrivals)
}
