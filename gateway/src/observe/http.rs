//! A very small HTTP server for metrics and status: GET only, one request a
//! connection, everything bounded.

use super::{exposition, status};
use crate::serve::health::ANSWER_TIMEOUT;
use crate::serve::service::Shared;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Longest request head taken, in bytes.
const MAX_HEAD_BYTES: usize = 8 << 10;
/// How long a request may take to arrive.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// Requests served at the same time.
const MAX_REQUESTS: usize = 16;

/// A running HTTP server; it ends with the process.
#[derive(Debug)]
pub(crate) struct Http {
    pub address: SocketAddr,
}

/// Starts it on a thread of its own.
///
/// # Errors
/// With the address and the next step.
pub(crate) fn start(address: SocketAddr, shared: Arc<Shared>) -> io::Result<Http> {
    let listener = crate::listen::accept::bind(address)?;
    let address = listener.local_addr()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().name("zgate-http".to_owned()).spawn(move || {
        let local = tokio::task::LocalSet::new();
        local.block_on(&runtime, async move {
            match TcpListener::from_std(listener) {
                Ok(listener) => serve(listener, shared).await,
                Err(error) => tracing::error!(%error, "metrics are not served"),
            }
        });
    })?;
    Ok(Http { address })
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let room = Arc::new(tokio::sync::Semaphore::new(MAX_REQUESTS));
    loop {
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let shared = Arc::clone(&shared);
        tokio::task::spawn_local(async move {
            if let Err(error) = answer(stream, &shared).await {
                tracing::debug!(%error, "http");
            }
            drop(permit);
        });
    }
}

async fn answer(mut stream: TcpStream, shared: &Shared) -> io::Result<()> {
    let head = tokio::time::timeout(HEAD_TIMEOUT, read_head(&mut stream)).await??;
    let mut words = head.split(' ');
    let (code, kind, body) = match (words.next(), words.next()) {
        (Some("GET"), Some("/metrics")) => {
            ("200 OK", "text/plain; version=0.0.4", exposition::render(shared))
        }
        (Some("GET"), Some("/status")) => {
            let body = serde_json::to_string_pretty(&status::status(shared))?;
            ("200 OK", "application/json", body)
        }
        (Some("GET"), Some("/healthz")) => {
            let (code, body) = health(&shared.health.silent_cores(ANSWER_TIMEOUT).await);
            (code, "text/plain", body)
        }
        (Some("GET"), _) => {
            let body = "there is /metrics, /status and /healthz\n".to_owned();
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

/// What is said about cores of which some do not answer.
fn health(silent: &[usize]) -> (&'static str, String) {
    if silent.is_empty() {
        return ("200 OK", "ok\n".to_owned());
    }
    let cores = silent.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let seconds = ANSWER_TIMEOUT.as_secs();
    ("503 Service Unavailable", format!("no answer within {seconds} s from core {cores}\n"))
}

/// The request line.
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
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    Ok(String::from_utf8_lossy(line).into_owned())
}
