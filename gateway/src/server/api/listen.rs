//! Listeners of the API: a Unix socket, and TCP with TLS. A connection carries
//! one request; its number, size and time are bounded.

use super::credentials::Credentials;
use super::guard::Connection;
use crate::admin::{bind_private, refuse_another, refuse_foreign_file};
use crate::observe::audit::Asker;
use crate::observe::http::{Bounds, answer};
use crate::server::limits::{
    API_CONNECTION_TIMEOUT, API_HEAD_TIMEOUT, MAX_API_CONNECTIONS, MAX_API_CONNECTIONS_PER_HOST,
    MAX_API_HEAD_BYTES,
};
use axum::{Extension, Router};
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use zgate_store::{HostKey, HostPlaces};

const BOUNDS: Bounds = Bounds {
    server: "api",
    head_bytes: MAX_API_HEAD_BYTES,
    head_timeout: API_HEAD_TIMEOUT,
    timeout: API_CONNECTION_TIMEOUT,
};
/// Pause after a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Source of the credentials in effect.
pub(crate) type Source = Arc<dyn Fn() -> Option<Arc<Credentials>> + Send + Sync>;

/// Places of connections over TCP: one host does not keep others from theirs.
type TcpPlaces = HostPlaces<MAX_API_CONNECTIONS, MAX_API_CONNECTIONS_PER_HOST>;

/// Room for connections: more of them wait.
#[derive(Clone)]
struct Room {
    /// At the socket, which is the gateway's user's: however many hosts connect over TCP, even
    /// without a token or a certificate, they take no place here.
    local: Arc<Semaphore>,
    remote: Arc<Semaphore>,
    over_tcp: Arc<TcpPlaces>,
}

impl Room {
    fn new() -> Self {
        let room = || Arc::new(Semaphore::new(MAX_API_CONNECTIONS));
        Self { local: room(), remote: room(), over_tcp: Arc::default() }
    }
}

/// Opens the socket, and serves it and the listeners on a thread of their own.
///
/// # Errors
/// The path or address, the reason and the next step.
pub(crate) fn start(
    socket: &Path,
    listeners: Vec<std::net::TcpListener>,
    credentials: Source,
    router: Router,
) -> io::Result<()> {
    let named = |error: io::Error| {
        let reason = format!("api socket {}: {error}; set api.socket", socket.display());
        io::Error::new(error.kind(), reason)
    };
    refuse_another(socket, "api.socket")?;
    refuse_foreign_file(socket, "api.socket")?;
    match std::fs::remove_file(socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(named(error)),
        _ => {}
    }
    let local = bind_private(socket).map_err(named)?;
    local.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().name("zgate-api".to_owned()).spawn(move || {
        runtime.block_on(async move {
            let room = Room::new();
            for listener in listeners {
                match TcpListener::from_std(listener) {
                    Ok(listener) => {
                        let all = (room.clone(), Arc::clone(&credentials), router.clone());
                        tokio::spawn(serve_tcp(listener, all));
                    }
                    Err(error) => tracing::error!(%error, "cannot serve the API"),
                }
            }
            match UnixListener::from_std(local) {
                Ok(listener) => serve_local(listener, room, router).await,
                Err(error) => tracing::error!(%error, "cannot serve the API's socket"),
            }
        });
    })?;
    Ok(())
}

async fn serve_local(listener: UnixListener, room: Room, router: Router) {
    loop {
        let Ok(permit) = Arc::clone(&room.local).acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let router = router.clone().layer(Extension(Connection::Local(asker(&stream))));
        tokio::spawn(async move {
            answer(stream, router, &BOUNDS).await;
            drop(permit);
        });
    }
}

fn asker(stream: &UnixStream) -> Asker {
    match stream.peer_cred() {
        Ok(known) => Asker::Process { uid: known.uid(), pid: known.pid().unwrap_or_default() },
        Err(_) => Asker::Unknown,
    }
}

async fn serve_tcp(listener: TcpListener, (room, source, router): (Room, Source, Router)) {
    loop {
        let Ok(permit) = Arc::clone(&room.remote).acquire_owned().await else { return };
        let Ok((stream, peer)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        // A host with too many is closed at once.
        if let Some(place) = room.over_tcp.take(HostKey::from(peer.ip())) {
            let (source, router) = (Arc::clone(&source), router.clone());
            tokio::spawn(async move {
                answer_tls(stream, peer, &source, router).await;
                drop((place, permit));
            });
        }
    }
}

async fn answer_tls(stream: TcpStream, peer: SocketAddr, source: &Source, router: Router) {
    let Some(credentials) = source() else { return };
    let _ = stream.set_nodelay(true);
    let handshake = TlsAcceptor::from(Arc::clone(&credentials.tls)).accept(stream);
    let stream = match tokio::time::timeout(API_HEAD_TIMEOUT, handshake).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            tracing::debug!(%peer, %error, "api: no handshake");
            return;
        }
        Err(_) => {
            tracing::debug!(%peer, "api: no handshake in time");
            return;
        }
    };
    let leaf = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    let certificate = leaf.and_then(|leaf| credentials.of_certificate(leaf));
    let connection = Connection::Remote { peer, credentials, certificate };
    answer(stream, router.layer(Extension(connection)), &BOUNDS).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[test]
    fn a_file_in_the_place_of_the_socket_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("data.img");
        std::fs::write(&file, "precious").unwrap();
        let refused = start(&file, Vec::new(), Arc::new(|| None), Router::new());
        let said = refused.unwrap_err().to_string();
        assert!(said.contains("is no socket; remove it, or correct api.socket"), "{said}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "precious");
    }

    #[test]
    fn one_host_cannot_take_all_connections() {
        let room = Room::new();
        let take = |last: u8| room.over_tcp.take(HostKey::from(IpAddr::from([192, 0, 2, last])));
        let held: Vec<_> = std::iter::from_fn(|| take(1)).collect();
        assert_eq!(held.len(), MAX_API_CONNECTIONS_PER_HOST);
        assert!(take(2).is_some());
        drop(held);
        assert_eq!(room.over_tcp.hosts(), 0);
    }

    #[tokio::test]
    async fn other_hosts_take_no_place_at_the_socket() {
        let (dir, room) = (tempfile::tempdir().unwrap(), Room::new());
        // As many hosts as there is room for are connected, and say nothing.
        let all = u32::try_from(MAX_API_CONNECTIONS).unwrap();
        let _held = Arc::clone(&room.remote).acquire_many_owned(all).await.unwrap();
        let path = dir.path().join("s");
        let listener = UnixListener::bind(&path).unwrap();
        tokio::spawn(serve_local(listener, room, Router::new().fallback("here")));
        let mut stream = UnixStream::connect(&path).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        let answered = stream.read_to_string(&mut answer);
        tokio::time::timeout(Duration::from_secs(30), answered).await.unwrap().unwrap();
        assert!(answer.ends_with("\r\n\r\nhere"), "{answer}");
    }
}
