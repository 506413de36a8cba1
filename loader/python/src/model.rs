//! Models, loads and file streams for Python.

use crate::buffer::Buffer;
use crate::runtime::{raise, runtime, wait};
use pyo3::exceptions::{PyConnectionError, PyOSError, PyValueError};
use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use zgate_loader::model::checksum::{Verify, parse_sums};
use zgate_loader::model::{FileStream, LoadError, Part, load::Progress};
use zgate_loader::url::Rdma;
use zgate_loader::{
    Client, ClientOptions, File, LoadOptions, NfsUrl, OpenMode, Plan, Wanted, directory,
};
use zgate_rpc::{AuthSys, Credential};

const MAX_GROUPS: usize = 16;
const SUMS: &str = "SHA256SUMS";
const MAX_SUMS_BYTES: u64 = 1 << 20;

fn connect(py: Python<'_>, url: &str, patience: f64) -> PyResult<(NfsUrl, Arc<Client>)> {
    let url: NfsUrl =
        url.parse().map_err(|error| PyValueError::new_err(format!("{error}")))?;
    if url.rdma == Rdma::On {
        let reason = format!("{url}: this version loads over TCP only; leave rdma=on out");
        return Err(PyValueError::new_err(reason));
    }
    let patience = Duration::try_from_secs_f64(patience)
        .map_err(|_| PyValueError::new_err("patience is a number of seconds"))?;
    let addresses = url.resolve().map_err(|error| PyConnectionError::new_err(error.to_string()))?;
    let groups = rustix::process::getgroups().unwrap_or_default();
    let options = ClientOptions {
        connections: url.connections,
        credential: Credential::Sys(AuthSys {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            groups: groups.iter().take(MAX_GROUPS).map(|group| group.as_raw()).collect(),
            ..AuthSys::default()
        }),
        patience,
        ..ClientOptions::default()
    };
    let client = wait(py, || Client::connect_all(&addresses, &options))?
        .map_err(|error| PyConnectionError::new_err(format!("{url}: {error}")))?;
    Ok((url, Arc::new(client)))
}

/// Names in a directory: (name, nfs_ftype4, bytes).
#[pyfunction]
pub(crate) fn list(py: Python<'_>, url: &str, patience: f64) -> PyResult<Vec<(String, u32, u64)>> {
    let (url, client) = connect(py, url, patience)?;
    let listed = wait(py, || async {
        let found = client.find(&url.path).await?;
        directory::list(&client, &found.fh).await
    })?;
    let entries = listed.map_err(|source| {
        raise(&LoadError::Client { what: url.to_string(), source })
    })?;
    Ok(entries.into_iter().map(|entry| (entry.name, entry.kind, entry.size)).collect())
}

/// An open model.
#[pyclass(frozen)]
pub(crate) struct Model {
    inner: Arc<zgate_loader::Model>,
    url: NfsUrl,
}

#[pymethods]
impl Model {
    #[new]
    fn new(py: Python<'_>, url: &str, patience: f64) -> PyResult<Self> {
        let (url, client) = connect(py, url, patience)?;
        let model = wait(py, || zgate_loader::Model::open(client, &url.path))?;
        Ok(Self { inner: Arc::new(model.map_err(|error| raise(&error))?), url })
    }

    /// The names of the tensors, in order.
    fn names(&self) -> Vec<String> {
        self.inner.names().cloned().collect()
    }

    /// (dtype, shape, bytes, file) of a tensor, if there is one.
    fn info(&self, name: &str) -> Option<(String, Vec<u64>, u64, String)> {
        let (shard, info) = self.inner.tensor(name)?;
        let file = self.inner.shards()[shard].name.clone();
        Some((info.dtype.clone(), info.shape.clone(), info.bytes(), file))
    }

    /// The free text of all files.
    fn metadata(&self) -> BTreeMap<String, String> {
        self.inner.shards().iter().flat_map(|shard| shard.metadata.clone()).collect()
    }

    /// (file, bytes) of each file.
    fn files(&self) -> Vec<(String, u64)> {
        self.inner.shards().iter().map(|shard| (shard.name.clone(), shard.size)).collect()
    }

    /// Starts loading.
    #[pyo3(signature = (names, part, inflight_bytes, depth, verify))]
    fn start(
        &self,
        py: Python<'_>,
        names: Option<Vec<String>>,
        part: Option<(usize, u64, u64)>,
        inflight_bytes: u64,
        depth: usize,
        verify: bool,
    ) -> PyResult<Load> {
        let part = part.map(|(dim, rank, ranks)| Part { dim, rank, ranks });
        let plan = Plan::new(&self.inner, &Wanted { names, part }).map_err(|e| raise(&e))?;
        let verify = if verify { self.sums(py)? } else { Verify::Off };
        let options = LoadOptions { inflight_bytes, depth, verify };
        let _entered = runtime()?.enter();
        let load = zgate_loader::Load::start(&self.inner, plan, &options);
        Ok(Load {
            total_bytes: load.total_bytes(),
            progress: load.progress(),
            inner: Mutex::new(Some(load)),
        })
    }
}

impl Model {
    /// The checksums beside the model, and those in its files.
    fn sums(&self, py: Python<'_>) -> PyResult<Verify> {
        let path = self.url.path.trim_end_matches('/');
        let dir = match path.rsplit_once('/') {
            Some((parent, name)) if name.contains('.') => parent,
            _ => path,
        };
        let client = self.inner.client();
        let raw = wait(py, || directory::read_small(client, dir, SUMS, MAX_SUMS_BYTES))?;
        match raw {
            Ok(raw) => parse_sums(&String::from_utf8_lossy(&raw))
                .map(Verify::Files)
                .map_err(PyValueError::new_err),
            Err(_) => Ok(Verify::Tensors),
        }
    }
}

/// A load under way: an iterator of (name, dtype, shape, Buffer).
#[pyclass(frozen)]
pub(crate) struct Load {
    #[pyo3(get)]
    total_bytes: u64,
    progress: Arc<Progress>,
    inner: Mutex<Option<zgate_loader::Load>>,
}

type Item = (String, String, Vec<u64>, Buffer);

#[pymethods]
impl Load {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Item>> {
        let runtime = runtime()?;
        let next = py.detach(|| {
            let mut load = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
            match load.as_mut() {
                Some(load) => runtime.block_on(load.next()),
                None => Ok(None),
            }
        });
        let tensor = next.map_err(|error| raise(&error))?;
        Ok(tensor.map(|t| (t.name, t.dtype, t.shape, Buffer::new(t.data))))
    }

    /// Bytes read so far.
    #[getter]
    fn done_bytes(&self) -> u64 {
        self.progress.done_bytes()
    }

    /// Stops it.
    fn close(&self) {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

/// A whole file, piece by piece, in order.
#[pyclass(frozen)]
pub(crate) struct Stream {
    #[pyo3(get)]
    total_bytes: u64,
    inner: Mutex<FileStream>,
}

#[pymethods]
impl Stream {
    #[new]
    fn new(py: Python<'_>, url: &str, patience: f64, depth: usize) -> PyResult<Self> {
        let (url, client) = connect(py, url, patience)?;
        let path = url.path.clone();
        let opened = wait(py, || async {
            let found = client.find(&path).await?;
            let (dir, name) = path.rsplit_once('/').unwrap_or(("", &path));
            let parent = client.find(dir).await?;
            let file = File::open(&client, &parent.fh, name, OpenMode::Read).await?;
            Ok((found.size, file))
        })?;
        let (size, file) = opened.map_err(|source| {
            raise(&LoadError::Client { what: url.to_string(), source })
        })?;
        let _entered = runtime()?.enter();
        let inner = Mutex::new(FileStream::start(client, &path, file, 0..size, depth));
        Ok(Self { total_bytes: size, inner })
    }

    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Buffer>> {
        let runtime = runtime()?;
        let next = py.detach(|| {
            let mut stream = self.inner.lock().map_err(|_| "a load failed before".to_owned())?;
            runtime.block_on(stream.next()).map_err(|error| error.to_string())
        });
        let piece = next.map_err(PyOSError::new_err)?;
        Ok(piece.map(Buffer::new))
    }
}
