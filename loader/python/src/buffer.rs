//! Memory of one tensor for Python's buffer protocol and DLPack: raw addresses.
//! All of the package's `unsafe` is here.

use crate::error::of_device;
use bytes::BytesMut;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use std::os::raw::{c_int, c_void};
use std::sync::Arc;
use zgate_loader::model::device::DeviceSlice;

/// Owner that keeps the memory allocated; not accessed any more.
enum Owner {
    Host { _memory: BytesMut },
    Cuda(DeviceSlice),
}

/// Bytes that only Python accesses any more.
struct Memory {
    start: *mut u8,
    len: usize,
    device: DlDevice,
    owner: Owner,
}

// SAFETY: the memory is owned by `owner`, which never moves its bytes, and
// Rust does not touch it while Python has it. Access from several Python
// threads follows the rules of the buffer protocol: it is theirs to order.
unsafe impl Send for Memory {}
// SAFETY: as above; no method of ours reads or writes the bytes.
unsafe impl Sync for Memory {}

/// Owns the bytes of a tensor. Arrays made from it keep it alive; nothing else
/// in the process writes to it.
#[pyclass(frozen)]
pub(crate) struct Buffer {
    memory: Arc<Memory>,
}

impl Buffer {
    pub(crate) fn new(mut owner: BytesMut) -> Self {
        let (start, len) = (owner.as_mut_ptr(), owner.len());
        let device = DlDevice { device_type: DL_CPU, device_id: 0 };
        Self {
            memory: Arc::new(Memory { start, len, device, owner: Owner::Host { _memory: owner } }),
        }
    }

    /// Wraps memory of a GPU; its address is valid on the GPU.
    pub(crate) fn on_cuda(slice: DeviceSlice) -> Self {
        let start = std::ptr::without_provenance_mut(slice.address() as usize);
        let device_id = i32::try_from(slice.device().number()).unwrap_or(i32::MAX);
        let device = DlDevice { device_type: DL_CUDA, device_id };
        let (len, owner) = (slice.len(), Owner::Cuda(slice));
        Self { memory: Arc::new(Memory { start, len, device, owner }) }
    }
}

#[pymethods]
impl Buffer {
    fn __len__(&self) -> usize {
        self.memory.len
    }

    /// Returns DLPack's (device_type, device_id).
    #[getter]
    fn device(&self) -> (i32, i32) {
        (self.memory.device.device_type, self.memory.device.device_id)
    }

    /// Returns the bytes in host memory: these, or a copy of a GPU's.
    fn to_host(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        let py = slf.py();
        match &slf.get().memory.owner {
            Owner::Host { .. } => Ok(slf),
            Owner::Cuda(slice) => {
                let copied = py.detach(|| slice.to_host());
                Bound::new(py, Self::new(copied.map_err(|error| of_device(py, &error))?))
            }
        }
    }

    /// Returns the address of the bytes.
    #[getter]
    fn address(&self) -> usize {
        self.memory.start.addr()
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
        if slf.get().memory.device.device_type != DL_CPU {
            return Err(PyBufferError::new_err("the bytes are in GPU memory: use DLPack"));
        }
        let (start, len) = (slf.get().memory.start, slf.get().memory.len);
        let len = ffi::Py_ssize_t::try_from(len)
            .map_err(|_| PyBufferError::new_err("too long for a buffer"))?;
        // SAFETY: `view` is the interpreter's and not null; the memory lives as
        // long as the object, to which PyBuffer_FillInfo takes a reference.
        let filled = unsafe {
            ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start.cast::<c_void>(), len, 0, flags)
        };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }

    /// Creates a DLPack capsule of `shape`, in row-major order, with elements
    /// of kind `code` (DLDataTypeCode) and `bits` bits. It shares the ownership
    /// of the memory.
    fn dlpack<'py>(
        &self,
        py: Python<'py>,
        code: u8,
        bits: u8,
        shape: Vec<i64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let wanted = shape.iter().try_fold(u64::from(bits), |product, &dim| {
            u64::try_from(dim).ok().and_then(|dim| product.checked_mul(dim))
        });
        if wanted != Some(self.memory.len as u64 * 8) {
            return Err(PyBufferError::new_err("the shape does not fit the memory"));
        }
        capsule(py, Exported::new(Arc::clone(&self.memory), code, bits, shape))
    }
}

/// Device of a tensor (DLPack 0.8, dlpack.h).
#[repr(C)]
#[derive(Clone, Copy)]
struct DlDevice {
    device_type: i32,
    device_id: i32,
}

/// Element type of a tensor.
#[repr(C)]
struct DlDataType {
    code: u8,
    bits: u8,
    lanes: u16,
}

/// A strided tensor.
#[repr(C)]
struct DlTensor {
    data: *mut c_void,
    device: DlDevice,
    ndim: i32,
    dtype: DlDataType,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

/// Content of a capsule.
#[repr(C)]
struct DlManagedTensor {
    dl_tensor: DlTensor,
    manager_ctx: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut DlManagedTensor)>,
}

/// kDLCPU.
const DL_CPU: i32 = 1;
/// kDLCUDA.
const DL_CUDA: i32 = 2;

/// A tensor owned by a consumer, with everything it needs to stay valid.
#[repr(C)]
struct Exported {
    /// First, so that its address is that of the whole structure.
    managed: DlManagedTensor,
    shape: Vec<i64>,
    strides: Vec<i64>,
    _memory: Arc<Memory>,
}

impl Exported {
    fn new(memory: Arc<Memory>, code: u8, bits: u8, shape: Vec<i64>) -> Box<Self> {
        let mut strides = vec![1; shape.len()];
        for dim in (1..shape.len()).rev() {
            strides[dim - 1] = strides[dim] * shape[dim].max(1);
        }
        let mut exported = Box::new(Self {
            managed: DlManagedTensor {
                dl_tensor: DlTensor {
                    data: memory.start.cast::<c_void>(),
                    device: memory.device,
                    ndim: shape.len() as i32,
                    dtype: DlDataType { code, bits, lanes: 1 },
                    shape: std::ptr::null_mut(),
                    strides: std::ptr::null_mut(),
                    byte_offset: 0,
                },
                manager_ctx: std::ptr::null_mut(),
                deleter: Some(release),
            },
            shape,
            strides,
            _memory: memory,
        });
        exported.managed.dl_tensor.shape = exported.shape.as_mut_ptr();
        exported.managed.dl_tensor.strides = exported.strides.as_mut_ptr();
        exported
    }
}

/// Called once by the last owner of the tensor, on any thread, with or without
/// the interpreter's lock: no Python object is dropped here.
// SAFETY: DLPack calls it with the pointer of the capsule, which is that of an
// `Exported` out of `Box::into_raw`.
unsafe extern "C" fn release(managed: *mut DlManagedTensor) {
    if !managed.is_null() {
        // SAFETY: see above; `managed` is its first field.
        drop(unsafe { Box::from_raw(managed.cast::<Exported>()) });
    }
}

/// Name of a capsule that has not been consumed; a consumer renames it.
const UNTAKEN: &std::ffi::CStr = c"dltensor";

/// Called when the capsule is dropped: drops the tensor unless it was consumed.
// SAFETY: called by the interpreter only, with a capsule made by `capsule`.
unsafe extern "C" fn forget(capsule: *mut ffi::PyObject) {
    // SAFETY: the capsule is alive, and its pointer is that of an `Exported` as
    // long as it has its first name.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, UNTAKEN.as_ptr()) == 1 {
            release(ffi::PyCapsule_GetPointer(capsule, UNTAKEN.as_ptr()).cast());
        }
    }
}

fn capsule(py: Python<'_>, exported: Box<Exported>) -> PyResult<Bound<'_, PyAny>> {
    let raw = Box::into_raw(exported).cast::<c_void>();
    // SAFETY: the pointer is not null, the name is static, and `forget` frees
    // what no consumer has taken.
    let made = unsafe { ffi::PyCapsule_New(raw, UNTAKEN.as_ptr(), Some(forget)) };
    // SAFETY: a new reference, or null and an exception.
    let made = unsafe { Bound::from_owned_ptr_or_err(py, made) };
    if made.is_err() {
        // SAFETY: no capsule owns it.
        unsafe { release(raw.cast()) };
    }
    made
}
