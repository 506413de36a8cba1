//! Clients by URL.

use crate::error::of_client;
use crate::runtime::{is_started, wait};
use futures_util::future::join_all;
use pyo3::exceptions::{PyConnectionError, PyValueError};
use pyo3::prelude::*;
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use zgate_fabric::EmulatedFabric;
use zgate_loader::transport::TransportChoice;
use zgate_loader::url::Rdma;
use zgate_loader::{Client, ClientOptions, LEAVE_TIMEOUT, NfsUrl, START_WAIT, all_left};
use zgate_rpc::{AuthSys, Credential};

const MAX_GROUPS: usize = 16;
/// Most clients that are cached.
const MAX_KEPT: usize = 16;

/// Key of a client: models with the same key share one.
#[derive(Clone, PartialEq)]
struct ClientKey {
    addresses: Vec<SocketAddr>,
    connections: usize,
    rdma: (Rdma, u16),
    wait: Duration,
    patience: Duration,
    uid: u32,
    gid: u32,
    process: u32,
}

/// A client, once a thread has connected it; others wait for it meanwhile.
type Kept = Arc<tokio::sync::Mutex<Option<Arc<Client>>>>;

/// Cached clients, least recently used first. A process is one client of a
/// server: models opened one after the other, or by many threads, share its
/// session and connections.
static KEPT: Mutex<Vec<(ClientKey, Kept)>> = Mutex::new(Vec::new());

/// Returns the client for the server of `url`. `patience` and `start` are in
/// seconds; without `start`, the default, or `patience` if that is shorter.
pub(crate) fn connect(
    py: Python<'_>,
    url: &str,
    patience: f64,
    start: Option<f64>,
) -> PyResult<(NfsUrl, Arc<Client>)> {
    let url: NfsUrl = url.parse().map_err(|error| PyValueError::new_err(format!("{error}")))?;
    let patience = seconds("patience", patience)?;
    let start = start.map(|start| seconds("wait", start)).transpose()?;
    let addresses = py
        .detach(|| url.resolve())
        .map_err(|error| PyConnectionError::new_err(format!("{url}: {error}")))?;
    let key = ClientKey {
        addresses,
        connections: url.connections,
        rdma: (url.rdma, url.rdma_port),
        wait: start.unwrap_or(START_WAIT.min(patience)),
        patience,
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        process: std::process::id(),
    };
    let transport = py
        .detach(|| transport(&url))
        .map_err(|reason| PyConnectionError::new_err(format!("{url}: rdma=on: {reason}")))?;
    let options = options(&key, transport);
    let kept = kept(&key);
    let client = wait(py, || async {
        let mut kept = kept.lock().await;
        if let Some(client) = &*kept {
            return Ok(Arc::clone(client));
        }
        let client = Client::connect_all(&key.addresses, &options).await?;
        Ok(Arc::clone(kept.insert(Arc::new(client))))
    })?;
    let client = client.map_err(|source| of_client(&url, source))?;
    Ok((url, client))
}

fn seconds(name: &str, value: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(value).map_err(|_| {
        PyValueError::new_err(format!("{name}={value}: a number of seconds, 0 or more"))
    })
}

fn kept(key: &ClientKey) -> Kept {
    let mut all = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    let found = match all.iter().position(|(other, _)| other == key) {
        Some(index) => all.remove(index),
        None => (key.clone(), Kept::default()),
    };
    let kept = Arc::clone(&found.1);
    all.push(found);
    if all.len() > MAX_KEPT {
        all.remove(0);
    }
    kept
}

/// Fabric in place of this machine's devices, in tests.
static EMULATED: OnceLock<EmulatedFabric> = OnceLock::new();

/// Uses the emulated fabric for RDMA from now on, for the package's tests on
/// machines without a device. `zgate` itself does not export this function.
#[pyfunction]
pub(crate) fn emulate_rdma() {
    EMULATED.get_or_init(EmulatedFabric::new);
}

/// Chooses the transport as the command line does: RDMA if there is a device.
fn transport(url: &NfsUrl) -> Result<TransportChoice, String> {
    match EMULATED.get() {
        Some(fabric) if url.rdma != Rdma::Off => {
            Ok(TransportChoice::over(Arc::new(fabric.clone()), url.rdma, url.rdma_port))
        }
        _ => TransportChoice::discover(url.rdma, url.rdma_port),
    }
}

/// Unregisters from every server at the end of the interpreter.
#[pyfunction]
pub(crate) fn leave(py: Python<'_>) -> PyResult<()> {
    let process = std::process::id();
    let mut all = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    let ours: Vec<Kept> =
        all.extract_if(.., |(key, _)| key.process == process).map(|(_, kept)| kept).collect();
    drop(all);
    if !is_started() {
        return Ok(());
    }
    wait(py, || async {
        let leaving = ours.iter().map(|kept| async {
            if let Some(client) = kept.lock().await.take() {
                client.close().await;
            }
        });
        // A client that is just connecting is not waited for.
        let _ = tokio::time::timeout(LEAVE_TIMEOUT, join_all(leaving)).await;
        // Those that failed, were interrupted or made room for others.
        all_left().await;
    })
}

fn options(key: &ClientKey, transport: TransportChoice) -> ClientOptions {
    let (owner, verifier) = identity();
    let groups = rustix::process::getgroups().unwrap_or_default();
    ClientOptions {
        connections: key.connections,
        credential: Credential::Sys(AuthSys {
            uid: key.uid,
            gid: key.gid,
            groups: groups.iter().take(MAX_GROUPS).map(|group| group.as_raw()).collect(),
            ..AuthSys::default()
        }),
        owner,
        verifier,
        wait: key.wait,
        patience: key.patience,
        transport,
        ..ClientOptions::default()
    }
}

/// Returns a client's name for servers (client_owner4, RFC 8881 §2.4),
/// different for each client: a server would take one client's CREATE_SESSION
/// for a retransmission of the other's. Processes of different hosts or
/// containers may have the same number.
fn identity() -> (Vec<u8>, [u8; 8]) {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let process = std::process::id();
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let number = RandomState::new().hash_one((process, count, std::time::SystemTime::now()));
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy();
    (format!("zgate-python {host} {process} {number:016x}").into_bytes(), number.to_be_bytes())
}
