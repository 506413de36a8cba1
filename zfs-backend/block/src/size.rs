//! The size of a volume, now and when it is changed.

use crate::backing::BackingKind;
use crate::errno::store_error;
use crate::extents;
use crate::span::Span;
use crate::volume::BlockVolume;
use std::io;
use std::sync::Arc;
use thiserror::Error;
use zgate_store::StoreError;

/// Sizes are counted in units of it: the smallest block a disk has.
pub(crate) const SECTOR_BYTES: u64 = 512;

/// What becomes of data that a smaller disk has no room for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shrink {
    /// The disk does not get smaller.
    #[default]
    Refuse,
    /// It does if nothing is stored there.
    IfUnused,
    /// It is lost.
    DiscardData,
}

/// Why a volume keeps its size.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum ResizeError {
    /// The size is not a whole number of blocks, or zero.
    #[error("the size is not a multiple of {unit_bytes} bytes")]
    NotWhole {
        /// What it must be a multiple of, in bytes.
        unit_bytes: u64,
    },
    /// It would get smaller, and that was not allowed.
    #[error("that is smaller than now ({capacity_bytes} bytes)")]
    Smaller {
        /// Size now.
        capacity_bytes: u64,
    },
    /// Data is stored beyond the new end.
    #[error("data is stored beyond the new end")]
    DataLost,
    /// Devices are resized where they are made (`zfs set volsize=`), and then
    /// looked at again.
    #[error("a device is resized by its own tools; refresh afterwards")]
    Device,
    /// What the storage says.
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
            // Its sync may have been told of writes that were lost.
            self.remember_loss(*error);
        }
        outcome.map_err(|error| self.fault("resize", span, &error))?
    }

    /// Looks at the size below and makes it the volume's.
    pub(crate) async fn look_again(&self) -> io::Result<u64> {
        let backing = Arc::clone(&self.backing);
        self.engine
            .run(move || backing.size_below().map(|bytes| backing.set_capacity(bytes)))
            .await?
    }
}
