//! Copies to a device, out of it and within it.

use crate::device::Device;
use crate::driver::{Copy2d, CudaError, Handle};
use crate::memory::DeviceMemory;
use bytes::BytesMut;
use std::ffi::c_void;
use std::sync::Arc;

/// CU_STREAM_NON_BLOCKING: no implicit synchronisation with other streams.
const NON_BLOCKING: u32 = 1;
/// CU_MEMHOSTREGISTER_PORTABLE: page-locked for all contexts.
const PORTABLE: u32 = 1;
/// CU_MEMORYTYPE_DEVICE.
const ON_DEVICE: u32 = 2;

/// A stream: an ordered queue of work on a device.
#[derive(Debug)]
struct Stream {
    device: Arc<Device>,
    handle: Handle,
}

// SAFETY: streams may be used from any thread.
unsafe impl Send for Stream {}

impl Stream {
    fn new(device: &Arc<Device>) -> Result<Self, CudaError> {
        let mut handle = std::ptr::null_mut();
        device.within(|driver| {
            // SAFETY: writes the handle, which is destroyed once.
            let made = unsafe { (driver.stream_create)(&raw mut handle, NON_BLOCKING) };
            driver.check("cuStreamCreate", made)
        })?;
        Ok(Self { device: Arc::clone(device), handle })
    }

    /// Starts copies and waits for them, including those before one that
    /// failed.
    fn run(
        &mut self,
        start: impl FnOnce(&crate::Driver, Handle) -> Result<(), CudaError>,
    ) -> Result<(), CudaError> {
        self.device.within(|driver| {
            let started = start(driver, self.handle);
            // SAFETY: the stream is alive.
            let ended = unsafe { (driver.stream_synchronize)(self.handle) };
            started.and(driver.check("cuStreamSynchronize", ended))
        })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // Nothing is in flight: `run` waited for every copy.
        let gone = self.device.within(|driver| {
            // SAFETY: created once, destroyed once.
            driver.check("cuStreamDestroy", unsafe { (driver.stream_destroy)(self.handle) })
        });
        if let Err(error) = gone {
            tracing::debug!(%error, "cannot destroy a stream");
        }
    }
}

/// Page-locked host memory with a stream of its own: a staging area for data
/// that cannot be written to the device directly.
#[derive(Debug)]
pub struct Staging {
    stream: Stream,
    /// Keeps the memory from being freed while it is locked.
    anchor: BytesMut,
    address: *mut c_void,
    bytes: usize,
    /// Reason for which it is not page-locked; copies are slower then.
    pageable: Option<CudaError>,
}

// SAFETY: the address is only handed to the driver, which takes it on any
// thread.
unsafe impl Send for Staging {}

impl Staging {
    /// Locks `memory`, which is to be filled and passed to [`Self::copy_in`]
    /// repeatedly. Memory that cannot be locked works as well, but slower.
    ///
    /// # Errors
    /// The driver's error.
    pub fn new(device: &Arc<Device>, memory: &mut BytesMut) -> Result<Self, CudaError> {
        let stream = Stream::new(device)?;
        let (address, bytes) = (memory.as_mut_ptr().cast::<c_void>(), memory.len());
        // An empty part at the beginning is a reference to the whole
        // allocation.
        let anchor = memory.split_to(0);
        let locked = device.within(|driver| {
            // SAFETY: the memory is mapped, and stays so while `anchor` lives,
            // which is longer than it is locked. Locking writes nothing.
            let locked = unsafe { (driver.host_register)(address, bytes, PORTABLE) };
            driver.check("cuMemHostRegister", locked)
        });
        Ok(Self { stream, anchor, address, bytes, pageable: locked.err() })
    }

    /// Returns the reason for which its memory is not page-locked, if it is
    /// not.
    #[must_use]
    pub fn pageable(&self) -> Option<&CudaError> {
        self.pageable.as_ref()
    }

    /// Returns whether `memory` is all of the memory it was made for.
    #[must_use]
    pub fn locks(&self, memory: &[u8]) -> bool {
        memory.as_ptr().cast::<c_void>() == self.address.cast_const() && memory.len() == self.bytes
    }

    /// Copies to the device and waits for completion. Blocks.
    ///
    /// # Errors
    /// The driver's; CUDA_ERROR_INVALID_VALUE for a range outside `to`.
    pub fn copy_in(&mut self, data: &[u8], to: &DeviceMemory, at: usize) -> Result<(), CudaError> {
        within("cuMemcpyHtoDAsync", to, at, data.len())?;
        self.stream.run(|driver, stream| {
            let (to, from) = (to.address() + at as u64, data.as_ptr().cast::<c_void>());
            // SAFETY: both ranges are there until the copy has ended, which
            // `run` waits for.
            let started = unsafe { (driver.copy_in)(to, from, data.len(), stream) };
            driver.check("cuMemcpyHtoDAsync", started)
        })
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if self.pageable.is_some() {
            return;
        }
        debug_assert!(self.anchor.is_empty() && self.bytes > 0);
        let unlocked = self.stream.device.within(|driver| {
            // SAFETY: locked once, unlocked once; nothing is being copied.
            let done = unsafe { (driver.host_unregister)(self.address) };
            driver.check("cuMemHostUnregister", done)
        });
        if let Err(error) = unlocked {
            tracing::debug!(%error, "cannot unlock page-locked memory");
        }
    }
}

/// Pieces of equal length at equal distances.
#[derive(Clone, Copy, Debug)]
pub struct Grid {
    /// Start of the first piece, in bytes.
    pub start_bytes: usize,
    /// Length of each, in bytes.
    pub piece_bytes: usize,
    /// Distance between the starts of two pieces, in bytes.
    pub stride_bytes: usize,
    /// Number of pieces.
    pub count: usize,
}

fn within(
    call: &'static str,
    memory: &DeviceMemory,
    at: usize,
    len: usize,
) -> Result<(), CudaError> {
    if memory.holds(at, len) {
        return Ok(());
    }
    Err(CudaError { call, code: 1, name: format!("{len} bytes at {at} of {}", memory.len()) })
}

impl DeviceMemory {
    /// Copies from any host memory to the device and waits. Blocks.
    ///
    /// # Errors
    /// As [`Staging::copy_in`].
    pub fn write(&self, at: usize, data: &[u8]) -> Result<(), CudaError> {
        within("cuMemcpyHtoDAsync", self, at, data.len())?;
        if data.is_empty() {
            return Ok(());
        }
        Stream::new(self.device())?.run(|driver, stream| {
            let (to, from) = (self.address() + at as u64, data.as_ptr().cast::<c_void>());
            // SAFETY: both ranges are there until the copy has ended, which
            // `run` waits for.
            let started = unsafe { (driver.copy_in)(to, from, data.len(), stream) };
            driver.check("cuMemcpyHtoDAsync", started)
        })
    }

    /// Copies from the device to host memory and waits. Blocks.
    ///
    /// # Errors
    /// As [`Staging::copy_in`].
    pub fn read(&self, at: usize, into: &mut [u8]) -> Result<(), CudaError> {
        within("cuMemcpyDtoHAsync", self, at, into.len())?;
        if into.is_empty() {
            return Ok(());
        }
        Stream::new(self.device())?.run(|driver, stream| {
            let (from, to) = (self.address() + at as u64, into.as_mut_ptr().cast::<c_void>());
            // SAFETY: both ranges are there until the copy has ended, which
            // `run` waits for.
            let started = unsafe { (driver.copy_out)(to, from, into.len(), stream) };
            driver.check("cuMemcpyDtoHAsync", started)
        })
    }

    /// Gathers pieces of `from`, starting at `at`, into this memory, which has
    /// their total length. The copy runs on the device. Blocks.
    ///
    /// # Errors
    /// The driver's; pieces that are not in `from`, or memory of another length,
    /// are CUDA_ERROR_INVALID_VALUE.
    pub fn gather(&self, from: &Self, at: usize, grid: Grid) -> Result<(), CudaError> {
        let Grid { start_bytes, piece_bytes, stride_bytes, count } = grid;
        let invalid = || CudaError {
            call: "cuMemcpy2DAsync",
            code: 1,
            name: format!("{grid:?} of {} bytes", from.len()),
        };
        if count == 0 || piece_bytes == 0 {
            return Ok(());
        }
        let extent = (count - 1).checked_mul(stride_bytes).and_then(|l| l.checked_add(piece_bytes));
        let first = at.checked_add(start_bytes).ok_or_else(invalid)?;
        let fits = extent.is_some_and(|extent| from.holds(first, extent));
        if !fits || piece_bytes > stride_bytes || piece_bytes.checked_mul(count) != Some(self.len())
        {
            return Err(invalid());
        }
        let copy = Copy2d {
            src_x: 0,
            src_y: 0,
            src_type: ON_DEVICE,
            src_host: std::ptr::null(),
            src_device: from.address() + first as u64,
            src_array: std::ptr::null_mut(),
            src_pitch: stride_bytes,
            dst_x: 0,
            dst_y: 0,
            dst_type: ON_DEVICE,
            dst_host: std::ptr::null_mut(),
            dst_device: self.address(),
            dst_array: std::ptr::null_mut(),
            dst_pitch: piece_bytes,
            width: piece_bytes,
            height: count,
        };
        Stream::new(self.device())?.run(|driver, stream| {
            // SAFETY: the description is read during the call; both ranges were
            // checked and live until the copy has ended, which `run` waits for.
            let started = unsafe { (driver.copy_2d)(&raw const copy, stream) };
            driver.check("cuMemcpy2DAsync", started)
        })
    }
}
