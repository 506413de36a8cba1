//! A minimal HTTP server for metrics and status: GET only, one request per
//! connection, everything bounded.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Time limit of a core's answer to `/healthz`.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest request head accepted, in bytes.
const MAX_HEAD_BYTES: usize = 8 << 10;
/// Time limit for a request to arrive.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// Most concurrent requests.
const MAX_REQUESTS: usize = 16;

/// A running HTTP server; it ends with the process.
#[derive(Debug)]
pub(crate) struct Http {
    pub address: SocketAddr,
}

/// Content of the server's pages.
pub(crate) trait Pages: Send + Sync + 'static {
    /// All metrics as OpenMetrics text.
    fn metrics(self: &Arc<Self>) -> String;
    /// Status overview as JSON.
    ///
    /// # Errors
    /// If it has no JSON form.
    fn status(&self) -> serde_json::Result<String>;
    /// Returns the numbers of cores that do not answer within `limit`.
    fn silent_cores(&self, limit: Duration) -> impl Future<Output = Vec<usize>>;
}

/// Starts the server on a separate thread.
///
/// # Errors
/// The address and the next step.
pub(crate) fn start(listener: std::net::TcpListener, pages: Arc<impl Pages>) -> io::Result<Http> {
    let address = listener.local_addr()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().name("zgate-http".to_owned()).spawn(move || {
        let local = tokio::task::LocalSet::new();
        local.block_on(&runtime, async move {
            match TcpListener::from_std(listener) {
                Ok(listener) => serve(listener, pages).await,
                Err(error) => tracing::error!(%error, "cannot serve metrics"),
            }
        });
    })?;
    Ok(Http { address })
}

async fn serve(listener: TcpListener, pages: Arc<impl Pages>) {
    let room = Arc::new(tokio::sync::Semaphore::new(MAX_REQUESTS));
    loop {
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let pages = Arc::clone(&pages);
        tokio::task::spawn_local(async move {
            if let Err(error) = answer(stream, &pages).await {
                tracing::debug!(%error, "http");
            }
            drop(permit);
        });
    }
}

/// Content type of the metrics for a client that asks for OpenMetrics.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Content type of the same lines for any other client.
const PLAIN: &str = "text/plain; version=0.0.4";

async fn answer(mut stream: TcpStream, pages: &Arc<impl Pages>) -> io::Result<()> {
    let head = tokio::time::timeout(HEAD_TIMEOUT, read_head(&mut stream)).await??;
    let mut words = head.split(' ');
    let (code, kind, body) = match (words.next(), words.next()) {
        (Some("GET"), Some("/metrics")) => {
            let asked = head.to_ascii_lowercase().contains("application/openmetrics-text");
            ("200 OK", if asked { OPENMETRICS } else { PLAIN }, pages.metrics())
        }
        (Some("GET"), Some("/status")) => {
            let body = pages.status()?;
            ("200 OK", "application/json", body)
        }
        (Some("GET"), Some("/healthz")) => {
            let (code, body) = health(&pages.silent_cores(ANSWER_TIMEOUT).await);
            (code, "text/plain", body)
        }
        (Some("GET"), _) => {
            let body = "not found; use /metrics, /status or /healthz\n".to_owned();
            ("404 Not Found", "text/plain", body)
        }
        _ => ("405 Method Not Allowed", "text/plain", "GET only\n".to_owned()),
    };
    let reply = format!(
        "HTTP/1.1 {code}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(reply.as_bytes()).await?;
    stream.shutdown().await
}

/// Returns status line and body for cores of which some do not answer.
fn health(silent: &[usize]) -> (&'static str, String) {
    if silent.is_empty() {
        return ("200 OK", "ok\n".to_owned());
    }
    let cores = silent.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let seconds = ANSWER_TIMEOUT.as_secs();
    ("503 Service Unavailable", format!("no answer within {seconds} s from core {cores}\n"))
}

/// The request line and the header fields.
async fn read_head(stream: &mut TcpStream) -> io::Result<String> {
    let mut head = Vec::new();
    let mut buffer = [0; 1024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let got = stream.read(&mut buffer).await?;
        if got == 0 || head.len() + got > MAX_HEAD_BYTES {
            return Err(io::Error::from(io::ErrorKind::InvalidData));
        }
        head.extend_from_slice(&buffer[..got]);
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}
