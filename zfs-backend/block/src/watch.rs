//! Changes below an open volume that nothing announces: size, name, remaining
//! space.

use crate::backing::BackingKind;
use crate::errno::uninterrupted;
use crate::span::Span;
use crate::volume::BlockVolume;
use std::io;
use std::sync::Arc;
use zgate_io::block_ioctl;
use zgate_store::StoreResult;

/// Unit of st_blocks (stat(2)).
const STAT_BLOCK_BYTES: u64 = 512;

/// Space of the file system that holds a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceBelow {
    /// Bytes that may still be written to the file system.
    pub available_bytes: u64,
    /// Size of the file system in bytes.
    pub total_bytes: u64,
    /// Bytes that the volume itself occupies.
    pub used_bytes: u64,
}

impl BlockVolume {
    /// Reads the space of the file system that holds a file; `None` for
    /// devices.
    ///
    /// # Errors
    /// The error of the operating system.
    pub async fn space_below(&self) -> StoreResult<Option<SpaceBelow>> {
        if self.kind() != BackingKind::File {
            return Ok(None);
        }
        self.ask("read the space of", |backing| {
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

    /// Reads the name that the zvol behind the volume has now; none for files and
    /// other devices. The path may have been left to another zvol by a rename.
    #[must_use]
    pub fn zvol_name(&self) -> Option<String> {
        let is_zvol = self.kind() == BackingKind::Zvol;
        is_zvol.then(|| block_ioctl::zvol_name(&self.backing.fd).ok()).flatten()
    }

    /// Reads the size of the device or file in bytes. It may differ from the
    /// volume's until `refresh`.
    ///
    /// # Errors
    /// The error of the operating system.
    pub async fn size_below(&self) -> StoreResult<u64> {
        self.ask("read the size of", crate::backing::Backing::size_below).await
    }

    /// Returns whether opening the same path again would not find this file or
    /// device: the file was deleted or replaced, or the device is gone. The
    /// open descriptor stays usable.
    pub async fn is_orphaned(&self) -> bool {
        let gone = self.ask("find", |backing| {
            let held = rustix::fs::fstat(&backing.fd)?;
            let found = rustix::fs::stat(&backing.path);
            Ok(!found.is_ok_and(|found| {
                let same = (found.st_dev, found.st_ino) == (held.st_dev, held.st_ino);
                match backing.shape.kind {
                    BackingKind::File => same,
                    // A device that was pulled has no size any more. Another one may have come
                    // back under its number.
                    _ => {
                        let is_there = backing.size_below().is_ok_and(|bytes| bytes > 0);
                        is_there && found.st_rdev == held.st_rdev
                    }
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
