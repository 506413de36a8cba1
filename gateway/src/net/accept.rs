//! Accepts connections and distributes them over the cores.

use super::arrival::{Arrival, NewConnection, Protocol};
use super::connections::Standing;
use super::core::Network;
use super::drain::Phase;
use super::peer::{Peer, TcpEnds};
use super::silence;
use crate::observe::throttle::warn_seldom;
use socket2::{Domain, Socket, Type};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use tokio::sync::mpsc;
use zgate_io::{own_addresses, peer_window};

/// Length of the queue of connections to be accepted.
const BACKLOG: i32 = 1024;
/// Largest window of an initiator to which the send buffer of its connection is fitted; a
/// larger one belongs to a receive buffer that grows as needed.
const MAX_FITTED_WINDOW_BYTES: u64 = 1 << 20;
/// Smallest send buffer of such a connection, unless its window is smaller: two segments of
/// the largest network interfaces (loopback, IP over InfiniBand). With room for one, nothing
/// is sent before it is acknowledged, and the peer delays that for tens of milliseconds.
const MIN_SEND_BUFFER_BYTES: u64 = 131_072;

/// Opens a listening socket.
///
/// # Errors
/// The error of the operating system, with the address.
pub(crate) fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    bind_with(address, false)
}

/// Opens a listening socket at an address that may not exist yet.
///
/// # Errors
/// The error of the operating system, with the address.
pub(crate) fn bind_in_advance(address: SocketAddr) -> io::Result<TcpListener> {
    bind_with(address, true)
}

/// Returns whether an interface of this machine that is up has the address. A socket that
/// can be bound tells nothing: with the sysctl `ip_nonlocal_bind`, which pairs of machines
/// often set, every address can.
pub(crate) fn is_local(address: IpAddr) -> bool {
    match own_addresses() {
        Ok(own) => is_one_of(&own, address.to_canonical()),
        Err(error) => {
            warn_seldom!(%error, "cannot list the addresses of this machine; trying to bind");
            let bound = UdpSocket::bind((address, 0));
            !bound.is_err_and(|error| error.kind() == io::ErrorKind::AddrNotAvailable)
        }
    }
}

/// Returns whether a machine whose interfaces have the addresses `own` has this one.
fn is_one_of(own: &[IpAddr], address: IpAddr) -> bool {
    // The kernel takes the whole network of the loopback interface for its own.
    let is_any = address.is_unspecified() || (address.is_ipv4() && address.is_loopback());
    is_any || own.contains(&address)
}

fn bind_with(address: SocketAddr, in_advance: bool) -> io::Result<TcpListener> {
    let open = || -> io::Result<TcpListener> {
        let socket =
            Socket::new(Domain::for_address(address), Type::STREAM, Some(socket2::Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        if address.is_ipv6() {
            socket.set_only_v6(false)?;
        }
        if in_advance {
            // The option of IPv4 is read for IPv6 as well.
            rustix::net::sockopt::set_ip_freebind(&socket, true)?;
        }
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        socket.set_nonblocking(true)?;
        Ok(socket.into())
    };
    open().map_err(|error| {
        let hint = match error.kind() {
            io::ErrorKind::AddrInUse => {
                "; another server uses it: `ss -ltnp` shows which, or choose another port"
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

/// Returns the standing of a host that has not sent anything yet.
pub(crate) fn standing(network: &Network, protocol: Protocol, host: IpAddr) -> Standing {
    match protocol {
        Protocol::Iscsi => Standing::LoggingIn,
        Protocol::Rpc if (network.names_host)(host) => Standing::Named,
        Protocol::Rpc => Standing::Unnamed,
    }
}

/// Accepts connections and hands them to the cores in turn.
pub(crate) async fn accept_loop(
    listener: TcpListener,
    protocol: Protocol,
    network: Arc<Network>,
    cores: Vec<mpsc::UnboundedSender<NewConnection>>,
) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(%error, "cannot register a listening socket with the runtime");
            return;
        }
    };
    let mut next = 0;
    let mut phase = Phase::Serving;
    loop {
        let accepted = tokio::select! {
            biased;
            now = network.drain.after(phase), if phase != Phase::Draining => {
                follow(&listener, phase, now);
                phase = now;
                continue;
            }
            accepted = listener.accept() => accepted,
        };
        let (stream, from) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Usually the lack of descriptors: only waiting helps.
                warn_seldom!(%error, "cannot accept a connection");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                continue;
            }
        };
        let standing = standing(&network, protocol, from.ip());
        let Some(slot) = network.connections.admit(from.ip(), standing) else {
            network.connections.count_refused();
            warn_seldom!(peer = %from, "refused: too many connections");
            continue;
        };
        let Ok(stream) = stream.into_std() else { continue };
        if let Err(error) = tune(&stream, from, protocol) {
            tracing::debug!(%error, "socket options");
        }
        let local = stream.local_addr().ok();
        if let Some(ends) = local.and_then(|local| TcpEnds::new(local, from)) {
            slot.set_ends(ends);
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

/// Has those who connect wait while the gateway is held. One that stops after it
/// stays silent: another one has its address by then.
fn follow(listener: &tokio::net::TcpListener, before: Phase, now: Phase) {
    let done = match (before, now) {
        (_, Phase::Held) => silence::be_silent(listener),
        (Phase::Held, Phase::Serving) => silence::hear(listener),
        _ => Ok(()),
    };
    if let Err(error) = done {
        tracing::warn!(%error, ?now, "a listening socket does not follow the gateway's phase");
    }
}

/// Tunes a socket. Small replies leave at once; a vanished peer is detected in
/// minutes. A peer on this machine needs no congestion control, and BBR costs a
/// third of the CPU of large reads: it paces, which without the fq queueing
/// discipline is a timer for every burst. Reno is in every kernel and needs no
/// privilege.
fn tune(stream: &TcpStream, from: SocketAddr, protocol: Protocol) -> io::Result<()> {
    let socket = socket2::SockRef::from(stream);
    socket.set_tcp_nodelay(true)?;
    if stream.local_addr()?.ip() == from.ip() {
        rustix::net::sockopt::set_tcp_congestion(stream, "reno")?;
    }
    let keepalive = socket2::TcpKeepalive::new()
        .with_time(std::time::Duration::from_secs(60))
        .with_interval(std::time::Duration::from_secs(15))
        .with_retries(4);
    socket.set_tcp_keepalive(&keepalive)?;
    if matches!(protocol, Protocol::Iscsi) { fit_send_buffer(stream) } else { Ok(()) }
}

/// Keeps no more under way than half of what a small window of the initiator can hold. The
/// initiator of Linux has a receive buffer of fixed size. If data fills its window at once, it
/// forgets to open the window again, and the connection stands still until the next probe of
/// the window, for 200 ms or more.
fn fit_send_buffer(stream: &TcpStream) -> io::Result<()> {
    if let Some(bytes) = send_buffer_bytes(peer_window::largest_window_bytes(stream)?) {
        // The kernel doubles the number: its own use of memory counts, too.
        socket2::SockRef::from(stream).set_send_buffer_size((bytes / 2) as usize)?;
    }
    Ok(())
}

/// Returns the send buffer that fits a window; `None`: the kernel chooses it.
fn send_buffer_bytes(window: u64) -> Option<u64> {
    let bytes = (window / 2).max(window.min(MIN_SEND_BUFFER_BYTES));
    (window <= MAX_FITTED_WINDOW_BYTES).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn no_more_is_under_way_than_half_of_a_small_window_of_an_initiator() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let send_buffer = |protocol, receive_buffer: Option<usize>| {
            let peer = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            if let Some(bytes) = receive_buffer {
                peer.set_recv_buffer_size(bytes).unwrap();
            }
            peer.connect(&address.into()).unwrap();
            let (stream, from) = listener.accept().unwrap();
            tune(&stream, from, protocol).unwrap();
            let window = peer_window::largest_window_bytes(&stream).unwrap() as usize;
            (socket2::SockRef::from(&stream).send_buffer_size().unwrap(), window)
        };
        let (fitted, window) = send_buffer(Protocol::Iscsi, Some(100_000));
        let most = send_buffer_bytes(window as u64).unwrap() as usize;
        assert!((most / 2..=most).contains(&fitted), "{fitted} of {window}");
        let usual = send_buffer(Protocol::Rpc, Some(100_000)).0;
        let (large, window) = send_buffer(Protocol::Iscsi, None);
        if window as u64 > MAX_FITTED_WINDOW_BYTES {
            assert_eq!(large, usual, "it grows with the window");
        }
        assert!(fitted < usual);
    }

    #[test]
    fn two_segments_of_any_network_are_under_way_if_the_window_holds_them() {
        let fitted = [1, 2, 4, 8, 16, 32].map(|scale| send_buffer_bytes(scale * 65_535));
        let expected = [65_535, 131_070, 131_072, 262_140, 524_280].map(Some);
        assert_eq!(fitted[..5], expected);
        assert_eq!(fitted[5], None);
    }

    /// Nothing is bound: the sysctl `ip_nonlocal_bind` makes no address local.
    #[test]
    fn an_address_is_local_if_an_interface_that_is_up_has_it() {
        let own: [IpAddr; 2] = ["10.0.0.1", "fd00::1"].map(|ip| ip.parse().unwrap());
        for (address, local) in [
            ("10.0.0.1", true),
            ("fd00::1", true),
            ("10.0.0.2", false),
            ("fd00::2", false),
            ("127.0.0.7", true),
            ("0.0.0.0", true),
            ("::", true),
        ] {
            assert_eq!(is_one_of(&own, address.parse().unwrap()), local, "{address}");
        }
    }

    #[test]
    fn this_machine_is_asked() {
        assert!(is_local(IpAddr::from([127, 0, 0, 1])));
        // RFC 5737: an address of documentation.
        assert!(!is_local(IpAddr::from([192, 0, 2, 1])));
    }
}
