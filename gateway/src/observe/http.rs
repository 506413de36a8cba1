//! The HTTP server for metrics and status. Axum routes requests; this file
//! accepts connections and bounds them, which `axum::serve` does not: number,
//! size of a request's head, time. A connection carries one request.

use super::text_format;
use axum::extract::{Request, State};
use axum::http::header::{ACCEPT, CONTENT_TYPE, HOST};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Version};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use zgate_store::{HostKey, HostPlaces};

/// Time limit of a core's answer to `/healthz`.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest request head accepted, in bytes. Hyper's buffer takes no fewer.
const MAX_HEAD_BYTES: usize = 8 << 10;
/// Most header fields of a request.
const MAX_HEADERS: usize = 64;
/// Time limit for a request to arrive.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit of a connection, until its client has taken the whole answer.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(60);
/// Most concurrent connections; more wait.
const MAX_CONNECTIONS: usize = 24;
/// Most of these from one host. It keeps no monitor out that asks from another one, although
/// each of its connections may last as long as [`CONNECTION_TIMEOUT`].
const MAX_CONNECTIONS_PER_HOST: usize = 12;

const _: () = assert!(MAX_CONNECTIONS_PER_HOST < MAX_CONNECTIONS);
const _: () = assert!(HEAD_TIMEOUT.as_secs() < CONNECTION_TIMEOUT.as_secs());
const _: () = assert!(ANSWER_TIMEOUT.as_secs() < CONNECTION_TIMEOUT.as_secs());

/// A running HTTP server; it ends with the process.
#[derive(Debug)]
pub(crate) struct Http {
    pub address: SocketAddr,
}

/// Other end of the connection, as an extension of each request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub SocketAddr);

/// The client has shown a certificate that the API knows, as an extension of each
/// of its requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Certified;

/// TLS of the server, for connections that begin now.
pub(crate) struct HttpTls {
    pub config: Arc<ServerConfig>,
    /// Clients without a certificate get nothing.
    pub requires_certificate: bool,
    /// Decides whether a verified certificate is one that the API knows.
    pub is_known: Box<dyn Fn(&CertificateDer<'_>) -> bool + Send>,
}

/// Source of [`HttpTls`]; `None`: no certificate is in effect, and nobody is
/// served.
pub(crate) type TlsSource = Arc<dyn Fn() -> Option<HttpTls> + Send + Sync>;

/// Bounds of a connection.
pub(crate) struct Bounds {
    /// The server, in the log.
    pub server: &'static str,
    /// Longest request head accepted, in bytes.
    pub head_bytes: usize,
    /// Time limit for the head to arrive.
    pub head_timeout: Duration,
    /// Time limit of the request and its answer, until the client has taken the whole answer.
    pub timeout: Duration,
}

const BOUNDS: Bounds = Bounds {
    server: "http",
    head_bytes: MAX_HEAD_BYTES,
    head_timeout: HEAD_TIMEOUT,
    timeout: CONNECTION_TIMEOUT,
};

/// Content of the server's pages.
pub(crate) trait Pages: Send + Sync + 'static {
    /// All metrics as OpenMetrics text.
    fn metrics(self: &Arc<Self>) -> String;
    /// Returns the numbers of cores that do not answer within `limit`.
    fn silent_cores(&self, limit: Duration) -> impl Future<Output = Vec<usize>> + Send;
}

/// Starts the server on a separate thread; `more` has further routes. Without
/// `tls`, it speaks HTTP.
///
/// # Errors
/// The address and the next step.
pub(crate) fn start(
    listener: std::net::TcpListener,
    pages: Arc<impl Pages>,
    more: Router,
    tls: Option<TlsSource>,
) -> io::Result<Http> {
    let address = listener.local_addr()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().name("zgate-http".to_owned()).spawn(move || {
        runtime.block_on(async move {
            match TcpListener::from_std(listener) {
                Ok(listener) => serve(listener, router(pages, more), tls).await,
                Err(error) => tracing::error!(%error, "cannot serve metrics"),
            }
        });
    })?;
    Ok(Http { address })
}

/// Places of connections by their hosts.
type Places = HostPlaces<MAX_CONNECTIONS, MAX_CONNECTIONS_PER_HOST>;

async fn serve(listener: TcpListener, router: Router, tls: Option<TlsSource>) {
    let room = Arc::new(tokio::sync::Semaphore::new(MAX_CONNECTIONS));
    let places = Arc::<Places>::default();
    loop {
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
        let Ok((stream, peer)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        // A host with too many is closed at once.
        let Some(place) = places.take(HostKey::from(peer.ip())) else { continue };
        let router = router.clone().layer(Extension(Peer(peer)));
        let tls = tls.clone();
        tokio::spawn(async move {
            match tls {
                None => answer(stream, router, &BOUNDS).await,
                Some(source) => answer_tls(stream, router, &source).await,
            }
            drop((place, permit));
        });
    }
}

/// Makes the handshake, answers one request and closes the connection.
async fn answer_tls(stream: TcpStream, router: Router, source: &TlsSource) {
    let Some(HttpTls { config, requires_certificate, is_known }) = source() else { return };
    let handshake = TlsAcceptor::from(config).accept(stream);
    let stream = match tokio::time::timeout(HEAD_TIMEOUT, handshake).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%error, "http: no handshake"),
        Err(_) => return tracing::debug!("http: no handshake in time"),
    };
    let leaf = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    let router = match leaf {
        Some(leaf) if is_known(leaf) => router.layer(Extension(Certified)),
        Some(_) => router,
        None if requires_certificate => Router::new()
            .fallback((StatusCode::FORBIDDEN, "a client certificate of api.client_ca is needed\n")),
        None => router,
    };
    answer(stream, router, &BOUNDS).await;
}

/// Answers one request and closes the connection.
pub(crate) async fn answer<S>(stream: S, router: Router, bounds: &Bounds)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(bounds.head_timeout)
        .max_buf_size(bounds.head_bytes)
        .max_headers(MAX_HEADERS)
        .keep_alive(false)
        // A client that closes its direction after the request gets its answer.
        .half_close(true)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    match tokio::time::timeout(bounds.timeout, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "{}", bounds.server),
        Err(_) => tracing::debug!("{}: the client did not take its answer in time", bounds.server),
    }
}

/// The pages. For each of them axum answers HEAD, too, and does not look at the
/// query.
fn router<P: Pages>(pages: Arc<P>, more: Router) -> Router {
    Router::new()
        .route("/metrics", get(metrics::<P>))
        .route("/healthz", get(health::<P>))
        .with_state(pages)
        .merge(more)
        .fallback((
            StatusCode::NOT_FOUND,
            "not found; use /, /api/v1/openapi.json, /metrics, /status or /healthz\n",
        ))
        .method_not_allowed_fallback(async || {
            (StatusCode::METHOD_NOT_ALLOWED, "GET and HEAD only\n")
        })
        .layer(from_fn(require_host))
}

/// Characters of a host and a port beside letters and digits (RFC 3986 section 3.2.2).
const HOST_MARKS: &[u8] = b"-._~%!$&'()*+,;=:[]";

/// Returns whether a request names its host as it must (RFC 9112 section 3.2): one of HTTP/1.1
/// exactly once, an older one once at most. Which host it may be is not decided here.
pub(crate) fn names_host(request: &Request) -> bool {
    let is_host = |value: &HeaderValue| {
        let mut bytes = value.as_bytes().iter();
        bytes.all(|byte| byte.is_ascii_alphanumeric() || HOST_MARKS.contains(byte))
    };
    let mut named = request.headers().get_all(HOST).iter();
    match (named.next(), named.next()) {
        (None, _) => request.version() < Version::HTTP_11,
        (Some(host), None) => is_host(host),
        (Some(_), Some(_)) => false,
    }
}

/// Refuses a request that does not name its host as it must.
async fn require_host(request: Request, next: Next) -> Response {
    if names_host(&request) {
        return next.run(request).await;
    }
    let reason = "HTTP/1.1 needs one field Host: name the host once, or use HTTP/1.0\n";
    (StatusCode::BAD_REQUEST, reason).into_response()
}

/// Content type of the metrics for a client that asks for OpenMetrics.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Content type of the metrics for any other client.
const PLAIN: &str = "text/plain; version=0.0.4";

async fn metrics<P: Pages>(State(pages): State<Arc<P>>, headers: HeaderMap) -> Response {
    let asks = |value: &HeaderValue| {
        value
            .as_bytes()
            .to_ascii_lowercase()
            .windows(OPENMETRICS_TYPE.len())
            .any(|part| part == OPENMETRICS_TYPE)
    };
    let page = pages.metrics();
    if headers.get_all(ACCEPT).iter().any(asks) {
        return ([(CONTENT_TYPE, OPENMETRICS)], page).into_response();
    }
    ([(CONTENT_TYPE, PLAIN)], text_format::from_openmetrics(&page)).into_response()
}

/// Media type of OpenMetrics in `Accept`.
const OPENMETRICS_TYPE: &[u8] = b"application/openmetrics-text";

async fn health<P: Pages>(State(pages): State<Arc<P>>) -> (StatusCode, String) {
    let silent = pages.silent_cores(ANSWER_TIMEOUT).await;
    if silent.is_empty() {
        return (StatusCode::OK, "ok\n".to_owned());
    }
    let cores = silent.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let seconds = ANSWER_TIMEOUT.as_secs();
    (StatusCode::SERVICE_UNAVAILABLE, format!("no answer within {seconds} s from core {cores}\n"))
}

#[cfg(test)]
#[path = "http_tests.rs"]
mod tests;
