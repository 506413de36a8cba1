//! GPUs of this process.

use crate::error::of_device;
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use zgate_loader::cuda::{Device, Driver, Unavailable};

/// Devices in use, which stay open while the process runs.
#[derive(Default)]
struct Cuda {
    /// Library in place of this machine's driver, in tests.
    library: Option<PathBuf>,
    driver: Option<Arc<Driver>>,
    devices: Vec<Arc<Device>>,
    process: u32,
}

static CUDA: Mutex<Option<Cuda>> = Mutex::new(None);

/// Uses this library as the CUDA driver from now on. `zgate` itself does not
/// export this function.
#[pyfunction]
pub(crate) fn load_cuda(library: PathBuf) {
    let process = std::process::id();
    let made = Cuda { library: Some(library), process, ..Cuda::default() };
    *CUDA.lock().unwrap_or_else(PoisonError::into_inner) = Some(made);
}

/// Returns the reason for which a CUDA device cannot be used; none if it can.
#[pyfunction]
pub(crate) fn why_no_cuda(py: Python<'_>, number: u32) -> Option<String> {
    py.detach(|| open(number)).err().map(|error| error.to_string())
}

/// Returns the device.
pub(crate) fn device(py: Python<'_>, number: u32) -> PyResult<Arc<Device>> {
    py.detach(|| open(number)).map_err(|error| of_device(py, &error))
}

fn open(number: u32) -> Result<Arc<Device>, Unavailable> {
    let mut cuda = CUDA.lock().unwrap_or_else(PoisonError::into_inner);
    let process = std::process::id();
    let cuda = cuda.get_or_insert_with(|| Cuda { process, ..Cuda::default() });
    if cuda.process != process {
        let reason = "CUDA was used before this process forked: start the process with spawn";
        return Err(Unavailable::Missing(reason.to_owned()));
    }
    if let Some(device) = cuda.devices.iter().find(|device| device.number() == number) {
        return Ok(Arc::clone(device));
    }
    let driver = match (&cuda.driver, &cuda.library) {
        (Some(driver), _) => Arc::clone(driver),
        (None, Some(library)) => Driver::open(library)?,
        (None, None) => Driver::load()?,
    };
    let device = Device::open(&driver, number)?;
    cuda.driver = Some(driver);
    cuda.devices.push(Arc::clone(&device));
    Ok(device)
}
