//! Page-locked host memory between the network and a device: two buffers, so
//! that one is filled while the other is copied.

use crate::model::LoadError;
use crate::model::memory::Memory;
use crate::model::regions::stopped;
use bytes::BytesMut;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use zgate_cuda::{Device, DeviceMemory, Staging};

/// Length of a buffer in bytes.
pub(super) const STAGING_BYTES: usize = 32 << 20;
/// Number of buffers.
const BUFFERS: usize = 2;

#[derive(Debug)]
struct Buffer {
    memory: BytesMut,
    staging: Staging,
}

/// Buffers of one load, created on first use.
#[derive(Debug)]
pub(super) struct Buffers {
    device: Arc<Device>,
    turns: Arc<Semaphore>,
    idle: Mutex<Vec<Buffer>>,
}

/// A buffer in use. Its memory is lent to the code that fills it.
#[derive(Debug)]
pub(super) struct Lease {
    buffers: Arc<Buffers>,
    staging: Staging,
    /// Rest of the memory that is not filled.
    rest: BytesMut,
    _turn: OwnedSemaphorePermit,
}

impl Buffers {
    pub(super) fn new(device: &Arc<Device>) -> Arc<Self> {
        Arc::new(Self {
            device: Arc::clone(device),
            turns: Arc::new(Semaphore::new(BUFFERS)),
            idle: Mutex::default(),
        })
    }

    /// Takes a buffer, and `len` bytes of it to be filled; waits until one is
    /// free.
    ///
    /// # Errors
    /// The device's error.
    pub(super) async fn take(self: &Arc<Self>, len: usize) -> Result<(Lease, BytesMut), LoadError> {
        let turn = Arc::clone(&self.turns).acquire_owned().await.map_err(stopped)?;
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let Buffer { mut memory, staging } = match idle {
            Some(buffer) => buffer,
            None => {
                let device = Arc::clone(&self.device);
                // Locking pages takes long.
                let made = tokio::task::spawn_blocking(move || Buffer::new(&device));
                made.await.map_err(stopped)??
            }
        };
        let rest = memory.split_off(len.min(memory.len()));
        Ok((Lease { buffers: Arc::clone(self), staging, rest, _turn: turn }, memory))
    }
}

impl Buffer {
    fn new(device: &Arc<Device>) -> Result<Self, LoadError> {
        let mut memory = Memory::new(0).take(STAGING_BYTES);
        let staging = Staging::new(device, &mut memory).map_err(LoadError::Device)?;
        if let Some(error) = staging.pageable() {
            tracing::info!(%error, "cannot page-lock host memory: copies are slower");
        }
        Ok(Self { memory, staging })
    }
}

impl Lease {
    /// Copies the filled bytes to the device, and returns the buffer. Blocks.
    ///
    /// # Errors
    /// The device's error.
    pub(super) fn copy(
        mut self,
        mut filled: BytesMut,
        to: &DeviceMemory,
        at: usize,
    ) -> Result<(), LoadError> {
        self.staging.copy_in(&filled, to, at).map_err(LoadError::Device)?;
        filled.unsplit(self.rest);
        // The data may be in other memory than the locked one.
        if self.staging.locks(&filled) {
            let buffer = Buffer { memory: filled, staging: self.staging };
            self.buffers.idle.lock().unwrap_or_else(PoisonError::into_inner).push(buffer);
        }
        Ok(())
    }
}
