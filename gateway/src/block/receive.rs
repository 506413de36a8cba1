//! From a byte stream to iSCSI PDUs. Large data segments are received straight
//! into an aligned pool buffer, where storage takes them from; small ones stay
//! where they arrived, and their PDUs share one read.

use super::limits::{HEAD_BYTES, PLACED_BYTES, STREAM_BYTES};
use bytes::BytesMut;
use std::io;
use tokio::net::TcpStream;
use zgate_iscsi::framing::{Decoder, Digests, FramingError, Want};
use zgate_iscsi::pdu::Frame;
use zgate_store::{AlignedBuf, BufferPool};

/// A data segment on its way into a buffer of its own.
#[derive(Debug)]
struct Placed {
    buffer: AlignedBuf,
    filled: usize,
}

/// The receiving side of one connection.
#[derive(Debug)]
pub(crate) struct Receiver {
    decoder: Decoder,
    stream: BytesMut,
    placed: Option<Placed>,
    after_placed: bool,
    pool: BufferPool,
}

impl Receiver {
    /// For a connection that has not logged in.
    pub(crate) fn new(pool: BufferPool) -> Self {
        let most = zgate_iscsi::limits::DEFAULT_RECV_SEGMENT_BYTES;
        Self {
            decoder: Decoder::new(most),
            stream: BytesMut::new(),
            placed: None,
            after_placed: false,
            pool,
        }
    }

    /// What login agreed.
    pub(crate) fn configure(&mut self, digests: Digests, max_data_bytes: u32) {
        self.decoder.configure(digests, max_data_bytes);
    }

    /// Reads what is there without waiting. `Ok(0)`: the peer closed.
    pub(crate) fn fill(&mut self, stream: &TcpStream) -> io::Result<usize> {
        if let Some(placed) = &mut self.placed {
            let got = stream.try_read(&mut placed.buffer[placed.filled..])?;
            placed.filled += got;
            return Ok(got);
        }
        let most = if self.after_placed { HEAD_BYTES } else { STREAM_BYTES };
        self.stream.reserve(most);
        let start = self.stream.len();
        self.stream.resize(start + most, 0);
        let got = stream.try_read(&mut self.stream[start..]);
        self.stream.truncate(start + got.as_ref().map_or(0, |got| *got));
        got
    }

    /// The next PDU, when it is complete.
    ///
    /// # Errors
    /// The stream cannot be followed any more.
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
            let present = wanted.min(self.stream.len());
            if present == 0 {
                return Ok(None);
            }
            self.decoder.feed(self.stream.split_to(present).freeze());
        }
    }

    /// Prepares a buffer for a whole data segment; what came of it already is
    /// moved there.
    fn place(&mut self, len: usize) {
        let mut buffer = self.pool.take(len);
        let present = len.min(self.stream.len());
        buffer[..present].copy_from_slice(&self.stream.split_to(present));
        self.placed = Some(Placed { buffer, filled: present });
        self.after_placed = true;
    }
}
