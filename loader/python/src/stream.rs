//! Files as bytes, for Python.

use crate::buffer::Buffer;
use crate::connect::connect;
use crate::error::{of_client, raise};
use crate::runtime::{patiently, runtime, wait};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use zgate_loader::model::FileStream;
use zgate_loader::{Client, File, NfsUrl, OpenMode};

/// Time limit for closing a file in the background.
const CLOSE_PATIENCE: Duration = Duration::from_secs(5);

/// An open file.
#[pyclass(frozen)]
pub(crate) struct RemoteFile {
    url: NfsUrl,
    client: Arc<Client>,
    file: File,
    /// Length when it was opened, in bytes.
    #[pyo3(get)]
    size: u64,
    process: u32,
}

impl Drop for RemoteFile {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            return;
        }
        let (client, file) = (Arc::clone(&self.client), self.file.clone());
        if let Ok(runtime) = runtime() {
            runtime.spawn(async move {
                // If the server cannot be reached, the open expires with the
                // lease.
                let _ = tokio::time::timeout(CLOSE_PATIENCE, file.close(&client)).await;
            });
        }
    }
}

impl RemoteFile {
    /// Fails in a child of the process that opened it.
    fn of_this_process(&self) -> PyResult<()> {
        if self.process == std::process::id() {
            return Ok(());
        }
        Err(PyValueError::new_err("opened before the process forked"))
    }
}

#[pymethods]
impl RemoteFile {
    #[new]
    #[pyo3(signature = (url, patience, start))]
    fn new(py: Python<'_>, url: &str, patience: f64, start: Option<f64>) -> PyResult<Self> {
        let (url, client) = connect(py, url, patience, start)?;
        let path = url.path.clone();
        let opened = wait(py, || async {
            // What is missing is named by the search for it.
            client.find(&path).await?;
            let (dir, name) = path.rsplit_once('/').unwrap_or(("", &path));
            let parent = client.find(dir).await?;
            File::open(&client, &parent.fh, name, OpenMode::Read).await
        })?;
        let file = opened.map_err(|source| of_client(&url, source))?;
        // Not that of the search: another file may have had the name then.
        let size = file.size();
        Ok(Self { url, client, file, size, process: std::process::id() })
    }

    /// Returns the present transport of the calls, and the reason.
    fn transport(&self, py: Python<'_>) -> PyResult<String> {
        wait(py, || self.client.transport())
    }

    /// Streams bytes `begin..end`.
    fn stream(slf: Py<Self>, begin: u64, end: u64, depth: usize) -> PyResult<Stream> {
        let file = slf.get();
        file.of_this_process()?;
        if begin > end || end > file.size {
            let reason = format!("{}: bytes {begin} to {end} of {}", file.url, file.size);
            return Err(PyValueError::new_err(reason));
        }
        let entered = runtime()?.enter();
        let stream = FileStream::start(
            Arc::clone(&file.client),
            &file.url.path,
            file.file.clone(),
            begin..end,
            depth,
        );
        drop(entered);
        Ok(Stream { total_bytes: end - begin, inner: Mutex::new(Some(stream)), _file: slf })
    }
}

/// A range of a file, piece by piece, in order.
#[pyclass(frozen)]
pub(crate) struct Stream {
    #[pyo3(get)]
    total_bytes: u64,
    inner: Mutex<Option<FileStream>>,
    /// Keeps the file open while it is read.
    _file: Py<RemoteFile>,
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self._file.get().of_this_process().is_err() {
            // It belongs to the parent process.
            let inner = self.inner.get_mut().unwrap_or_else(PoisonError::into_inner);
            std::mem::forget(inner.take());
        }
    }
}

#[pymethods]
impl Stream {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Buffer>> {
        self._file.get().of_this_process()?;
        let runtime = runtime()?;
        let next = py.detach(|| {
            let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
            // Put back only while pieces arrive in order: after an error, or an
            // interrupted wait, one would be missing.
            let Some(mut stream) = inner.take() else { return Ok(Ok(None)) };
            let next = patiently(runtime, stream.next())?;
            if matches!(next, Ok(Some(_))) {
                *inner = Some(stream);
            }
            PyResult::Ok(next)
        })?;
        let piece = next.map_err(|error| raise(&self._file.get().url, &error))?;
        Ok(piece.map(Buffer::new))
    }

    /// Stops the stream.
    fn close(&self, py: Python<'_>) {
        if self._file.get().of_this_process().is_err() {
            return;
        }
        py.detach(|| self.inner.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}
