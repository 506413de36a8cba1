//! Registered memory.

use crate::host::{Device, Host};
use std::ffi::c_int;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use zgate_fabric::Exposed;
use zgate_rdma_sys as sys;
use zgate_store::AlignedBuf;

/// Memory registered for a while.
#[derive(Debug)]
pub(crate) struct Region {
    host: Arc<Host>,
    mr: NonNull<sys::MemoryRegion>,
}

// SAFETY: a memory region may be used and deregistered from any thread.
unsafe impl Send for Region {}

impl Region {
    /// Registers bytes. They must stay where they are while the region lives;
    /// both are kept together by the callers.
    pub(crate) fn new(
        host: &Arc<Host>,
        device: &Device,
        bytes: &[u8],
        access: c_int,
    ) -> io::Result<Self> {
        let address = bytes.as_ptr().cast_mut().cast();
        // SAFETY: the bytes are mapped. Registration pins them and writes
        // nothing; what is written later are posted or exposed buffers.
        let mr = unsafe { (host.verbs.reg_mr)(device.pd, address, bytes.len(), access) };
        match NonNull::new(mr) {
            Some(mr) => Ok(Self { host: Arc::clone(host), mr }),
            None => Err(io::Error::last_os_error()),
        }
    }

    pub(crate) fn lkey(&self) -> u32 {
        // SAFETY: registered until dropped.
        unsafe { self.mr.as_ref().lkey }
    }

    fn rkey(&self) -> u32 {
        // SAFETY: registered until dropped.
        unsafe { self.mr.as_ref().rkey }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: registered once, deregistered here only.
        let failed = unsafe { (self.host.verbs.dereg_mr)(self.mr.as_ptr()) };
        debug_assert_eq!(failed, 0, "a memory region still in use");
    }
}

/// What a device needs to use bytes: their key, and the registration behind it
/// where it is not the arena's.
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

/// A buffer that peers may use. The region goes before the buffer does.
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
        // Deregistration returns when no peer can reach the memory any more.
        drop(region);
        buffer
    }
}
