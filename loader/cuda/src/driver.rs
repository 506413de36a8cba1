//! The library, its functions, and its errors.

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use std::error::Error as _;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem::ManuallyDrop;
use std::path::Path;
use std::sync::Arc;
use thiserror::Error;

/// File name of the driver's library.
const LIBRARY: &str = "libcuda.so.1";

/// Reason for which CUDA is unavailable.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Unavailable {
    /// The library is missing; with the dynamic loader's message.
    #[error("no CUDA driver: {0}")]
    Missing(String),
    /// The library lacks a required function.
    #[error("the CUDA driver lacks {0}: it is too old")]
    Function(&'static str),
    /// The library was loaded, but no device can be used.
    #[error("{0}")]
    Refused(#[from] CudaError),
    /// A device that does not exist.
    #[error("this host has {count} CUDA devices, counted from 0: there is no {number}")]
    NoDevice {
        /// Requested number.
        number: u32,
        /// Number of devices.
        count: u32,
    },
}

/// Error of a driver call.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{call}: {name} ({code})")]
pub struct CudaError {
    /// Name of the function.
    pub call: &'static str,
    /// CUresult.
    pub code: u32,
    /// Name of the error.
    pub name: String,
}

impl From<CudaError> for std::io::Error {
    fn from(error: CudaError) -> Self {
        Self::other(error)
    }
}

pub(crate) type Handle = *mut c_void;
pub(crate) type DevicePointer = u64;

/// CUDA_MEMCPY2D of cuda.h.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Copy2d {
    pub(crate) src_x: usize,
    pub(crate) src_y: usize,
    pub(crate) src_type: c_uint,
    pub(crate) src_host: *const c_void,
    pub(crate) src_device: DevicePointer,
    pub(crate) src_array: Handle,
    pub(crate) src_pitch: usize,
    pub(crate) dst_x: usize,
    pub(crate) dst_y: usize,
    pub(crate) dst_type: c_uint,
    pub(crate) dst_host: *mut c_void,
    pub(crate) dst_device: DevicePointer,
    pub(crate) dst_array: Handle,
    pub(crate) dst_pitch: usize,
    pub(crate) width: usize,
    pub(crate) height: usize,
}

/// Declares the driver's functions. Those behind `optional` were added by later
/// drivers.
macro_rules! functions {
    (
        $(fn $name:ident = $symbol:literal ($($arg:ty),*);)*
        optional $(fn $oname:ident = $osymbol:literal ($($oarg:ty),*);)*
    ) => {
        /// The driver's functions. Never unloaded.
        #[derive(Clone, Copy)]
        pub struct Driver {
            $(pub(crate) $name: unsafe extern "C" fn($($arg),*) -> c_uint,)*
            $(pub(crate) $oname: Option<unsafe extern "C" fn($($oarg),*) -> c_uint>,)*
        }

        impl Driver {
            /// # Safety
            /// The library is a CUDA driver.
            unsafe fn bind(library: &Library) -> Result<Self, Unavailable> {
                Ok(Self {
                    // SAFETY: the driver API gives the functions of these
                    // names these signatures, for good.
                    $($name: *unsafe { library.get($symbol) }
                        .map_err(|_| Unavailable::Function($symbol))?,)*
                    // SAFETY: as above.
                    $($oname: unsafe { library.get($osymbol) }.ok().map(|found| *found),)*
                })
            }
        }
    };
}

functions! {
    fn init = "cuInit"(c_uint);
    fn error_name = "cuGetErrorName"(c_uint, *mut *const c_char);
    fn device_count = "cuDeviceGetCount"(*mut c_int);
    fn device_get = "cuDeviceGet"(*mut c_int, c_int);
    fn device_name = "cuDeviceGetName"(*mut c_char, c_int, c_int);
    fn device_attribute = "cuDeviceGetAttribute"(*mut c_int, c_int, c_int);
    fn primary_retain = "cuDevicePrimaryCtxRetain"(*mut Handle, c_int);
    fn primary_release = "cuDevicePrimaryCtxRelease_v2"(c_int);
    fn push = "cuCtxPushCurrent_v2"(Handle);
    fn pop = "cuCtxPopCurrent_v2"(*mut Handle);
    fn alloc = "cuMemAlloc_v2"(*mut DevicePointer, usize);
    fn free = "cuMemFree_v2"(DevicePointer);
    fn host_register = "cuMemHostRegister_v2"(*mut c_void, usize, c_uint);
    fn host_unregister = "cuMemHostUnregister"(*mut c_void);
    fn stream_create = "cuStreamCreate"(*mut Handle, c_uint);
    fn stream_destroy = "cuStreamDestroy_v2"(Handle);
    fn stream_synchronize = "cuStreamSynchronize"(Handle);
    fn copy_in = "cuMemcpyHtoDAsync_v2"(DevicePointer, *const c_void, usize, Handle);
    fn copy_out = "cuMemcpyDtoHAsync_v2"(*mut c_void, DevicePointer, usize, Handle);
    fn copy_2d = "cuMemcpy2DAsync_v2"(*const Copy2d, Handle);
    fn pointer_set = "cuPointerSetAttribute"(*const c_void, c_int, DevicePointer);
    optional
    fn range_handle = "cuMemGetHandleForAddressRange"(*mut c_void, DevicePointer, usize, c_uint, u64);
    fn flush_writes = "cuFlushGPUDirectRDMAWrites"(c_uint, c_uint);
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Driver")
    }
}

impl Driver {
    /// Loads the driver of this machine.
    ///
    /// # Errors
    /// The reason for which there is none.
    pub fn load() -> Result<Arc<Self>, Unavailable> {
        Self::open(Path::new(LIBRARY))
    }

    /// Loads a driver from a given file, such as a stand-in.
    ///
    /// # Errors
    /// The reason for which it cannot be used.
    pub fn open(library: &Path) -> Result<Arc<Self>, Unavailable> {
        // SAFETY: loading runs the library's initialisers, as linking against
        // it would; it is never unloaded.
        let opened = unsafe { Library::open(Some(library), RTLD_NOW | RTLD_LOCAL) };
        let opened = opened.map(ManuallyDrop::new).map_err(|error| {
            let reason = error.source().map(ToString::to_string);
            let reason = reason.unwrap_or_else(|| format!("{}: {error}", library.display()));
            Unavailable::Missing(reason)
        })?;
        // SAFETY: whoever names a library as the driver vouches for it.
        let driver = Arc::new(unsafe { Self::bind(&opened) }?);
        // SAFETY: takes a number; may be called any number of times.
        driver.check("cuInit", unsafe { (driver.init)(0) })?;
        Ok(driver)
    }

    /// Returns the number of devices.
    ///
    /// # Errors
    /// The driver's.
    pub fn devices(&self) -> Result<u32, CudaError> {
        let mut count = 0;
        // SAFETY: writes the count.
        self.check("cuDeviceGetCount", unsafe { (self.device_count)(&raw mut count) })?;
        Ok(u32::try_from(count).unwrap_or(0))
    }

    pub(crate) fn check(&self, call: &'static str, code: c_uint) -> Result<(), CudaError> {
        if code == 0 {
            return Ok(());
        }
        let mut name: *const c_char = std::ptr::null();
        // SAFETY: writes the address of a static string, or null.
        let known = unsafe { (self.error_name)(code, &raw mut name) };
        let name = if known != 0 || name.is_null() {
            "an unknown error".to_owned()
        } else {
            // SAFETY: not null: a static C string of the library.
            unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
        };
        Err(CudaError { call, code, name })
    }
}

#[cfg(all(test, target_pointer_width = "64"))]
mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};

    /// As a C compiler sees the declaration of cuda.h on x86-64.
    #[test]
    fn the_layout_of_a_copy() {
        assert_eq!(size_of::<Copy2d>(), 128);
        assert_eq!(offset_of!(Copy2d, src_type), 16);
        assert_eq!(offset_of!(Copy2d, src_host), 24);
        assert_eq!(offset_of!(Copy2d, src_device), 32);
        assert_eq!(offset_of!(Copy2d, src_pitch), 48);
        assert_eq!(offset_of!(Copy2d, dst_type), 72);
        assert_eq!(offset_of!(Copy2d, dst_device), 88);
        assert_eq!(offset_of!(Copy2d, dst_pitch), 104);
        assert_eq!(offset_of!(Copy2d, width), 112);
        assert_eq!(offset_of!(Copy2d, height), 120);
    }

    #[test]
    fn what_is_missing_is_named() {
        let error = Driver::open(Path::new("/nowhere/libcuda.so.1")).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("no CUDA driver") && text.contains("/nowhere/"), "{text}");
        // A library that is not the driver.
        let error = Driver::open(Path::new("libc.so.6")).unwrap_err();
        assert_eq!(error, Unavailable::Function("cuInit"));
    }
}
