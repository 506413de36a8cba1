//! Decoder of a byte stream into iSCSI PDUs. Large data segments are received
//! directly into an aligned pool buffer, from which storage writes; small ones
//! stay in the receive buffer, which their PDUs share.

use super::limits::{HEAD_BYTES, PLACED_BYTES, ROOM_BYTES, STREAM_BYTES};
use crate::net::stream::read_some;
use bytes::BytesMut;
use std::io;
use tokio::net::TcpStream;
use zgate_iscsi::framing::{Decoder, Digests, FramingError, Want};
use zgate_iscsi::pdu::Frame;
use zgate_store::{AlignedBuf, BufferPool};

/// A data segment that is received into a separate buffer.
#[derive(Debug)]
struct Placed {
    buffer: AlignedBuf,
    filled: usize,
}

/// Receiving side of one connection.
#[derive(Debug)]
pub(crate) struct Receiver {
    decoder: Decoder,
    /// Receive buffer; its first bytes are filled.
    chunk: BytesMut,
    filled: usize,
    placed: Option<Placed>,
    after_placed: bool,
    copied_bytes: usize,
    pool: BufferPool,
}

impl Receiver {
    /// Creates the receiver of a connection that has not logged in.
    pub(crate) fn new(pool: BufferPool) -> Self {
        let most = zgate_iscsi::limits::DEFAULT_RECV_SEGMENT_BYTES;
        Self {
            decoder: Decoder::new(most),
            chunk: BytesMut::new(),
            filled: 0,
            placed: None,
            after_placed: false,
            copied_bytes: 0,
            pool,
        }
    }

    /// Returns the number of data bytes copied since the last call.
    pub(crate) fn take_copied_bytes(&mut self) -> usize {
        std::mem::take(&mut self.copied_bytes)
    }

    /// Applies the negotiated parameters.
    pub(crate) fn configure(&mut self, digests: Digests, max_data_bytes: u32) {
        self.decoder.configure(digests, max_data_bytes);
    }

    /// Reads the available data without waiting. `Ok(0)`: the peer closed.
    pub(crate) fn fill(&mut self, stream: &TcpStream) -> io::Result<usize> {
        if let Some(placed) = &mut self.placed {
            let got = read_some(stream, &mut placed.buffer[placed.filled..])?;
            placed.filled += got;
            return Ok(got);
        }
        let most = if self.after_placed { HEAD_BYTES } else { STREAM_BYTES };
        self.make_room(most.min(ROOM_BYTES));
        let end = self.chunk.len().min(self.filled + most);
        let got = read_some(stream, &mut self.chunk[self.filled..end])?;
        self.filled += got;
        Ok(got)
    }

    /// Takes a new buffer if little room is left; slices of the old one stay
    /// valid.
    fn make_room(&mut self, least: usize) {
        if self.chunk.len() - self.filled < least {
            let mut chunk = BytesMut::zeroed(STREAM_BYTES.max(self.filled + least));
            chunk[..self.filled].copy_from_slice(&self.chunk[..self.filled]);
            self.chunk = chunk;
        }
    }

    /// Takes the first received bytes.
    fn take(&mut self, len: usize) -> BytesMut {
        self.filled -= len;
        self.chunk.split_to(len)
    }

    /// Returns the next PDU, if it is complete.
    ///
    /// # Errors
    /// If the stream is no longer in sync.
    pub(crate) fn next(&mut self) -> Result<Option<Frame>, FramingError> {
        loop {
            if let Some(placed) = self.placed.take() {
                if placed.filled < placed.buffer.len() {
                    self.placed = Some(placed);
                    return Ok(None);
                }
                self.decoder.feed(placed.buffer.into_bytes());
            }
            if let Some(frame) = self.decoder.poll()? {
                self.after_placed &= !frame.data.is_empty();
                return Ok(Some(frame));
            }
            let wanted = match self.decoder.wants() {
                Want::Bytes(wanted) => wanted,
                Want::Data { remaining, taken: 0, .. } if remaining >= PLACED_BYTES => {
                    self.place(remaining);
                    continue;
                }
                Want::Data { remaining, .. } => {
                    self.after_placed = false;
                    remaining
                }
            };
            let present = wanted.min(self.filled);
            if present == 0 {
                return Ok(None);
            }
            let bytes = self.take(present);
            self.decoder.feed(bytes.freeze());
        }
    }

    /// Prepares a buffer for a whole data segment, and moves the part already
    /// received there.
    fn place(&mut self, len: usize) {
        let mut buffer = self.pool.take(len);
        let present = len.min(self.filled);
        buffer[..present].copy_from_slice(&self.take(present));
        self.copied_bytes += present;
        self.placed = Some(Placed { buffer, filled: present });
        self.after_placed = true;
    }
}
