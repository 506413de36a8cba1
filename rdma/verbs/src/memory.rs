//! Registered memory.

use crate::host::{Device, Host};
use std::ffi::c_int;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::Arc;
use zgate_fabric::{Exposed, Foreign};
use zgate_rdma_sys as sys;
use zgate_store::AlignedBuf;

/// A memory registration, ended on drop.
#[derive(Debug)]
pub(crate) struct Region {
    host: Arc<Host>,
    mr: NonNull<sys::MemoryRegion>,
}

// SAFETY: a memory region may be used and deregistered from any thread.
unsafe impl Send for Region {}
// SAFETY: as above; what is shared is read only.
unsafe impl Sync for Region {}

impl Region {
    /// Registers bytes, which must not move while the region lives; the callers
    /// keep both together.
    pub(crate) fn new(
        host: &Arc<Host>,
        device: &Device,
        bytes: &[u8],
        access: c_int,
    ) -> io::Result<Self> {
        let address = bytes.as_ptr().cast_mut().cast();
        // SAFETY: the bytes are mapped. Registration pins them and writes
        // nothing; later only posted or exposed buffers are written.
        let mr = unsafe { (host.verbs.reg_mr)(device.pd, address, bytes.len(), access) };
        match NonNull::new(mr) {
            Some(mr) => Ok(Self { host: Arc::clone(host), mr }),
            None => Err(io::Error::last_os_error()),
        }
    }

    /// Registers part of another device's memory for peers to write: by its
    /// dmabuf, or by its address if that device's driver supports peer memory.
    /// Also returns which.
    pub(crate) fn of_foreign(
        host: &Arc<Host>,
        device: &Device,
        memory: &dyn Foreign,
        range: Range<usize>,
    ) -> io::Result<(Self, &'static str)> {
        let access = sys::ACCESS_LOCAL_WRITE | sys::ACCESS_REMOTE_WRITE;
        let (address, len) = (memory.address() + range.start as u64, range.len());
        let made = |mr| match NonNull::new(mr) {
            Some(mr) => Ok(Self { host: Arc::clone(host), mr }),
            None => Err(io::Error::last_os_error()),
        };
        let by_dmabuf = memory.dmabuf(range).and_then(|dmabuf| {
            let fd = dmabuf.as_raw_fd();
            // SAFETY: the file is open during the call, and the registration
            // keeps its memory alive.
            made(unsafe { (host.verbs.reg_dmabuf_mr)(device.pd, 0, len, address, fd, access) })
        });
        let first = match by_dmabuf {
            Ok(region) => return Ok((region, "dmabuf")),
            Err(error) => error,
        };
        // SAFETY: registration takes an address and touches nothing there; one
        // that is neither the host's nor a peer's is refused.
        let mr = unsafe { (host.verbs.reg_mr)(device.pd, address as *mut _, len, access) };
        made(mr).map(|region| (region, "peer memory")).map_err(|second| {
            io::Error::new(second.kind(), format!("dmabuf: {first}; peer memory: {second}"))
        })
    }

    pub(crate) fn lkey(&self) -> u32 {
        // SAFETY: registered until dropped.
        unsafe { self.mr.as_ref().lkey }
    }

    pub(crate) fn rkey(&self) -> u32 {
        // SAFETY: registered until dropped.
        unsafe { self.mr.as_ref().rkey }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: registered once, deregistered here only.
        let failed = unsafe { (self.host.verbs.dereg_mr)(self.mr.as_ptr()) };
        // A removed device has released the registration by itself.
        debug_assert!(matches!(failed, 0 | libc::EIO), "a memory region still in use");
    }
}

/// Returns the local key of bytes, with the registration behind it if they are
/// outside the arena.
pub(crate) fn local_key(
    host: &Arc<Host>,
    device: &Device,
    bytes: &[u8],
    regions: &mut Vec<Region>,
) -> io::Result<u32> {
    if let Some(key) = device.arena_key(bytes) {
        return Ok(key);
    }
    let region = Region::new(host, device, bytes, sys::ACCESS_LOCAL_WRITE)?;
    let key = region.lkey();
    regions.push(region);
    Ok(key)
}

/// A buffer exposed to peers. The region is dropped before the buffer.
#[derive(Debug)]
pub(crate) struct RemoteRegion {
    region: Region,
    buffer: AlignedBuf,
}

impl RemoteRegion {
    pub(crate) fn new(region: Region, buffer: AlignedBuf) -> Self {
        Self { region, buffer }
    }
}

impl Exposed for RemoteRegion {
    fn rkey(&self) -> u32 {
        self.region.rkey()
    }

    fn address(&self) -> u64 {
        self.buffer.as_ptr() as u64
    }

    fn len(&self) -> usize {
        self.buffer.len()
    }

    fn withdraw(self: Box<Self>) -> AlignedBuf {
        let Self { region, buffer } = *self;
        // After deregistration no peer can access the memory.
        drop(region);
        buffer
    }
}
