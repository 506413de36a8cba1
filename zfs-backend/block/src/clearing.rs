//! Freeing space and writing zeros.

use crate::backing::{Backing, BackingKind};
use crate::errno::{is_unsupported, uninterrupted};
use crate::file::PUNCH;
use crate::span::Span;
use crate::volume::BlockVolume;
use bytes::Bytes;
use rustix::fs::FallocateFlags;
use rustix::io::{self, Errno};
use std::sync::Arc;
use zgate_io::{WriteSync, block_ioctl};
use zgate_store::{StoreError, StoreResult};

/// Bytes of zeros per write where nothing cheaper works.
const ZERO_CHUNK_BYTES: usize = 1 << 20;

/// Zeros aligned for O_DIRECT; never written to, so that they take no memory.
#[repr(align(4096))]
struct Zeros([u8; ZERO_CHUNK_BYTES]);
static ZEROS: Zeros = Zeros([0; ZERO_CHUNK_BYTES]);

/// Flags that zero a range of a file without freeing it.
const ZERO_RANGE: FallocateFlags = FallocateFlags::ZERO_RANGE.union(FallocateFlags::KEEP_SIZE);

/// One method of clearing a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClearMethod {
    /// fallocate(PUNCH_HOLE): zeros, and space may be freed. On a device the
    /// kernel uses it only if the device has a command for it.
    Punch,
    /// fallocate(ZERO_RANGE) of a file: zeros, space stays allocated.
    ZeroRange,
    /// BLKDISCARD of a device.
    Discard,
    /// BLKZEROOUT of a device: zeros, space stays allocated.
    ZeroOut,
}

/// Methods of writing zeros, best first; if none is supported, zeros are
/// written as data.
fn zero_methods(kind: BackingKind, may_unmap: bool) -> &'static [ClearMethod] {
    match (kind, may_unmap) {
        (BackingKind::File, true) => &[ClearMethod::Punch, ClearMethod::ZeroRange],
        (BackingKind::File, false) => &[ClearMethod::ZeroRange],
        (BackingKind::Zvol, true) => &[ClearMethod::Discard, ClearMethod::ZeroOut],
        (BackingKind::Loop | BackingKind::Device, true) => {
            &[ClearMethod::Punch, ClearMethod::ZeroOut]
        }
        (_, false) => &[ClearMethod::ZeroOut],
    }
}

/// Method of discarding.
fn discard_method(kind: BackingKind) -> ClearMethod {
    if kind == BackingKind::File { ClearMethod::Punch } else { ClearMethod::Discard }
}

impl ClearMethod {
    /// Returns the unit in bytes to which the range must be aligned: a device
    /// takes whole logical blocks, and a zvol ignores partial volblocks in a
    /// discard. Of a file, blocks that are written as a whole: clearing a part of
    /// one must not fall between the reading and the writing of its other parts.
    fn unit_bytes(self, backing: &Backing) -> u64 {
        let shape = &backing.shape;
        u64::from(match (self, shape.kind) {
            (_, BackingKind::File) => backing.direct.map_or(1, |alignment| alignment.offset_bytes),
            (Self::Discard, BackingKind::Zvol) => shape.physical_block_bytes,
            _ => shape.logical_block_bytes,
        })
    }

    fn clear(self, backing: &Backing, span: Span) -> io::Result<()> {
        let (fd, offset, len) = (&*backing.fd, span.offset, span.len);
        match self {
            Self::Punch => rustix::fs::fallocate(fd, PUNCH, offset, len),
            Self::ZeroRange => rustix::fs::fallocate(fd, ZERO_RANGE, offset, len),
            Self::Discard => block_ioctl::discard(fd, offset, len),
            Self::ZeroOut => block_ioctl::zero_out(fd, offset, len),
        }
    }
}

impl BlockVolume {
    /// Frees the range. The partial blocks at its ends are zeroed if discarded
    /// ranges promise to read as zeros, and left unchanged otherwise.
    pub(crate) async fn free(&self, span: Span) -> StoreResult<()> {
        if self.backing.shape.discard_granularity_bytes.is_none() {
            return Err(StoreError::NotSupported);
        }
        let method = discard_method(self.backing.shape.kind);
        let cut = span.cut(method.unit_bytes(&self.backing));
        let discard = (self.backing.shape.kind.discard_zeroes()
            && self.kind() != BackingKind::File)
            .then(|| {
                let unit = self.backing.shape.discard_granularity_bytes.unwrap_or(1).max(1);
                self.freed.begin(cut.whole.cut(u64::from(unit)).whole)
            });
        let cleared = self.clear(method, cut.whole).await;
        cleared.map_err(|errno| self.fault("discard", span, &errno.into()))?;
        if let Some(discard) = discard {
            discard.complete();
        }
        if self.backing.shape.kind.discard_zeroes() {
            self.write_zeros(cut.head).await?;
            self.write_zeros(cut.tail).await?;
        }
        Ok(())
    }

    /// Makes the range read as zeros.
    pub(crate) async fn zero(&self, span: Span, may_unmap: bool) -> StoreResult<()> {
        self.freed.remove(span);
        let outcome = self.zero_span(span, may_unmap).await;
        self.freed.remove(span);
        outcome
    }

    async fn zero_span(&self, span: Span, may_unmap: bool) -> StoreResult<()> {
        for method in zero_methods(self.backing.shape.kind, may_unmap) {
            let cut = span.cut(method.unit_bytes(&self.backing));
            match self.clear(*method, cut.whole).await {
                Ok(()) => {
                    self.write_zeros(cut.head).await?;
                    return self.write_zeros(cut.tail).await;
                }
                Err(errno) if is_unsupported(errno) => {}
                Err(errno) => return Err(self.fault("write zeros", span, &errno.into())),
            }
        }
        self.write_zeros(span).await
    }

    async fn clear(&self, method: ClearMethod, span: Span) -> io::Result<()> {
        if span.is_empty() {
            return Ok(());
        }
        let _whole = self.backing.lock_whole(span).await;
        let backing = Arc::clone(&self.backing);
        self.engine
            .run_long(move || uninterrupted(|| method.clear(&backing, span)))
            .await
            .unwrap_or(Err(Errno::IO))
    }

    /// Writes zeros as data, one chunk after the other.
    async fn write_zeros(&self, span: Span) -> StoreResult<()> {
        let mut done = 0;
        while done < span.len {
            let chunk = (span.len - done).min(ZERO_CHUNK_BYTES as u64) as usize;
            let zeros = Bytes::from_static(&ZEROS.0[..chunk]);
            self.put(span.offset + done, zeros, WriteSync::None).await?;
            done += chunk as u64;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aligned::Alignment;

    #[test]
    fn parts_of_blocks_that_are_written_as_a_whole_are_cleared_as_data() {
        let direct = Backing::of_new_file(Alignment::new(4096, 512));
        for method in [ClearMethod::Punch, ClearMethod::ZeroRange] {
            let part = Span { offset: 512, len: 3584 };
            assert!(part.cut(method.unit_bytes(&direct)).whole.is_empty(), "{method:?}");
            assert_eq!(method.unit_bytes(&Backing::of_new_file(None)), 1);
        }
    }
}
