//! Copies between two logical units, one stride at a time.

use crate::command::Failure;
use crate::command::medium::Span;
use crate::disk::Disk;
use crate::disk::block_range::BlockRange;
use crate::limits::STRIDE_BYTES;
use bytes::Bytes;
use zgate_store::{Payload, StoreError, StoreResult};

/// A byte position in a logical unit.
#[derive(Clone, Copy)]
pub(crate) struct DiskOffset<'a> {
    pub(crate) disk: &'a Disk,
    pub(crate) offset: u64,
}

/// Reason for which a copy has stopped.
#[derive(Debug)]
pub(crate) enum Stopped {
    Store(StoreError),
    /// It may not go on.
    Refused(Failure),
}

impl From<StoreError> for Stopped {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// Returns whether a copy may write what it has just read.
pub(crate) type GoesOn<'a> = &'a dyn Fn() -> Result<(), Failure>;

/// Copies `bytes` bytes; both ranges are within their capacities and consist of
/// whole blocks. Overlapping ranges are copied as if all data were read first. Before
/// each stride is written, `goes_on` is asked: whoever aborts a copy of gigabytes, or
/// fences its initiator off, waits for one stride of it.
pub(crate) async fn copy(
    from: DiskOffset<'_>,
    to: DiskOffset<'_>,
    bytes: u64,
    goes_on: GoesOn<'_>,
) -> Result<(), Stopped> {
    let span = Span { offset: 0, len: bytes };
    let same = std::ptr::eq(from.disk, to.disk);
    if same && to.offset > from.offset && to.offset - from.offset < bytes {
        // Target above source in the same unit: copy from the end backwards.
        let pieces: Vec<Span> = span.strides(STRIDE_BYTES).collect();
        for piece in pieces.into_iter().rev() {
            copy_piece(from, to, piece, goes_on).await?;
        }
    } else {
        for piece in span.strides(STRIDE_BYTES) {
            copy_piece(from, to, piece, goes_on).await?;
        }
    }
    finish(to.disk).await.map_err(Stopped::Store)
}

async fn copy_piece(
    from: DiskOffset<'_>,
    to: DiskOffset<'_>,
    piece: Span,
    goes_on: GoesOn<'_>,
) -> Result<(), Stopped> {
    let data = read_piece(from, piece).await?;
    let at = Span { offset: to.offset + piece.offset, len: piece.len };
    // The source is not locked any more: holding two ranges could deadlock with
    // an atomic command that waits for one of them.
    let _shared = to.disk.shared.ranges.share(blocks(to.disk, at)).await;
    // Under the lock, for which a SANITIZE waits that has begun meanwhile.
    goes_on().map_err(Stopped::Refused)?;
    to.disk.blocks_change(blocks(to.disk, at));
    to.disk.store.write(at.offset, data, false).await.map_err(Stopped::Store)
}

/// Reads a piece of the source, under its lock: of an atomic write within it, it has all or
/// nothing.
async fn read_piece(from: DiskOffset<'_>, piece: Span) -> StoreResult<Bytes> {
    let at = Span { offset: from.offset + piece.offset, len: piece.len };
    let _shared = from.disk.shared.ranges.share(blocks(from.disk, at)).await;
    match from.disk.store.read(at.offset, at.size()).await? {
        Payload::Bytes(data) => Ok(data),
        Payload::Span(_) => {
            debug_assert!(false, "a block store reads into memory");
            Err(StoreError::Io)
        }
    }
}

/// Returns the blocks that contain a span of bytes.
pub(crate) fn blocks(disk: &Disk, span: Span) -> BlockRange {
    let block = u64::from(disk.block_bytes());
    let lba = span.offset / block;
    BlockRange { lba, blocks: (span.offset + span.len).div_ceil(block) - lba }
}

/// Syncs if the write cache is off, so that the data is stable before the
/// reply.
pub(crate) async fn finish(disk: &Disk) -> StoreResult<()> {
    let cached = disk.state().mode.write_cache();
    if cached { Ok(()) } else { disk.sync_store(None).await }
}
