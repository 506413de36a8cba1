//! Threads that transfer data, one set for each process, and waiting for them
//! without holding the interpreter's lock.

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use std::future::Future;
use std::pin::pin;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::Runtime;

/// Longest delay until Ctrl-C takes effect.
const SIGNAL_PERIOD: Duration = Duration::from_millis(100);

static RUNTIME: Mutex<Option<(u32, &'static Runtime)>> = Mutex::new(None);

/// Returns the runtime of this process, started on first use. A child created
/// by fork gets its own, because it has none of its parent's threads.
pub(crate) fn runtime() -> PyResult<&'static Runtime> {
    let mut running = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    let process = std::process::id();
    if let Some((of, runtime)) = *running
        && of == process
    {
        return Ok(runtime);
    }
    let made = tokio::runtime::Builder::new_multi_thread()
        .thread_name("zgate")
        .enable_all()
        .build()
        .map_err(|error| PyOSError::new_err(error.to_string()))?;
    // It runs as long as the process does.
    let made: &'static Runtime = Box::leak(Box::new(made));
    *running = Some((process, made));
    Ok(made)
}

/// Returns whether this process has a runtime.
pub(crate) fn is_started() -> bool {
    let running = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    running.is_some_and(|(of, _)| of == std::process::id())
}

/// Waits without holding the interpreter's lock; Ctrl-C ends the wait.
pub(crate) fn wait<T: Send, F: Future<Output = T>>(
    py: Python<'_>,
    work: impl FnOnce() -> F + Send,
) -> PyResult<T> {
    let runtime = runtime()?;
    py.detach(|| patiently(runtime, work()))
}

/// Waits on a thread that does not hold the interpreter's lock.
pub(crate) fn patiently<T>(runtime: &Runtime, work: impl Future<Output = T>) -> PyResult<T> {
    let mut work = pin!(work);
    loop {
        let step = async { tokio::time::timeout(SIGNAL_PERIOD, work.as_mut()).await };
        if let Ok(done) = runtime.block_on(step) {
            return Ok(done);
        }
        Python::attach(|py| py.check_signals())?;
    }
}
