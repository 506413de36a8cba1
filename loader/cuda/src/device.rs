//! One device and its primary context.

use crate::driver::{CudaError, Driver, Handle, Unavailable};
use std::ffi::{c_char, c_int, c_uint};
use std::sync::Arc;

/// CU_DEVICE_ATTRIBUTE_*.
const GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS: c_int = 117;
const GPU_DIRECT_RDMA_WRITES_ORDERING: c_int = 118;
const DMA_BUF_SUPPORTED: c_int = 124;
/// CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER: the device itself sees a peer's
/// writes without a flush.
const ORDERED_FOR_OWNER: c_int = 100;
/// CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST: a call can flush a peer's
/// writes.
const FLUSHED_BY_CALL: c_int = 1;
/// CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX and _TO_OWNER.
const FLUSH_CURRENT: c_uint = 0;
const FLUSH_TO_OWNER: c_uint = 100;

/// A device in use.
#[derive(Debug)]
pub struct Device {
    pub(crate) driver: Arc<Driver>,
    context: Handle,
    number: u32,
    handle: c_int,
    name: String,
    dmabuf: bool,
    ordered: bool,
    flushed: bool,
}

// SAFETY: the driver may be called from all threads, and a context may be made
// current on any number of them.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

impl Device {
    /// Opens device `number`, counted from 0 as the driver does.
    ///
    /// There is no such device, or it cannot be used.
    /// There is none, or it cannot be used.
    pub fn open(driver: &Arc<Driver>, number: u32) -> Result<Arc<Self>, Unavailable> {
        let count = driver.devices()?;
        let index = c_int::try_from(number).ok().filter(|_| number < count);
        let index = index.ok_or(Unavailable::NoDevice { number, count })?;
        let mut handle = 0;
        // SAFETY: writes the handle.
        let got = unsafe { (driver.device_get)(&raw mut handle, index) };
        driver.check("cuDeviceGet", got)?;
        let mut raw: [c_char; 128] = [0; 128];
        // SAFETY: writes at most so many bytes, the last of them 0.
        let got = unsafe { (driver.device_name)(raw.as_mut_ptr(), 128, handle) };
        driver.check("cuDeviceGetName", got)?;
        let name = raw.iter().take_while(|c| **c != 0).map(|c| c.cast_unsigned()).collect();
        let attribute = |which| {
            let mut value = 0;
            // SAFETY: writes the value.
            let got = unsafe { (driver.device_attribute)(&raw mut value, which, handle) };
            // If the driver does not know an attribute, the device lacks the
            // feature.
            if got == 0 { value } else { 0 }
        };
        let dmabuf = attribute(DMA_BUF_SUPPORTED) != 0;
        let ordered = attribute(GPU_DIRECT_RDMA_WRITES_ORDERING) >= ORDERED_FOR_OWNER;
        let flushed = attribute(GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS) & FLUSHED_BY_CALL != 0
            && driver.flush_writes.is_some();
        let mut context = std::ptr::null_mut();
        // SAFETY: writes the context, which is released when the device is
        // dropped.
        let got = unsafe { (driver.primary_retain)(&raw mut context, handle) };
        driver.check("cuDevicePrimaryCtxRetain", got)?;
        Ok(Arc::new(Self {
            driver: Arc::clone(driver),
            context,
            number,
            handle,
            name: String::from_utf8(name).unwrap_or_default(),
            dmabuf,
            ordered,
            flushed,
        }))
    }

    /// Returns its number, counted from 0.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns the device's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether its memory can be exported as a dmabuf.
    pub(crate) fn has_dmabuf(&self) -> bool {
        self.dmabuf
    }

    /// Returns whether writes of peers can be made visible to the device.
    pub(crate) fn sees_peers(&self) -> bool {
        self.ordered || self.flushed
    }

    /// Runs calls in the device's context.
    pub(crate) fn within<T>(
        &self,
        work: impl FnOnce(&Driver) -> Result<T, CudaError>,
    ) -> Result<T, CudaError> {
        let driver = &*self.driver;
        // SAFETY: the context is retained.
        driver.check("cuCtxPushCurrent", unsafe { (driver.push)(self.context) })?;
        let result = work(driver);
        let mut popped = std::ptr::null_mut();
        // SAFETY: writes what was pushed above.
        let back = driver.check("cuCtxPopCurrent", unsafe { (driver.pop)(&raw mut popped) });
        result.and_then(|value| back.map(|()| value))
    }

    /// Flushes writes of RDMA peers: everything started on the device
    /// afterwards sees them.
    ///
    /// The driver's error: the device cannot guarantee it.
    /// The driver's: the device cannot promise it.
    pub fn flush_remote_writes(&self) -> Result<(), CudaError> {
        let Some(flush) = self.driver.flush_writes.filter(|_| !self.ordered) else { return Ok(()) };
        self.within(|driver| {
            // SAFETY: takes two numbers.
            let done = unsafe { flush(FLUSH_CURRENT, FLUSH_TO_OWNER) };
            driver.check("cuFlushGPUDirectRDMAWrites", done)
        })
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: retained once, released once; memory and streams of it hold
        // it, so there are none left. When the process ends the driver may be
        // unloaded already, and returns an error.
        let _ = unsafe { (self.driver.primary_release)(self.handle) };
    }
}
