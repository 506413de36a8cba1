//! Models and loads for Python.

use crate::buffer::Buffer;
use crate::connect::connect;
use crate::cuda::device;
use crate::error::{no_tensor, of_client, raise};
use crate::runtime::{patiently, runtime, wait};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use zgate_loader::Gpu;
use zgate_loader::model::checksum::Verify;
use zgate_loader::model::{LoadError, Part, known_sums, options::Progress};
use zgate_loader::{LoadOptions, NfsUrl, Plan, Wanted, directory};

/// Time limit for closing files in the background.
const CLOSE_PATIENCE: Duration = Duration::from_secs(5);

/// Returns the entries of a directory: (name, nfs_ftype4, bytes).
#[pyfunction]
#[pyo3(signature = (url, patience, start))]
pub(crate) fn entries(
    py: Python<'_>,
    url: &str,
    patience: f64,
    start: Option<f64>,
) -> PyResult<Vec<(String, u32, u64)>> {
    let (url, client) = connect(py, url, patience, start)?;
    let listed = wait(py, || async {
        let found = client.find(&url.path).await?;
        directory::list(&client, &found.fh).await
    })?;
    let entries = listed.map_err(|source| of_client(&url, source))?;
    Ok(entries.into_iter().map(|entry| (entry.name, entry.kind, entry.size)).collect())
}

/// Files that are closed when the last load from them has ended.
struct Opened {
    model: Option<zgate_loader::Model>,
    /// Process that opened them: connections and threads do not survive a fork.
    process: u32,
}

impl Drop for Opened {
    fn drop(&mut self) {
        let Some(model) = self.model.take() else { return };
        if self.process != std::process::id() {
            // They belong to the parent process.
            std::mem::forget(model);
            return;
        }
        if let Ok(runtime) = runtime() {
            runtime.spawn(async move {
                // If the server cannot be reached, they expire with the lease.
                let _ = tokio::time::timeout(CLOSE_PATIENCE, model.close()).await;
            });
        }
    }
}

impl Opened {
    fn model(&self) -> PyResult<&zgate_loader::Model> {
        of_this_process(self.process)?;
        self.model.as_ref().ok_or_else(closed)
    }
}

/// Fails in a child of the process that opened a model.
fn of_this_process(process: u32) -> PyResult<()> {
    if process == std::process::id() {
        return Ok(());
    }
    let reason = "this model was opened before the process forked; open it in the child";
    Err(PyRuntimeError::new_err(reason))
}

fn closed() -> PyErr {
    PyValueError::new_err("this model is closed")
}

/// Properties of a tensor: dtype, shape, bytes, file.
type Info = (String, Vec<u64>, u64, String);

/// An open model.
#[pyclass(frozen)]
pub(crate) struct Model {
    opened: Mutex<Option<Arc<Opened>>>,
    url: NfsUrl,
}

#[pymethods]
impl Model {
    #[new]
    #[pyo3(signature = (url, patience, start))]
    fn new(py: Python<'_>, url: &str, patience: f64, start: Option<f64>) -> PyResult<Self> {
        let (url, client) = connect(py, url, patience, start)?;
        let model = wait(py, || zgate_loader::Model::open(client, &url.path))?;
        let model = Some(model.map_err(|error| raise(&url, &error))?);
        let opened = Arc::new(Opened { model, process: std::process::id() });
        Ok(Self { opened: Mutex::new(Some(opened)), url })
    }

    /// Closes its files as soon as no load reads from them.
    fn close(&self) {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Returns the names of the tensors, sorted.
    fn names(&self) -> PyResult<Vec<String>> {
        Ok(self.opened()?.model()?.names().cloned().collect())
    }

    /// Returns the properties of a tensor, if it exists.
    fn info(&self, name: &str) -> PyResult<Option<Info>> {
        let opened = self.opened()?;
        let model = opened.model()?;
        let Some((shard, info)) = model.tensor(name) else { return Ok(None) };
        let file = model.shards()[shard].name.clone();
        Ok(Some((info.dtype.clone(), info.shape.clone(), info.bytes(), file)))
    }

    /// Returns the names of the tensors, in the order of their files and
    /// offsets.
    fn offset_names(&self) -> PyResult<Vec<String>> {
        let opened = self.opened()?;
        let model = opened.model()?;
        let mut names: Vec<_> = model
            .names()
            .filter_map(|name| {
                let (shard, info) = model.tensor(name)?;
                Some((shard, info.data_offsets, name.clone()))
            })
            .collect();
        names.sort();
        Ok(names.into_iter().map(|(_, _, name)| name).collect())
    }

    /// Returns the metadata of all files.
    fn metadata(&self) -> PyResult<BTreeMap<String, String>> {
        let opened = self.opened()?;
        let shards = opened.model()?.shards();
        Ok(shards.iter().flat_map(|shard| shard.metadata.clone()).collect())
    }

    /// Returns (file, bytes) of each file.
    fn files(&self) -> PyResult<Vec<(String, u64)>> {
        let opened = self.opened()?;
        let shards = opened.model()?.shards();
        Ok(shards.iter().map(|shard| (shard.name.clone(), shard.size)).collect())
    }

    /// Returns the present transport of the calls, and the reason.
    fn transport(&self, py: Python<'_>) -> PyResult<String> {
        let opened = self.opened()?;
        let client = opened.model()?.client();
        wait(py, || client.transport())
    }

    /// Returns the bytes received so far: written by an RDMA device, received
    /// from a socket, copied; of all models that share the client.
    fn placed(&self) -> PyResult<(u64, u64, u64)> {
        let placed = self.opened()?.model()?.client().counters().read();
        Ok((placed.device_bytes, placed.socket_bytes, placed.copied_bytes))
    }

    /// Starts loading.
    #[pyo3(signature = (names, part, inflight_bytes, depth, verify, cuda))]
    #[allow(clippy::too_many_arguments, reason = "the one caller names them")]
    fn start(
        &self,
        py: Python<'_>,
        names: Option<Vec<String>>,
        part: Option<(usize, u64, u64)>,
        inflight_bytes: u64,
        depth: usize,
        verify: bool,
        cuda: Option<u32>,
    ) -> PyResult<Load> {
        let opened = self.opened()?;
        let model = opened.model()?;
        if let Some(missing) = names.iter().flatten().find(|name| model.tensor(name).is_none()) {
            return Err(no_tensor(missing));
        }
        let part = part.map(|(dim, rank, ranks)| Part { dim, rank, ranks });
        let plan =
            Plan::new(model, &Wanted { names, part }).map_err(|error| raise(&self.url, &error))?;
        let verify = if verify { self.sums(py, model, &plan)? } else { Verify::Off };
        let options = LoadOptions { inflight_bytes, depth, verify, ..LoadOptions::default() };
        let (device, total_bytes) =
            (cuda.map(|number| device(py, number)).transpose()?, plan.bytes());
        let entered = runtime()?.enter();
        let load = match device {
            None => Running::Host(zgate_loader::Load::start(model, plan, &options)),
            Some(device) => {
                Running::Cuda(zgate_loader::Load::to_device(model, plan, &options, &device))
            }
        };
        drop(entered);
        let (progress, url, process) = (load.progress(), self.url.clone(), opened.process);
        Ok(Load { total_bytes, progress, url, process, inner: Mutex::new(Some((load, opened))) })
    }
}

impl Model {
    fn opened(&self) -> PyResult<Arc<Opened>> {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        opened.clone().ok_or_else(closed)
    }

    /// Returns the checksums to compare what the plan reads with.
    fn sums(&self, py: Python<'_>, model: &zgate_loader::Model, plan: &Plan) -> PyResult<Verify> {
        let found = wait(py, || known_sums::find(model, plan))?;
        found.map(|(verify, _)| verify).map_err(|error| raise(&self.url, &error))
    }
}

/// Destination of a load.
enum Running {
    Host(zgate_loader::Load),
    Cuda(zgate_loader::Load<Gpu>),
}

impl Running {
    fn progress(&self) -> Arc<Progress> {
        match self {
            Self::Host(load) => load.progress(),
            Self::Cuda(load) => load.progress(),
        }
    }

    async fn next(&mut self) -> Result<Option<Item>, LoadError> {
        Ok(match self {
            Self::Host(load) => {
                load.next().await?.map(|t| (t.name, t.dtype, t.shape, Buffer::new(t.data)))
            }
            Self::Cuda(load) => {
                load.next().await?.map(|t| (t.name, t.dtype, t.shape, Buffer::on_cuda(t.data)))
            }
        })
    }
}

/// A running load: an iterator of (name, dtype, shape, Buffer).
#[pyclass(frozen)]
pub(crate) struct Load {
    #[pyo3(get)]
    total_bytes: u64,
    progress: Arc<Progress>,
    url: NfsUrl,
    /// Process that started it: its threads do not survive a fork, and one of them may
    /// hold a lock at that moment.
    process: u32,
    /// Keeps the model's files open while they are read.
    inner: Mutex<Option<(Running, Arc<Opened>)>>,
}

impl Drop for Load {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            // It belongs to the parent process.
            let inner = self.inner.get_mut().unwrap_or_else(PoisonError::into_inner);
            std::mem::forget(inner.take());
        }
    }
}

type Item = (String, String, Vec<u64>, Buffer);

#[pymethods]
impl Load {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Item>> {
        of_this_process(self.process)?;
        let runtime = runtime()?;
        let next = py.detach(|| {
            let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
            let Some((load, _)) = inner.as_mut() else { return Ok(Ok(None)) };
            let next = patiently(runtime, load.next())?;
            if !matches!(next, Ok(Some(_))) {
                // The end, or an error, after which there is nothing more.
                inner.take();
            }
            PyResult::Ok(next)
        })?;
        next.map_err(|error| raise(&self.url, &error))
    }

    /// Returns the bytes placed in a GPU: written by an RDMA device, copied
    /// from host memory; and the reason. Zeros for a load with another
    /// destination, or one that has ended.
    fn placement(&self, py: Python<'_>) -> (u64, u64, String) {
        // Another thread may wait for a tensor, and for the interpreter's lock then.
        py.detach(|| match &*self.inner.lock().unwrap_or_else(PoisonError::into_inner) {
            Some((Running::Cuda(load), _)) => {
                let placed = load.placement();
                (placed.direct_bytes, placed.staged_bytes, placed.reason)
            }
            _ => Default::default(),
        })
    }

    /// Returns the bytes read so far.
    #[getter]
    fn done_bytes(&self) -> u64 {
        self.progress.done_bytes()
    }

    /// Stops the stream.
    fn close(&self, py: Python<'_>) {
        if self.process != std::process::id() {
            return;
        }
        py.detach(|| self.inner.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}
