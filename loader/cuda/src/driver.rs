//! The library, its functions, and its errors.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;
use thiserror::Error;

/// Where the driver's library is.
const LIBRARY: &str = "libcuda.so.1";

/// Why there is no CUDA here.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Unavailable {
    /// No library; the loader's reason.
    #[error("no CUDA driver: {0}")]
    Missing(String),
    /// A library without a function that is needed.
    #[error("the CUDA driver lacks {0}: it is too old")]
    Function(&'static str),
    /// The library is there, and no device can be used.
    #[error("{0}")]
    Refused(#[from] CudaError),
    /// A device that does not exist.
    #[error("this host has {count} CUDA devices, counted from 0: there is no {number}")]
    NoDevice {
        /// What was asked for.
        number: u32,
        /// How many there are.
        count: u32,
    },
}

/// What the driver says when a call fails.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{call}: {name} ({code})")]
pub struct CudaError {
    /// The function.
    pub call: &'static str,
    /// CUresult.
    pub code: u32,
    /// Its name.
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

/// Declares the functions. Those behind `optional` came with later drivers.
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
            fn bind(library: NonNull<c_void>) -> Result<Self, Unavailable> {
                Ok(Self {
                    $($name: {
                        let found = symbol(library, $symbol);
                        let found = found.ok_or(Unavailable::Function(text($symbol)))?;
                        // SAFETY: the driver API gives the function of this
                        // name this signature, for good.
                        unsafe {
                            std::mem::transmute::<
                                NonNull<c_void>,
                                unsafe extern "C" fn($($arg),*) -> c_uint,
                            >(found)
                        }
                    },)*
                    $($oname: symbol(library, $osymbol).map(|found| {
                        // SAFETY: as above.
                        unsafe {
                            std::mem::transmute::<
                                NonNull<c_void>,
                                unsafe extern "C" fn($($oarg),*) -> c_uint,
                            >(found)
                        }
                    }),)*
                })
            }
        }
    };
}

functions! {
    fn init = c"cuInit"(c_uint);
    fn error_name = c"cuGetErrorName"(c_uint, *mut *const c_char);
    fn device_count = c"cuDeviceGetCount"(*mut c_int);
    fn device_get = c"cuDeviceGet"(*mut c_int, c_int);
    fn device_name = c"cuDeviceGetName"(*mut c_char, c_int, c_int);
    fn device_attribute = c"cuDeviceGetAttribute"(*mut c_int, c_int, c_int);
    fn primary_retain = c"cuDevicePrimaryCtxRetain"(*mut Handle, c_int);
    fn primary_release = c"cuDevicePrimaryCtxRelease_v2"(c_int);
    fn push = c"cuCtxPushCurrent_v2"(Handle);
    fn pop = c"cuCtxPopCurrent_v2"(*mut Handle);
    fn alloc = c"cuMemAlloc_v2"(*mut DevicePointer, usize);
    fn free = c"cuMemFree_v2"(DevicePointer);
    fn host_register = c"cuMemHostRegister_v2"(*mut c_void, usize, c_uint);
    fn host_unregister = c"cuMemHostUnregister"(*mut c_void);
    fn stream_create = c"cuStreamCreate"(*mut Handle, c_uint);
    fn stream_destroy = c"cuStreamDestroy_v2"(Handle);
    fn stream_synchronize = c"cuStreamSynchronize"(Handle);
    fn copy_in = c"cuMemcpyHtoDAsync_v2"(DevicePointer, *const c_void, usize, Handle);
    fn copy_out = c"cuMemcpyDtoHAsync_v2"(*mut c_void, DevicePointer, usize, Handle);
    fn copy_2d = c"cuMemcpy2DAsync_v2"(*const Copy2d, Handle);
    fn pointer_set = c"cuPointerSetAttribute"(*const c_void, c_int, DevicePointer);
    optional
    fn range_handle = c"cuMemGetHandleForAddressRange"(*mut c_void, DevicePointer, usize, c_uint, u64);
    fn flush_writes = c"cuFlushGPUDirectRDMAWrites"(c_uint, c_uint);
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
    /// Why there is none.
    pub fn load() -> Result<Arc<Self>, Unavailable> {
        Self::open(Path::new(LIBRARY))
    }

    /// Loads a driver from a file: one of another place, or a stand-in.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub fn open(library: &Path) -> Result<Arc<Self>, Unavailable> {
        let name = CString::new(library.as_os_str().as_bytes())
            .map_err(|_| Unavailable::Missing(format!("{}: no file name", library.display())))?;
        // SAFETY: a C string; loading runs the library's initialisers, as
        // linking against it would.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        let handle = NonNull::new(handle).ok_or_else(|| Unavailable::Missing(why(library)))?;
        let driver = Arc::new(Self::bind(handle)?);
        // SAFETY: takes a number; may be called any number of times.
        driver.check("cuInit", unsafe { (driver.init)(0) })?;
        Ok(driver)
    }

    /// How many devices there are.
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

fn symbol(library: NonNull<c_void>, name: &'static CStr) -> Option<NonNull<c_void>> {
    // SAFETY: the handle is open and is never closed.
    NonNull::new(unsafe { libc::dlsym(library.as_ptr(), name.as_ptr()) })
}

fn text(name: &'static CStr) -> &'static str {
    name.to_str().unwrap_or_default()
}

fn why(library: &Path) -> String {
    // SAFETY: what it returns is used before another call of the loader from
    // this thread.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return format!("{} cannot be loaded", library.display());
    }
    // SAFETY: not null, so a C string of the loader.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
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
        // A library that is another one.
        let error = Driver::open(Path::new("libc.so.6")).unwrap_err();
        assert_eq!(error, Unavailable::Function("cuInit"));
    }
}
