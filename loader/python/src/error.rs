//! Conversion of errors to Python's exceptions.

use pyo3::exceptions::{
    PyConnectionError, PyFileNotFoundError, PyIsADirectoryError, PyKeyError, PyMemoryError,
    PyNotADirectoryError, PyOSError, PyPermissionError, PyRuntimeError, PyValueError,
};
use pyo3::prelude::*;
use zgate_loader::model::LoadError;
use zgate_loader::{Advice, ClientError, NfsUrl};
use zgate_rpc::message::ReplyError;

type Named = (&'static str, fn(String) -> PyErr);

/// Statuses of a server that have their own exception. Others are `OSError`.
const NAMED: [Named; 6] = [
    ("NFS4ERR_NOENT", |text| PyFileNotFoundError::new_err(text)),
    ("NFS4ERR_ACCESS", |text| PyPermissionError::new_err(text)),
    ("NFS4ERR_PERM", |text| PyPermissionError::new_err(text)),
    ("NFS4ERR_WRONGSEC", |text| PyPermissionError::new_err(text)),
    ("NFS4ERR_NOTDIR", |text| PyNotADirectoryError::new_err(text)),
    ("NFS4ERR_ISDIR", |text| PyIsADirectoryError::new_err(text)),
];

/// Returns the exception for an error of the client for `url`.
pub(crate) fn of_client(url: &NfsUrl, source: ClientError) -> PyErr {
    raise(url, &LoadError::Client { what: url.path.clone(), source })
}

/// Returns the exception for an error of what was loaded from `url`.
pub(crate) fn raise(url: &NfsUrl, error: &LoadError) -> PyErr {
    let text = error.explain(url, Advice::Python);
    match error {
        LoadError::Client {
            source:
                ClientError::Transport { .. }
                | ClientError::Unreachable { .. }
                | ClientError::Silent { .. },
            ..
        } => PyConnectionError::new_err(text),
        LoadError::Client {
            source: ClientError::RpcRefused(ReplyError::AuthRefused(_)), ..
        } => PyPermissionError::new_err(text),
        LoadError::Client { source: ClientError::OtherServer { .. }, .. } => {
            PyValueError::new_err(text)
        }
        LoadError::Client { source, .. } => {
            let status = source.status().map(|status| status.name().to_string());
            match NAMED.iter().find(|(name, _)| status.as_deref() == Some(*name)) {
                Some((_, named)) => named(text),
                None => PyOSError::new_err(text),
            }
        }
        LoadError::Device(_) => Python::attach(|py| of_device(py, &text)),
        LoadError::Missing(_) => PyFileNotFoundError::new_err(text),
        LoadError::Ended(_) => PyRuntimeError::new_err(text),
        LoadError::SharedMemory(_) => PyOSError::new_err(text),
        LoadError::TooLarge { .. } => PyMemoryError::new_err(text),
        LoadError::Format { .. }
        | LoadError::Unverifiable(_)
        | LoadError::Checksum { .. }
        | LoadError::Changed { .. } => PyValueError::new_err(text),
    }
}

/// Returns the exception for an error of a GPU or its driver.
pub(crate) fn of_device(py: Python<'_>, error: &dyn std::fmt::Display) -> PyErr {
    let class = py.import("zgate._device").and_then(|module| module.getattr("DeviceError"));
    match class.and_then(|class| class.call1((error.to_string(),))) {
        Ok(error) => PyErr::from_value(error),
        Err(error) => error,
    }
}

/// Returns the exception for a tensor that the model does not have.
pub(crate) fn no_tensor(name: &str) -> PyErr {
    PyKeyError::new_err(name.to_owned())
}
