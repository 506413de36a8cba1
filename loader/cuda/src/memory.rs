//! Memory on a device.

use crate::device::Device;
use crate::driver::{CudaError, DevicePointer};
use std::ffi::{c_int, c_uint, c_void};
use std::ops::Range;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::Arc;

/// Granularity of memory for RDMA devices and dmabufs, in bytes: the larger of
/// a host page and the device's mapping unit.
const UNIT_BYTES: usize = 64 << 10;
/// A page of the host, in bytes.
const PAGE_BYTES: u64 = 4096;
/// CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD.
const DMA_BUF_FD: c_uint = 1;
/// CU_POINTER_ATTRIBUTE_SYNC_MEMOPS.
const SYNC_MEMOPS: c_int = 6;

/// Memory on a device, freed on drop. Only copies access it.
#[derive(Debug)]
pub struct DeviceMemory {
    device: Arc<Device>,
    pointer: DevicePointer,
    bytes: usize,
    allocated_bytes: usize,
}

impl DeviceMemory {
    /// Allocates memory with undefined content; nothing is allocated if `bytes`
    /// is 0.
    ///
    /// # Errors
    /// The driver's error: usually too little free memory.
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

    /// Returns the device of the memory.
    #[must_use]
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Returns its address in the unified address space; 0 if it has no bytes.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.pointer
    }

    /// Returns its length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Returns whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Makes copies to and from the device wait for each other and for peers
    /// from now on, as required for memory that an RDMA device writes.
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

    /// Exports a dmabuf of part of the memory, from the first byte of `range`;
    /// its end is rounded up to a page.
    ///
    /// Not supported by this device or driver (CUresult 801); `range` does not
    /// begin at a page boundary (1); the driver's.
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
        // SAFETY: it was just created for this caller, and there is no other
        // owner.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// Returns whether a range lies within the memory.
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
            // At the end of the process the driver is unloaded first, which
            // frees all memory.
            tracing::debug!(%error, "cannot free device memory");
        }
    }
}
