//! Size of a volume, and changes of it.

use crate::backing::{BackingKind, SECTOR_BYTES};
use crate::errno::store_error;
use crate::extents;
use crate::span::Span;
use crate::volume::BlockVolume;
use std::io;
use std::sync::Arc;
use thiserror::Error;
use zgate_store::StoreError;

/// Treatment of data beyond the end of a smaller disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shrink {
    /// The disk is not made smaller.
    #[default]
    Refuse,
    /// The disk is made smaller if no data is stored there.
    IfUnused,
    /// The data is lost.
    DiscardData,
}

/// Reason for which a volume keeps its size.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum ResizeError {
    /// The size is not a whole number of blocks, or zero.
    #[error("the size is not a multiple of {unit_bytes} bytes")]
    NotWhole {
        /// Required unit, in bytes.
        unit_bytes: u64,
    },
    /// The size would shrink, and that was not allowed.
    #[error("smaller than the present size ({capacity_bytes} bytes)")]
    Smaller {
        /// Present size in bytes.
        capacity_bytes: u64,
    },
    /// Data is stored beyond the new end.
    #[error("data is stored beyond the new end")]
    DataLost,
    /// Devices are resized with their own tools (`zfs set volsize=`) and then
    /// refreshed.
    #[error("a device is resized by its own tools; refresh afterwards")]
    Device,
    /// Error of the storage.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl BlockVolume {
    /// Gives a file a new size in bytes and returns it. A smaller size waits
    /// for the writes in progress; requests beyond it fail from then on.
    ///
    /// # Errors
    /// See [`ResizeError`]; the size has not changed then.
    pub async fn resize(&self, new_bytes: u64, shrink: Shrink) -> Result<u64, ResizeError> {
        if self.backing.shape.kind != BackingKind::File {
            return Err(ResizeError::Device);
        }
        if self.backing.read_only {
            return Err(StoreError::ReadOnly.into());
        }
        let unit_bytes = self.backing.unit_bytes().max(SECTOR_BYTES);
        if new_bytes == 0 || !new_bytes.is_multiple_of(unit_bytes) {
            return Err(ResizeError::NotWhole { unit_bytes });
        }
        if new_bytes > i64::MAX as u64 {
            return Err(StoreError::TooLarge.into());
        }
        let _nobody_writes = self.size_gate.write().await;
        let backing = Arc::clone(&self.backing);
        let span = Span { offset: 0, len: new_bytes };
        let outcome = self
            .engine
            .run_long(move || {
                let capacity_bytes = backing.size_below().map_err(|error| store_error(&error))?;
                if new_bytes < capacity_bytes {
                    let tail = Span { offset: new_bytes, len: capacity_bytes - new_bytes };
                    match shrink {
                        Shrink::Refuse => return Err(ResizeError::Smaller { capacity_bytes }),
                        Shrink::IfUnused if !extents::is_hole(&backing.fd, tail) => {
                            return Err(ResizeError::DataLost);
                        }
                        Shrink::IfUnused | Shrink::DiscardData => {}
                    }
                }
                rustix::fs::ftruncate(&backing.fd, new_bytes)
                    .and_then(|()| rustix::fs::fsync(&backing.fd))
                    .map_err(|errno| store_error(&errno.into()))?;
                Ok(backing.set_capacity(new_bytes))
            })
            .await;
        if let Ok(Err(ResizeError::Store(error))) = &outcome {
            // The failed sync may have reported writes that were lost.
            self.remember_loss(*error);
        }
        outcome.map_err(|error| self.fault("resize", span, &error))?
    }

    /// Notes that the content may have been replaced below, by a rollback: all of it counts as
    /// mapped from now on. Waits for no storage.
    pub fn content_replaced(&self) {
        self.freed.clear();
    }

    /// Reads the size of the device or file and makes it the volume's. Whoever changed
    /// it may have changed the content as well, which counts as mapped from now on.
    pub(crate) async fn look_again(&self) -> io::Result<u64> {
        self.content_replaced();
        let backing = Arc::clone(&self.backing);
        self.engine
            .run(move || backing.size_below().map(|bytes| backing.set_capacity(bytes)))
            .await?
    }
}
