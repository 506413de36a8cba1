//! The data of one write while it arrives.

use crate::limits::{COALESCED_PIECE_BYTES, OWN_BUFFER_BYTES, SMALL_PIECE_BYTES, SPARE_PIECES};
use crate::login::Transport;
use bytes::{Bytes, BytesMut};

/// Reason why a piece was not accepted; an error of the initiator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GatherError {
    /// Some of the bytes were received before.
    Overlap,
    /// Beyond the end of the command's data.
    PastEnd,
    /// More pieces than any reasonable segmentation produces.
    TooMany,
}

#[derive(Debug)]
enum Stored {
    Shared(Bytes),
    Coalesced(BytesMut),
}

impl Stored {
    fn len(&self) -> usize {
        match self {
            Self::Shared(bytes) => bytes.len(),
            Self::Coalesced(bytes) => bytes.len(),
        }
    }
}

#[derive(Debug)]
struct Piece {
    offset: u32,
    stored: Stored,
}

impl Piece {
    fn end(&self) -> u64 {
        u64::from(self.offset) + self.stored.len() as u64
    }
}

/// Pieces by offset, without overlap.
#[derive(Debug, Default)]
pub(crate) struct Gather {
    expected: u32,
    received: u32,
    copied: u32,
    pieces: Vec<Piece>,
}

impl Gather {
    pub(crate) fn new(expected: u32) -> Self {
        Self { expected, received: 0, copied: 0, pieces: Vec::new() }
    }

    /// True if all data has arrived.
    pub(crate) fn is_complete(&self) -> bool {
        self.received == self.expected
    }

    /// Bytes received.
    pub(crate) fn received_bytes(&self) -> u32 {
        self.received
    }

    /// Takes the data of one PDU, or of one RDMA Read.
    pub(crate) fn insert(
        &mut self,
        offset: u32,
        data: Vec<Bytes>,
        transport: Transport,
    ) -> Result<(), GatherError> {
        let len: usize = data.iter().map(Bytes::len).sum();
        let end = u64::from(offset) + len as u64;
        if end > u64::from(self.expected) {
            return Err(GatherError::PastEnd);
        }
        let at = match self.pieces.last() {
            Some(last) if last.end() <= u64::from(offset) => self.pieces.len(),
            _ => self.pieces.partition_point(|p| p.end() <= u64::from(offset)),
        };
        if self.pieces.get(at).is_some_and(|next| u64::from(next.offset) < end) {
            return Err(GatherError::Overlap);
        }
        if self.pieces.len() + data.len()
            > SPARE_PIECES + self.expected as usize / SMALL_PIECE_BYTES
        {
            return Err(GatherError::TooMany);
        }
        self.received += len as u32;
        let is_part = transport == Transport::Tcp && len < OWN_BUFFER_BYTES;
        if len < SMALL_PIECE_BYTES || (is_part && !self.is_complete()) {
            self.insert_small(at, offset, &data);
            return Ok(());
        }
        let mut start = offset;
        let new = data.into_iter().filter(|slice| !slice.is_empty()).map(|slice| {
            let piece = Piece { offset: start, stored: Stored::Shared(slice) };
            start += piece.stored.len() as u32;
            piece
        });
        self.pieces.splice(at..at, new);
        Ok(())
    }

    fn insert_small(&mut self, at: usize, offset: u32, data: &[Bytes]) {
        let len = data.iter().map(Bytes::len).sum::<usize>();
        self.copied += len as u32;
        let before = at.checked_sub(1).and_then(|i| self.pieces.get_mut(i));
        if let Some(piece) = before
            && piece.end() == u64::from(offset)
            && let Stored::Coalesced(bytes) = &mut piece.stored
            && bytes.len() < COALESCED_PIECE_BYTES
        {
            data.iter().for_each(|slice| bytes.extend_from_slice(slice));
            return;
        }
        if len > 0 {
            let mut bytes = BytesMut::with_capacity(len);
            data.iter().for_each(|slice| bytes.extend_from_slice(slice));
            self.pieces.insert(at, Piece { offset, stored: Stored::Coalesced(bytes) });
        }
    }

    /// Stores all data up to `data`'s end as one piece, in place of the
    /// existing pieces. Returns false if `data` does not contain exactly those.
    pub(crate) fn replace_front(&mut self, data: Bytes) -> bool {
        let end = data.len() as u64;
        let inside = self.pieces.partition_point(|piece| piece.end() <= end);
        let cut = self.pieces.get(inside).is_some_and(|next| u64::from(next.offset) < end);
        if end > u64::from(self.expected) || cut {
            return false;
        }
        let held: usize = self.pieces[..inside].iter().map(|piece| piece.stored.len()).sum();
        self.received += (data.len() - held) as u32;
        let whole = Piece { offset: 0, stored: Stored::Shared(data) };
        self.pieces.splice(..inside, [whole]);
        true
    }

    /// Missing ranges between two offsets, as (offset, length).
    pub(crate) fn missing(&self, start: u32, end: u32) -> Vec<(u32, u32)> {
        let mut holes = Vec::new();
        let mut at = u64::from(start);
        let end = u64::from(end);
        for piece in &self.pieces {
            if at >= end {
                break;
            }
            let from = u64::from(piece.offset);
            if from > at {
                holes.push((at as u32, (from.min(end) - at) as u32));
            }
            at = at.max(piece.end());
        }
        if at < end {
            holes.push((at as u32, (end - at) as u32));
        }
        holes
    }

    /// Bytes that were copied to coalesce small pieces.
    pub(crate) fn copied_bytes(&self) -> u32 {
        self.copied
    }

    /// Takes all data, in order.
    pub(crate) fn take(&mut self) -> Vec<Bytes> {
        let bytes = |piece: Piece| match piece.stored {
            Stored::Shared(bytes) => bytes,
            Stored::Coalesced(bytes) => bytes.freeze(),
        };
        std::mem::take(&mut self.pieces).into_iter().map(bytes).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Transport::{Iser, Tcp};

    fn data(len: usize) -> Vec<Bytes> {
        vec![Bytes::from(vec![1; len])]
    }

    #[test]
    fn any_order_and_holes() {
        let mut gather = Gather::new(16384);
        gather.insert(8192, data(4096), Iser).unwrap();
        gather.insert(0, data(4096), Iser).unwrap();
        assert_eq!(gather.missing(0, 16384), [(4096, 4096), (12288, 4096)]);
        assert_eq!(gather.missing(0, 5000), [(4096, 904)]);
        assert_eq!(gather.insert(4000, data(200), Iser), Err(GatherError::Overlap));
        assert_eq!(gather.insert(12288, data(4097), Iser), Err(GatherError::PastEnd));
        gather.insert(4096, data(4096), Iser).unwrap();
        gather.insert(12288, data(4096), Iser).unwrap();
        assert!(gather.is_complete() && gather.missing(0, 16384).is_empty());
        assert_eq!(gather.take().len(), 4);
    }

    #[test]
    fn one_piece_takes_the_place_of_those_in_it() {
        let mut gather = Gather::new(16384);
        gather.insert(0, data(4096), Iser).unwrap();
        gather.insert(12288, data(4096), Iser).unwrap();
        assert!(!gather.replace_front(Bytes::from(vec![2; 13000])));
        assert!(!gather.replace_front(Bytes::from(vec![2; 16385])));
        assert!(gather.replace_front(Bytes::from(vec![2; 12288])));
        assert!(gather.is_complete());
        assert_eq!(gather.take().iter().map(Bytes::len).collect::<Vec<_>>(), [12288, 4096]);
    }

    #[test]
    fn tiny_pieces_are_copied_together_and_bounded() {
        let mut gather = Gather::new(100_000);
        for i in 0..100_000 {
            gather.insert(i, data(1), Tcp).unwrap();
        }
        assert!(gather.is_complete());
        assert_eq!(gather.copied_bytes(), 100_000);
        assert!(gather.take().len() <= 2);
        let mut backwards = Gather::new(100_000);
        let refused = (0..50_000).rev().find_map(|i| backwards.insert(i * 2, data(1), Tcp).err());
        assert_eq!(refused, Some(GatherError::TooMany));
    }

    #[test]
    fn a_write_that_waits_for_data_keeps_no_receive_buffer() {
        let receive_buffer = Bytes::from(vec![3; 128 << 10]);
        let part = |at: usize, len: usize| vec![receive_buffer.slice(at..at + len)];
        let is_kept = |piece: &Bytes| receive_buffer.as_ptr_range().contains(&piece.as_ptr());
        let kept = |gather: &mut Gather| gather.take().iter().map(is_kept).collect::<Vec<_>>();
        let mut gather = Gather::new(40960);
        gather.insert(0, part(0, 8192), Tcp).unwrap();
        gather.insert(8192, part(30_000, 8192), Tcp).unwrap();
        // It has a buffer of its own, and so has what comes over RDMA.
        gather.insert(16384, part(60_000, OWN_BUFFER_BYTES), Tcp).unwrap();
        assert!(!gather.is_complete());
        // The write begins with the last piece, and its end frees the buffer.
        gather.insert(32768, part(90_000, 8192), Tcp).unwrap();
        assert!(gather.is_complete());
        assert_eq!(gather.copied_bytes(), 16384);
        assert_eq!(kept(&mut gather), [false, true, true]);
        let mut rdma = Gather::new(40960);
        rdma.insert(0, part(0, 8192), Iser).unwrap();
        assert_eq!((rdma.copied_bytes(), kept(&mut rdma)), (0, vec![true]));
    }
}
