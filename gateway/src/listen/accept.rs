//! Accepting connections and spreading them over the cores.

use super::rdma::accept::RdmaArrival;
use crate::observe::throttle::warn_seldom;
use crate::serve::connections::{Slot, Standing};
use crate::serve::service::{Service, Shared};
use socket2::{Domain, Socket, Type};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::rc::Rc;
use tokio::sync::mpsc;
use zgate_nfs::Peer;

/// Connections waiting to be accepted.
const BACKLOG: i32 = 1024;

/// What is spoken on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// RPC: NFS and MOUNT.
    Rpc,
    /// iSCSI.
    Iscsi,
}

/// What came in.
#[derive(Debug)]
pub(crate) enum Arrival {
    /// A TCP connection.
    Tcp(Protocol, TcpStream),
    /// A request for an RDMA connection.
    Rdma(RdmaArrival),
}

/// A new connection on its way to its core.
#[derive(Debug)]
pub(crate) struct NewConnection {
    pub arrival: Arrival,
    pub peer: Peer,
    pub slot: Slot,
}

/// Opens a listening socket.
///
/// # Errors
/// The system's, with the address named.
pub(crate) fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let open = || -> io::Result<TcpListener> {
        let socket =
            Socket::new(Domain::for_address(address), Type::STREAM, Some(socket2::Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        if address.is_ipv6() {
            socket.set_only_v6(false)?;
        }
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        socket.set_nonblocking(true)?;
        Ok(socket.into())
    };
    open().map_err(|error| {
        let hint = match error.kind() {
            io::ErrorKind::AddrInUse => {
                "; another server has it: `ss -ltnp` names it, or choose another port"
            }
            io::ErrorKind::PermissionDenied => {
                "; ports below 1024 need root or CAP_NET_BIND_SERVICE"
            }
            io::ErrorKind::AddrNotAvailable => {
                "; no interface of this machine has that address: `ip addr` lists them"
            }
            _ => "",
        };
        io::Error::new(error.kind(), format!("cannot listen on {address}: {error}{hint}"))
    })
}

/// What is known of a host before it has said anything.
pub(crate) fn standing(shared: &Shared, protocol: Protocol, host: IpAddr) -> Standing {
    match protocol {
        Protocol::Iscsi => Standing::LoggingIn,
        Protocol::Rpc if shared.v4.namespace().names_host(host) => Standing::Named,
        Protocol::Rpc => Standing::Unnamed,
    }
}

/// Accepts connections and hands them to the cores in turn.
pub(crate) async fn accept_loop(
    listener: TcpListener,
    protocol: Protocol,
    service: Rc<Service>,
    cores: Vec<mpsc::UnboundedSender<NewConnection>>,
) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(%error, "a listening socket cannot be watched");
            return;
        }
    };
    let mut next = 0;
    loop {
        let (stream, from) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of descriptors, mostly: waiting is all there is to do.
                warn_seldom!(%error, "a connection cannot be accepted");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                continue;
            }
        };
        let standing = standing(&service.shared, protocol, from.ip());
        let Some(slot) = service.shared.connections.admit(from.ip(), standing) else {
            service.shared.metrics.connection_refused();
            warn_seldom!(peer = %from, "refused: too many connections");
            continue;
        };
        let Ok(stream) = stream.into_std() else { continue };
        if let Err(error) = tune(&stream, from) {
            tracing::debug!(%error, "socket options");
        }
        let (address, port) = (from.ip().to_canonical(), from.port());
        let peer = Peer { address, port, connection: slot.id, rdma: false };
        let arrival = Arrival::Tcp(protocol, stream);
        if cores[next % cores.len()].send(NewConnection { arrival, peer, slot }).is_err() {
            return;
        }
        next += 1;
    }
}

/// Small replies leave at once; a peer that vanished is noticed in minutes. A
/// peer on this machine needs no congestion control, and what BBR does costs a
/// third of the CPU of large reads: it paces, which without the fq queueing
/// discipline is a timer for every burst. Reno is in every kernel and open to
/// everybody.
fn tune(stream: &TcpStream, from: SocketAddr) -> io::Result<()> {
    let socket = socket2::SockRef::from(stream);
    socket.set_tcp_nodelay(true)?;
    if stream.local_addr()?.ip() == from.ip() {
        rustix::net::sockopt::set_tcp_congestion(stream, "reno")?;
    }
    let keepalive = socket2::TcpKeepalive::new()
        .with_time(std::time::Duration::from_secs(60))
        .with_interval(std::time::Duration::from_secs(15))
        .with_retries(4);
    socket.set_tcp_keepalive(&keepalive)
}
