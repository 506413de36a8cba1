//! The threads that move bytes, one set for the process.

use pyo3::exceptions::{PyConnectionError, PyFileNotFoundError, PyOSError, PyValueError};
use pyo3::prelude::*;
use std::future::Future;
use std::sync::OnceLock;
use tokio::runtime::Runtime;
use zgate_loader::ClientError;
use zgate_loader::model::LoadError;

static RUNTIME: OnceLock<Runtime> = OnceLock::new();

/// The runtime; started at the first use. A child made by fork has none of its
/// threads: load before forking, or use `spawn`.
pub(crate) fn runtime() -> PyResult<&'static Runtime> {
    if let Some(runtime) = RUNTIME.get() {
        return Ok(runtime);
    }
    let made = tokio::runtime::Builder::new_multi_thread()
        .thread_name("zgate")
        .enable_all()
        .build()
        .map_err(|error| PyOSError::new_err(error.to_string()))?;
    Ok(RUNTIME.get_or_init(|| made))
}

/// Waits without holding the interpreter.
pub(crate) fn wait<T: Send, F: Future<Output = T>>(
    py: Python<'_>,
    work: impl FnOnce() -> F + Send,
) -> PyResult<T> {
    let runtime = runtime()?;
    Ok(py.detach(|| runtime.block_on(work())))
}

/// The Python exception for an error.
pub(crate) fn raise(error: &LoadError) -> PyErr {
    let text = error.to_string();
    match error {
        LoadError::Client { source, .. } => match source {
            ClientError::Transport { .. } => PyConnectionError::new_err(text),
            _ if text.contains("NOENT") => PyFileNotFoundError::new_err(text),
            _ => PyOSError::new_err(text),
        },
        LoadError::Missing(_) => PyFileNotFoundError::new_err(text),
        LoadError::Format { .. } | LoadError::Checksum { .. } => PyValueError::new_err(text),
    }
}
