//! What may change below an open volume while nobody tells: its size, its
//! name, the space that is left.

use crate::backing::BackingKind;
use crate::errno::uninterrupted;
use crate::span::Span;
use crate::volume::BlockVolume;
use std::io;
use std::sync::Arc;
use zgate_store::StoreResult;

/// Unit of st_blocks (stat(2)).
const STAT_BLOCK_BYTES: u64 = 512;

/// The space a volume draws from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceBelow {
    /// Bytes that may still be written to the file system.
    pub available_bytes: u64,
    /// Size of the file system in bytes.
    pub total_bytes: u64,
    /// Bytes that the volume itself takes.
    pub used_bytes: u64,
}

impl BlockVolume {
    /// The space below a file; `None` for devices, which have none to tell of.
    ///
    /// # Errors
    /// What the system says.
    pub async fn space_below(&self) -> StoreResult<Option<SpaceBelow>> {
        if self.kind() != BackingKind::File {
            return Ok(None);
        }
        self.ask("tell the space of", |backing| {
            let system = uninterrupted(|| rustix::fs::fstatvfs(&backing.fd))?;
            let blocks = rustix::fs::fstat(&backing.fd)?.st_blocks;
            Ok(Some(SpaceBelow {
                available_bytes: system.f_bavail.saturating_mul(system.f_frsize),
                total_bytes: system.f_blocks.saturating_mul(system.f_frsize),
                used_bytes: u64::try_from(blocks).unwrap_or(0).saturating_mul(STAT_BLOCK_BYTES),
            }))
        })
        .await
    }

    /// The size below in bytes, which need not be the volume's yet:
    /// `refresh` makes it so.
    ///
    /// # Errors
    /// What the system says.
    pub async fn size_below(&self) -> StoreResult<u64> {
        self.ask("tell the size of", crate::backing::Backing::size_below).await
    }

    /// Whether another open by the same path would no longer find this: the
    /// file was deleted or replaced, the device is gone. What is open works on.
    pub async fn is_orphaned(&self) -> bool {
        let gone = self.ask("find", |backing| {
            let held = rustix::fs::fstat(&backing.fd)?;
            let found = rustix::fs::stat(&backing.path);
            Ok(!found.is_ok_and(|found| {
                let same = (found.st_dev, found.st_ino) == (held.st_dev, held.st_ino);
                match backing.shape.kind {
                    BackingKind::File => same,
                    _ => found.st_rdev == held.st_rdev,
                }
            }))
        });
        gone.await.unwrap_or(false)
    }

    async fn ask<T: Send + 'static>(
        &self,
        what: &'static str,
        ask: impl FnOnce(&crate::backing::Backing) -> io::Result<T> + Send + 'static,
    ) -> StoreResult<T> {
        let backing = Arc::clone(&self.backing);
        let whole = Span { offset: 0, len: self.backing.capacity_bytes() };
        let answer = self.engine.run_long(move || ask(&backing)).await;
        answer.and_then(|answer| answer).map_err(|error| self.fault(what, whole, &error))
    }
}
