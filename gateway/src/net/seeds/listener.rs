//! The network of a gateway and its listener, on the thread of its peers.

use super::client_end::SOCKET_BYTES;
use crate::net::accept::{accept_loop, bind};
use crate::net::arrival::{NewConnection, Protocol};
use crate::net::connection_end::Ends;
use crate::net::connections::Connections;
use crate::net::core::{NamesHost, Network};
use crate::net::drain::Drain;
use crate::net::interfaces::Interfaces;
use crate::net::memory_quota::MemoryQuota;
use rustix::net::sockopt::set_tcp_congestion;
use socket2::SockRef;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::spawn_local;
use zgate_store::BufferPool;

/// Makes the state of a process that serves over TCP alone, without TLS.
pub(crate) fn network(
    (connections, quota): (&Arc<Connections>, &Arc<MemoryQuota>),
    pool: &BufferPool,
    names_host: NamesHost,
) -> Arc<Network> {
    Arc::new(Network {
        connections: Arc::clone(connections),
        ends: Ends::default(),
        pool: pool.clone(),
        interfaces: Interfaces::default(),
        rdma: Arc::default(),
        rdma_stall: Duration::from_secs(60),
        quota: Arc::clone(quota),
        poll_microseconds: 0,
        pollers: Arc::default(),
        drain: Drain::default(),
        tls: Arc::default(),
        names_host,
    })
}

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
