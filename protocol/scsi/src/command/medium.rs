//! Steps shared by commands that access the medium: ranges, reads for
//! comparison, writes, zeros.

use super::{Cx, Failure};
use crate::disk::Disk;
use crate::disk::block_range::BlockRange;
use crate::limits::{MAX_TRANSFER_BYTES, STRIDE_BYTES};
use crate::sense::{Asc, Sense, SenseKey};
use bytes::Bytes;
use zgate_store::{Payload, StoreResult};

/// A run of bytes within the capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

impl Span {
    /// Splits the span into pieces of at most `stride` bytes.
    pub(crate) fn strides(self, stride: u64) -> impl Iterator<Item = Self> {
        let end = self.offset + self.len;
        let mut at = self.offset;
        std::iter::from_fn(move || {
            let len = stride.min(end - at);
            let piece = Self { offset: at, len };
            at += len;
            (len > 0).then_some(piece)
        })
    }

    pub(crate) fn size(self) -> usize {
        usize::try_from(self.len).unwrap_or(usize::MAX)
    }
}

impl Cx<'_> {
    pub(crate) fn block_bytes(&self) -> u64 {
        u64::from(self.disk.block_bytes())
    }

    /// Returns the number of logical blocks.
    pub(crate) fn capacity_blocks(&self) -> u64 {
        self.geometry.capacity_bytes / self.block_bytes()
    }

    /// Returns the bytes of `range`, which must lie within the capacity (SBC-3
    /// §4.5.1). A range of length zero may start right behind the last block.
    pub(crate) fn span(&self, range: BlockRange) -> Result<Span, Failure> {
        let capacity = self.capacity_blocks();
        let fits = range.lba.checked_add(range.blocks).is_some_and(|end| end <= capacity);
        if !fits {
            let wrong = range.lba.max(capacity);
            return Err(Sense::illegal(Asc::LBA_OUT_OF_RANGE).with_information(wrong).into());
        }
        let block = self.block_bytes();
        Ok(Span { offset: range.lba * block, len: range.blocks * block })
    }

    /// Works as [`Cx::span`] and also checks the MAXIMUM TRANSFER LENGTH.
    pub(crate) fn transfer_span(&self, range: BlockRange) -> Result<Span, Failure> {
        let span = self.span(range)?;
        if span.len > MAX_TRANSFER_BYTES {
            return Err(self.invalid_length());
        }
        Ok(span)
    }

    /// Returns INVALID FIELD IN CDB, pointing at the transfer length.
    pub(crate) fn invalid_length(&self) -> Failure {
        let byte = match self.row.length {
            6 => 4,
            10 => 7,
            12 => 6,
            _ => 10,
        };
        Sense::invalid_cdb(byte, None).into()
    }

    /// Refuses the command unless the initiator offers exactly the amount the
    /// CDB needs: a shorter or longer buffer would be applied in part.
    pub(crate) fn exact_data_out(&self, bytes: u64) -> Result<&Bytes, Failure> {
        let data = &self.command.data_out;
        if self.command.data_out_offered_bytes != bytes || data.len() as u64 != bytes {
            return Err(Asc::INVALID_INFORMATION_UNIT.into());
        }
        Ok(data)
    }

    /// Returns the front of the span for which the initiator offers data. Fewer
    /// blocks than the CDB names are accepted, and the transport reports the
    /// residual. FCP-4 lets a target either do that or refuse; RFC 7143 leaves
    /// it open. A partial block is refused, because GOOD would mean that it is
    /// written. An initiator that offers no data at all (expected data transfer
    /// length zero) cannot lose any: GOOD, and the residual is the whole
    /// length.
    pub(crate) fn offered_part(&self, span: Span) -> Result<Span, Failure> {
        let len = span.len.min(self.command.data_out.len() as u64);
        if len.is_multiple_of(self.block_bytes()) {
            Ok(Span { len, ..span })
        } else {
            Err(Asc::INVALID_INFORMATION_UNIT.into())
        }
    }

    /// Returns whether a write must be on stable storage before its status:
    /// FUA, or a write cache that is off (SBC-3 §4.15, §6.5.5).
    pub(crate) fn write_through(&self, fua: bool) -> bool {
        fua || !self.disk.state().mode.write_cache()
    }

    /// Reads bytes that this crate itself examines.
    pub(crate) async fn read_bytes(&self, span: Span) -> Result<Bytes, Failure> {
        if span.len == 0 {
            return Ok(Bytes::new());
        }
        match self.disk.store.read(span.offset, span.size()).await {
            Ok(Payload::Bytes(bytes)) if bytes.len() == span.size() => Ok(bytes),
            Ok(_) => {
                debug_assert!(false, "a block store reads exactly, into memory");
                Err(Sense::new(SenseKey::HardwareError, Asc::INTERNAL_FAILURE).into())
            }
            Err(error) => Err(Self::read_failed(error)),
        }
    }

    pub(crate) async fn write_bytes(
        &self,
        offset: u64,
        data: Bytes,
        stable: bool,
    ) -> Result<(), Failure> {
        if data.is_empty() {
            return Ok(());
        }
        let written = self.disk.store.write(offset, data, stable).await;
        let told = written.and_then(|()| match stable {
            true => self.disk.tell_loss(&self.command.nexus),
            false => Ok(()),
        });
        told.map_err(Self::write_failed)
    }

    pub(crate) async fn sync(&self) -> Result<(), Failure> {
        self.disk.sync_store(Some(&self.command.nexus)).await.map_err(Self::write_failed)
    }

    /// Works as [`Cx::sync`] for a command that no host takes for a flush: the report of a
    /// lost write is left for the next one that is.
    pub(crate) async fn sync_aside(&self) -> Result<(), Failure> {
        self.disk.sync_store(None).await.map_err(Self::write_failed)
    }

    /// Works as [`Disk::write_pattern`], and stops where the command is aborted.
    pub(crate) async fn write_pattern(&self, span: Span, pattern: &[u8]) -> Result<(), Failure> {
        let stride = repeated(pattern, span);
        for piece in pieces(span, &stride) {
            self.check_abort()?;
            let data = stride.slice(..piece.size());
            let written = self.disk.store.write(piece.offset, data, false).await;
            written.map_err(Self::write_failed)?;
        }
        Ok(())
    }

    /// Unmaps a span, see [`Disk::deallocate`].
    pub(crate) async fn deallocate(&self, span: Span) -> Result<(), Failure> {
        self.disk.deallocate(span).await.map_err(Self::write_failed)
    }
}

impl Disk {
    /// Fills the span with repetitions of `pattern`, whose length divides the
    /// span's.
    pub(crate) async fn write_pattern(&self, span: Span, pattern: &[u8]) -> StoreResult<()> {
        let stride = repeated(pattern, span);
        for piece in pieces(span, &stride) {
            self.store.write(piece.offset, stride.slice(..piece.size()), false).await?;
        }
        Ok(())
    }

    /// Unmaps a span. If unmapped blocks read as zeros (LBPRZ=1), the parts
    /// that the store cannot unmap are zeroed, so that the whole span reads as
    /// zeros.
    pub(crate) async fn deallocate(&self, span: Span) -> StoreResult<()> {
        if span.len == 0 {
            return Ok(());
        }
        let geometry = self.store.geometry();
        let granularity = u64::from(geometry.discard_granularity_bytes.unwrap_or(1).max(1));
        let start = span.offset.next_multiple_of(granularity);
        let end = (span.offset + span.len) / granularity * granularity;
        if !geometry.discard_zeroes {
            if start < end {
                self.store.discard(start, end - start).await?;
            }
            return Ok(());
        }
        if start >= end {
            return self.store.write_zeroes(span.offset, span.len, true).await;
        }
        if start > span.offset {
            self.store.write_zeroes(span.offset, start - span.offset, true).await?;
        }
        self.store.discard(start, end - start).await?;
        let rest = span.offset + span.len - end;
        if rest > 0 {
            self.store.write_zeroes(end, rest, true).await?;
        }
        Ok(())
    }
}

/// Returns repetitions of `pattern` for one stride of the span at most.
fn repeated(pattern: &[u8], span: Span) -> Bytes {
    let bytes = usize::try_from(STRIDE_BYTES.min(span.len)).unwrap_or(0);
    let repeats = bytes.checked_div(pattern.len()).unwrap_or(0);
    Bytes::from(pattern.repeat(repeats.max(1)))
}

/// Splits the span into pieces that this data fills; none without data.
fn pieces(span: Span, data: &[u8]) -> impl Iterator<Item = Span> {
    let span = if data.is_empty() { Span { len: 0, ..span } } else { span };
    span.strides(data.len() as u64)
}

/// Returns the first position at which two buffers of equal length differ.
pub(crate) fn first_difference(left: &[u8], right: &[u8]) -> Option<u64> {
    if left == right {
        return None;
    }
    left.iter().zip(right).position(|(a, b)| a != b).map(|at| at as u64)
}

/// Returns MISCOMPARE with the position of the byte that differs (SBC-3 §5.2,
/// §5.24).
pub(crate) fn miscompare(at: u64) -> Failure {
    Sense::new(SenseKey::Miscompare, Asc::MISCOMPARE).with_information(at).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strides_cover_a_span() {
        let pieces: Vec<_> = Span { offset: 3, len: 10 }.strides(4).collect();
        assert_eq!(pieces.iter().map(|piece| piece.len).collect::<Vec<_>>(), [4, 4, 2]);
        assert_eq!(pieces[2].offset, 11);
        assert_eq!(Span { offset: 3, len: 0 }.strides(4).count(), 0);
    }

    #[test]
    fn differences_are_located() {
        assert_eq!(first_difference(b"abc", b"abc"), None);
        assert_eq!(first_difference(b"abc", b"axc"), Some(1));
    }
}
