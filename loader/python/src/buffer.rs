//! Memory of one tensor, as Python's buffer protocol wants it.

use bytes::BytesMut;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use std::os::raw::{c_int, c_void};

/// Owns the bytes of a tensor. Arrays made from it keep it alive; nothing else
/// in the process writes to it.
#[pyclass(frozen)]
pub(crate) struct Buffer {
    start: *mut u8,
    len: usize,
    /// Keeps the memory; never touched again.
    _memory: BytesMut,
}

// SAFETY: the memory is owned by `_memory`, which never moves its bytes, and
// Rust does not touch it while Python has it. Access from several Python
// threads follows the rules of the buffer protocol: it is theirs to order.
unsafe impl Send for Buffer {}
// SAFETY: as above; no method of ours reads or writes the bytes.
unsafe impl Sync for Buffer {}

impl Buffer {
    pub(crate) fn new(mut memory: BytesMut) -> Self {
        Self { start: memory.as_mut_ptr(), len: memory.len(), _memory: memory }
    }
}

#[pymethods]
impl Buffer {
    fn __len__(&self) -> usize {
        self.len
    }

    // SAFETY: called by the interpreter only, with a view of its own.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("no view to fill"));
        }
        let (start, len) = (slf.get().start, slf.get().len);
        let len = ffi::Py_ssize_t::try_from(len)
            .map_err(|_| PyBufferError::new_err("too long for a buffer"))?;
        // SAFETY: `view` is the interpreter's and not null; the memory lives as
        // long as the object, to which PyBuffer_FillInfo takes a reference.
        let filled = unsafe {
            ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start.cast::<c_void>(), len, 0, flags)
        };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}
