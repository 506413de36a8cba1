//! Registration with the machine's rpcbind (RFC 1833), for NFSv3 clients that query
//! it instead of using `port=` and `mountport=`.
//!
//! rpcbind takes registrations over its Unix socket, where it knows the caller's
//! user, and over TCP only from ports of root on the loopback interface. So the
//! socket is asked wherever there is one.

use socket2::{Domain, SockAddr, Socket, Type};
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};
use zgate_rpc::CallHeader;
use zgate_rpc::auth::OpaqueAuth;
use zgate_rpc::message::decode_reply;
use zgate_rpc::record::{Marker, Parsed, parse_within};
use zgate_xdr::{Decoder, Encode, Encoder};

/// Program number of rpcbind.
const RPCBIND: u32 = 100_000;
/// Port of rpcbind.
pub const PORT: u16 = 111;
/// Socket of rpcbind.
const SOCKET: &str = "/run/rpcbind.sock";
// The same in all versions of rpcbind.
const SET: u32 = 1;
const UNSET: u32 = 2;
/// TCP in version 2.
const TCP: u32 = 6;
/// TCP over IPv6 in version 4 (RFC 5665).
const TCP_OVER_IPV6: &[u8] = b"tcp6";
/// The longest one call may take.
const CALL_PATIENCE: Duration = Duration::from_secs(2);
/// The longest all calls of a start or a stop may take: clients wait for both.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest reply, in bytes: a header with a verifier, and a word.
const MAX_REPLY_BYTES: usize = 1024;

/// Program and version of all services on the NFS port.
const SERVED: [(u32, u32); 3] = [
    (zgate_nfs_wire::PROGRAM, zgate_nfs_wire::v3::VERSION),
    (zgate_nfs_wire::PROGRAM, zgate_nfs_wire::v4::VERSION),
    (zgate_nfs_wire::mount::PROGRAM, zgate_nfs_wire::mount::VERSION),
];

/// Network over which a service is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Network {
    /// Registered with version 2, which knows no other one.
    Ipv4,
    /// Registered with version 4.
    Ipv6,
}

impl Network {
    /// Returns the version of rpcbind that knows it.
    fn rpcbind_version(self) -> u32 {
        match self {
            Self::Ipv4 => 2,
            Self::Ipv6 => 4,
        }
    }
}

/// A service at a port, in the form of its network: the `mapping` of RFC 1833 §3.1, or the
/// `rpcb` of §2.1.
struct Registration {
    network: Network,
    /// Program and version.
    service: (u32, u32),
    port: u16,
}

impl Encode for Registration {
    fn encode(&self, e: &mut Encoder) {
        e.u32(self.service.0);
        e.u32(self.service.1);
        match self.network {
            Network::Ipv4 => {
                e.u32(TCP);
                e.u32(u32::from(self.port));
            }
            Network::Ipv6 => {
                let [high, low] = self.port.to_be_bytes();
                e.opaque(TCP_OVER_IPV6);
                e.opaque(format!("::.{high}.{low}").as_bytes());
                // The owner, whom rpcbind knows itself.
                e.opaque(b"");
            }
        }
    }
}

/// Returns the networks over which a gateway that listens there is reached, with the ports.
fn places(listen: &[SocketAddr]) -> Vec<(Network, u16)> {
    // A socket at `[::]` takes connections over IPv4, too.
    let over_ipv4 = listen.iter().find(|at| at.is_ipv4() || at.ip().is_unspecified());
    let over_ipv6 = listen.iter().find(|at| at.is_ipv6());
    let found = [(Network::Ipv4, over_ipv4), (Network::Ipv6, over_ipv6)];
    found.into_iter().filter_map(|(network, at)| Some((network, at?.port()))).collect()
}

/// Place where rpcbind is asked.
#[derive(Clone, Copy, Debug)]
enum Mapper<'p> {
    /// Its Unix socket.
    Socket(&'p Path),
    /// Its port, because this socket does not exist.
    Port(SocketAddr, &'p Path),
}

impl fmt::Display for Mapper<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(path) => write!(f, "{}", path.display()),
            Self::Port(address, socket) => {
                write!(f, "{address}, because there is no {}", socket.display())
            }
        }
    }
}

impl<'p> Mapper<'p> {
    fn at(socket: &'p Path, port: SocketAddr) -> Self {
        if socket.exists() { Self::Socket(socket) } else { Self::Port(port, socket) }
    }

    /// Returns that of this machine.
    fn local() -> Mapper<'static> {
        Mapper::at(Path::new(SOCKET), SocketAddr::from((Ipv4Addr::LOCALHOST, PORT)))
    }

    fn connect(self, until: Instant) -> io::Result<Socket> {
        let (domain, address) = match self {
            Self::Socket(path) => (Domain::UNIX, SockAddr::unix(path)?),
            Self::Port(address, _) => (Domain::for_address(address), SockAddr::from(address)),
        };
        let socket = Socket::new(domain, Type::STREAM, None)?;
        socket.connect_timeout(&address, left(until)?)?;
        Ok(socket)
    }
}

/// Returns the time until then.
///
/// # Errors
/// There is none left.
fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(late()) } else { Ok(left) }
}

fn late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "no answer in time")
}

/// Sends a call as a record and returns the reply, all until then.
fn exchange(socket: &mut Socket, call: &[u8], until: Instant) -> io::Result<Vec<u8>> {
    let timed = |error: io::Error| match error.kind() {
        // What a socket's time limit is reported as.
        io::ErrorKind::WouldBlock => late(),
        _ => error,
    };
    socket.set_write_timeout(Some(left(until)?))?;
    socket.write_all(call).map_err(timed)?;
    let mut received = Vec::<u8>::new();
    loop {
        let more = match parse_within(&received, MAX_REPLY_BYTES).map_err(io::Error::other)? {
            Parsed::Record(record) => return Ok(record.body(&received).into_owned()),
            Parsed::Need(more) => more,
        };
        let at = received.len();
        received.resize(at + more, 0);
        socket.set_read_timeout(Some(left(until)?))?;
        let count = match socket.read(&mut received[at..]) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => count.map_err(timed)?,
        };
        received.truncate(at + count);
    }
}

/// Asks for a change; returns whether it was made.
fn ask(
    mapper: Mapper<'_>,
    procedure: u32,
    registration: &Registration,
    until: Instant,
) -> io::Result<bool> {
    let until = until.min(Instant::now() + CALL_PATIENCE);
    let mut e = Encoder::new();
    let header = CallHeader {
        // One call on a connection.
        xid: std::process::id(),
        program: RPCBIND,
        version: registration.network.rpcbind_version(),
        procedure,
        credential: OpaqueAuth::none(),
        verifier: OpaqueAuth::none(),
    };
    header.encode(&mut e);
    registration.encode(&mut e);
    let too_long = || io::Error::other("the call is too long");
    let message = e.finish_bytes().ok_or_else(too_long)?;
    let marker = Marker::whole(message.len()).ok_or_else(too_long)?;
    let mut socket = mapper.connect(until)?;
    let reply = exchange(&mut socket, &[&marker[..], &message[..]].concat(), until)?;
    let mut d = Decoder::new(&reply);
    decode_reply(&mut d)
        .map_err(|(_, error)| io::Error::other(format!("the call was refused: {error:?}")))?;
    Ok(d.u32().map_err(io::Error::other)? == 1)
}

fn register_at(
    mapper: Mapper<'_>,
    (network, port): (Network, u16),
    until: Instant,
) -> io::Result<()> {
    let named =
        |error: io::Error| io::Error::new(error.kind(), format!("rpcbind at {mapper}: {error}"));
    for service in SERVED {
        let at = |port: u16| Registration { network, service, port };
        // A registration left behind by a crashed server would refuse ours.
        ask(mapper, UNSET, &at(0), until).map_err(named)?;
        if !ask(mapper, SET, &at(port), until).map_err(named)? {
            let (program, version) = service;
            let what = format!("program {program} version {version} was refused");
            return Err(named(io::Error::other(what)));
        }
    }
    Ok(())
}

/// Registers the ports of NFS. Clients that specify the port do not need the
/// registration, so a failure is only logged.
pub(crate) fn register(listen: &[SocketAddr]) {
    let (mapper, until) = (Mapper::local(), Instant::now() + PATIENCE);
    for (network, port) in places(listen) {
        match register_at(mapper, (network, port), until) {
            Ok(()) => tracing::info!(?network, port, %mapper, "registered with rpcbind"),
            Err(error) => {
                tracing::warn!(
                    ?network,
                    %error,
                    "cannot register with rpcbind; clients must specify the port: start rpcbind with its \
                     socket, then restart the gateway"
                );
            }
        }
    }
}

/// Removes the registrations.
pub(crate) fn unregister(listen: &[SocketAddr]) {
    let (mapper, until) = (Mapper::local(), Instant::now() + PATIENCE);
    for (network, _) in places(listen) {
        for service in SERVED {
            let registration = Registration { network, service, port: 0 };
            if let Err(error) = ask(mapper, UNSET, &registration, until) {
                tracing::debug!(%error, %mapper, "rpcbind");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;
    use std::thread::JoinHandle;

    /// A port mapper that accepts everything and records its requests.
    fn mapper<S: Read + Write + 'static>(
        mut accept: impl FnMut() -> S + Send + 'static,
    ) -> JoinHandle<Vec<Vec<u32>>> {
        std::thread::spawn(move || {
            let mut asked = Vec::new();
            for _ in 0..2 * SERVED.len() {
                let mut stream = accept();
                let mut mark = [0; 4];
                stream.read_exact(&mut mark).unwrap();
                let mut raw = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
                stream.read_exact(&mut raw).unwrap();
                let words: Vec<u32> =
                    raw.chunks(4).map(|w| u32::from_be_bytes(w.try_into().unwrap())).collect();
                // In two fragments.
                let reply: Vec<u8> = [8, words[0], 1, 0x8000_0014, 0, 0, 0, 0, 1]
                    .iter()
                    .flat_map(|word: &u32| word.to_be_bytes())
                    .collect();
                stream.write_all(&reply).unwrap();
                asked.push(words);
            }
            asked
        })
    }

    fn later() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    fn assert_registered(asked: &[Vec<u32>]) {
        assert_eq!(asked[0][3..6], [100_000, 2, UNSET]);
        assert_eq!(asked[1][3..6], [100_000, 2, SET]);
        assert_eq!(asked[1][10..], [100_003, 3, TCP, 2049]);
        assert_eq!(asked[5][10..], [100_005, 3, TCP, 2049]);
    }

    /// Returns an address at which nothing listens.
    fn free() -> SocketAddr {
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap()
    }

    #[test]
    fn everything_served_is_registered_after_what_was_left_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rpcbind.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let asked = mapper(move || listener.accept().unwrap().0);
        // The port is not asked.
        register_at(Mapper::at(&path, free()), (Network::Ipv4, 2049), later()).unwrap();
        assert_registered(&asked.join().unwrap());
    }

    #[test]
    fn clients_over_ipv6_find_the_port_too() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rpcbind.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let asked = mapper(move || listener.accept().unwrap().0);
        register_at(Mapper::at(&path, free()), (Network::Ipv6, 2049), later()).unwrap();
        let asked = asked.join().unwrap();
        assert_eq!(asked[0][3..6], [100_000, 4, UNSET]);
        assert_eq!(asked[1][3..6], [100_000, 4, SET]);
        let word = |text: &[u8; 4]| u32::from_be_bytes(*text);
        // Network, address and port, owner.
        let place = [4, word(b"tcp6"), 6, word(b"::.8"), word(b".1\0\0"), 0];
        assert_eq!(asked[1][10..], [&[100_003_u32, 3][..], &place[..]].concat());
        assert_eq!(asked[5][10..], [&[100_005_u32, 3][..], &place[..]].concat());
    }

    #[test]
    fn each_network_is_registered_with_the_port_at_which_it_is_served() {
        let found = |listen: &[&str]| {
            let listen: Vec<SocketAddr> = listen.iter().map(|at| at.parse().unwrap()).collect();
            places(&listen)
        };
        let ipv4 = |port: u16| (Network::Ipv4, port);
        let ipv6 = |port: u16| (Network::Ipv6, port);
        assert_eq!(found(&["0.0.0.0:2049"]), [ipv4(2049)]);
        assert_eq!(found(&["[::]:2049"]), [ipv4(2049), ipv6(2049)]);
        assert_eq!(found(&["[fd00::1]:20490", "10.0.0.1:2049"]), [ipv4(2049), ipv6(20490)]);
        assert_eq!(found(&["[fd00::1]:2049"]), [ipv6(2049)]);
        assert!(found(&[]).is_empty());
    }

    #[test]
    fn without_its_socket_the_port_is_asked() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rpcbind.sock");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let asked = mapper(move || listener.accept().unwrap().0);
        register_at(Mapper::at(&path, address), (Network::Ipv4, 2049), later()).unwrap();
        assert_registered(&asked.join().unwrap());
    }

    #[test]
    fn a_machine_without_a_port_mapper_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let (path, address) = (dir.path().join("rpcbind.sock"), free());
        let place = (Network::Ipv4, 2049);
        let said =
            |until| register_at(Mapper::at(&path, address), place, until).unwrap_err().to_string();
        let missing = format!("rpcbind at {address}, because there is no {}: ", path.display());
        assert!(said(later()).starts_with(&missing), "{}", said(later()));
        // It listens, and does not accept.
        let _listener = UnixListener::bind(&path).unwrap();
        let late = format!("rpcbind at {}: no answer in time", path.display());
        assert_eq!(said(Instant::now()), late);
    }
}
