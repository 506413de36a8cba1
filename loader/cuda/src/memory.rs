//! Memory on a device.

use crate::device::Device;
use crate::driver::{CudaError, DevicePointer};
use std::ffi::{c_int, c_uint, c_void};
use std::ops::Range;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::Arc;

/// What RDMA devices and dmabufs count memory in: the larger of a host's page
/// and what the device maps at once, in bytes.
const UNIT_BYTES: usize = 64 << 10;
/// A page of the host, in bytes.
const PAGE_BYTES: u64 = 4096;
/// CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD.
const DMA_BUF_FD: c_uint = 1;
/// CU_POINTER_ATTRIBUTE_SYNC_MEMOPS.
const SYNC_MEMOPS: c_int = 6;

/// Memory on a device, freed when dropped. Rust cannot look at it: copies do.
#[derive(Debug)]
pub struct DeviceMemory {
    device: Arc<Device>,
    pointer: DevicePointer,
    bytes: usize,
    allocated_bytes: usize,
}

impl DeviceMemory {
    /// Memory with anything in it; none is asked for when `bytes` is 0.
    ///
    /// # Errors
    /// The driver's: there is not so much left, mostly.
    pub fn allocate(device: &Arc<Device>, bytes: usize) -> Result<Self, CudaError> {
        let allocated_bytes = bytes.next_multiple_of(UNIT_BYTES);
        let mut pointer = 0;
        if bytes > 0 {
            device.within(|driver| {
                // SAFETY: writes the address; the memory is freed once, when
                // this is dropped.
                let made = unsafe { (driver.alloc)(&raw mut pointer, allocated_bytes) };
                driver.check("cuMemAlloc", made)
            })?;
        }
        Ok(Self { device: Arc::clone(device), pointer, bytes, allocated_bytes })
    }

    /// Where it is.
    #[must_use]
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Its address, in the unified address space; 0 if it has no bytes.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.pointer
    }

    /// Its length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Copies to the device and out of it wait for each other and for peers
    /// from now on, as memory needs that an RDMA device writes to.
    ///
    /// # Errors
    /// Not supported (CUresult 801): what peers write would not surely be seen.
    /// The driver's.
    pub fn order_with_peers(&self) -> Result<(), CudaError> {
        if !self.device.sees_peers() {
            let name = "writes of peers are neither ordered nor flushed".to_owned();
            return Err(CudaError { call: "cuFlushGPUDirectRDMAWrites", code: 801, name });
        }
        let on: c_uint = 1;
        self.device.within(|driver| {
            // SAFETY: reads one number; the memory is allocated.
            let set = unsafe {
                (driver.pointer_set)((&raw const on).cast::<c_void>(), SYNC_MEMOPS, self.pointer)
            };
            driver.check("cuPointerSetAttribute", set)
        })
    }

    /// A dmabuf of part of it, from the first byte of `range` on; its end is
    /// rounded up to a page.
    ///
    /// # Errors
    /// Not supported (CUresult 801) by this device or driver; not at the
    /// beginning of a page (1); the driver's.
    pub fn dmabuf(&self, range: Range<usize>) -> Result<OwnedFd, CudaError> {
        let refused = |code, name: &str| {
            Err(CudaError { call: "cuMemGetHandleForAddressRange", code, name: name.to_owned() })
        };
        let Some(export) = self.device.driver.range_handle.filter(|_| self.device.has_dmabuf())
        else {
            return refused(801, "the device has no dmabuf");
        };
        let start = self.pointer + range.start as u64;
        let len = range.len().next_multiple_of(PAGE_BYTES as usize);
        let fits = range.start <= range.end && range.start + len <= self.allocated_bytes;
        if !start.is_multiple_of(PAGE_BYTES) || !fits || range.is_empty() {
            return refused(1, "not whole pages of the memory");
        }
        let mut fd: c_int = -1;
        self.device.within(|driver| {
            // SAFETY: writes a file descriptor; the range is allocated.
            let made = unsafe { export((&raw mut fd).cast::<c_void>(), start, len, DMA_BUF_FD, 0) };
            driver.check("cuMemGetHandleForAddressRange", made)
        })?;
        if fd < 0 {
            return refused(999, "no file descriptor");
        }
        // SAFETY: it was just made for us, and nobody else has it.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// Whether a range lies in it.
    pub(crate) fn holds(&self, at: usize, len: usize) -> bool {
        at.checked_add(len).is_some_and(|end| end <= self.bytes)
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        if self.pointer == 0 {
            return;
        }
        let freed = self.device.within(|driver| {
            // SAFETY: allocated once, freed once. Freeing waits for what runs
            // on the device.
            driver.check("cuMemFree", unsafe { (driver.free)(self.pointer) })
        });
        if let Err(error) = freed {
            // When the process ends the driver goes first, and frees all.
            tracing::debug!(%error, "device memory is not freed");
        }
    }
}
