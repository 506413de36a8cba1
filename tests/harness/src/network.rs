//! Ports, listeners and connections on this machine.

use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// The longest a listener or a connection is waited for.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Returns a free port for a server.
pub fn free_port() -> u16 {
    zgate_test_initiator::ports::free_port().unwrap()
}

/// Waits for a listener: those of RDMA start after those of TCP.
pub fn wait_for_listener(address: SocketAddr) {
    let deadline = Instant::now() + TIMEOUT;
    while TcpStream::connect(address).is_err() {
        assert!(Instant::now() < deadline, "nobody listens at {address}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Connects from one of this machine's addresses.
pub fn stream_from(host: IpAddr, to: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
    socket.bind(&SocketAddr::from((host, 0)).into())?;
    socket.connect_timeout(&to.into(), TIMEOUT)?;
    Ok(socket.into())
}
