//! Decoder of a byte stream into iSCSI PDUs. Large data segments are received
//! directly into an aligned pool buffer, from which storage writes; small ones
//! stay in the receive buffer, which their PDUs share.

use super::limits::{HEAD_BYTES, PLACED_BYTES, RESERVED_DATA_BYTES, ROOM_BYTES, STREAM_BYTES};
use crate::net::stream::read_some;
use bytes::BytesMut;
use std::io;
use tokio::net::TcpStream;
use zgate_iscsi::framing::{Decoder, Digests, FramingError, Want};
use zgate_iscsi::pdu::{Bhs, DataOut, Frame, Opcode, Ttt};
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
        if let Some(placed) = &mut self.placed
            && placed.filled < placed.buffer.len()
        {
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

    /// Returns whether the next bytes are the data of a PDU, of which none has been taken,
    /// and which would need memory.
    pub(crate) fn is_before_data(&self) -> bool {
        if self.placed.is_some() || self.decoder.is_discarding() {
            return false;
        }
        matches!(self.decoder.wants(), Want::Data { header, taken: 0, .. } if !has_memory(header))
    }

    /// Throws the data away before which [`Self::next`] has stopped. The PDU then comes
    /// without it, and its session refuses it. Returns whether there is such data.
    pub(crate) fn discard_data(&mut self) -> bool {
        let discards = self.is_before_data();
        if discards {
            self.decoder.discard_data();
        }
        discards
    }

    /// Returns the next PDU, if it is complete. Unless `begins_data`, it stops before data
    /// of which none has been taken and that needs memory; a segment that has begun has its
    /// memory, and ends.
    ///
    /// # Errors
    /// If the stream is no longer in sync.
    pub(crate) fn next(&mut self, begins_data: bool) -> Result<Option<Frame>, FramingError> {
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
                Want::Data { remaining, .. } if self.decoder.is_discarding() => remaining,
                Want::Data { header, taken: 0, .. } if !begins_data && !has_memory(header) => {
                    return Ok(None);
                }
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

/// Returns whether there is memory for the data of a PDU: solicited data has it from its R2T
/// on, a ping and a text have the reserve of the connection.
fn has_memory(header: &Bhs) -> bool {
    match header.opcode() {
        Opcode::SCSI_COMMAND => false,
        Opcode::DATA_OUT => DataOut::parse(header).ttt != Ttt::NONE,
        _ => header.data_bytes() <= RESERVED_DATA_BYTES,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A SCSI command, which may have data.
    fn pdu(data_bytes: usize) -> Vec<u8> {
        let mut pdu = vec![0; 48 + data_bytes];
        pdu[0] = Opcode::SCSI_COMMAND.0;
        pdu[4..8].copy_from_slice(&(data_bytes as u32).to_be_bytes());
        pdu
    }

    fn receive(receiver: &mut Receiver, bytes: &[u8]) {
        receiver.chunk = BytesMut::from(bytes);
        receiver.filled = bytes.len();
    }

    fn data_bytes(frame: Option<Frame>) -> Option<usize> {
        frame.map(|frame| frame.data.iter().map(bytes::Bytes::len).sum())
    }

    #[test]
    fn no_data_is_begun_without_memory_and_what_has_begun_ends() {
        let mut receiver = Receiver::new(BufferPool::new(0));
        receiver.configure(Digests::default(), 1 << 20);
        receive(&mut receiver, &[pdu(0), pdu(4096)].concat());
        assert_eq!(data_bytes(receiver.next(false).unwrap()), Some(0));
        assert!(!receiver.is_before_data(), "it may be another one without data");
        assert_eq!(data_bytes(receiver.next(false).unwrap()), None);
        assert!(receiver.is_before_data());
        assert_eq!(data_bytes(receiver.next(true).unwrap()), Some(4096));
        // In the receive buffer.
        receive(&mut receiver, &pdu(4096)[..1000]);
        assert_eq!(data_bytes(receiver.next(true).unwrap()), None);
        assert!(!receiver.is_before_data());
        receive(&mut receiver, &pdu(4096)[1000..]);
        assert_eq!(data_bytes(receiver.next(false).unwrap()), Some(4096));
        // In a buffer of its own.
        receive(&mut receiver, &pdu(4 * PLACED_BYTES)[..1000]);
        assert_eq!(data_bytes(receiver.next(true).unwrap()), None);
        assert!(!receiver.is_before_data());
        let placed = receiver.placed.as_mut().unwrap();
        placed.filled = placed.buffer.len();
        assert_eq!(data_bytes(receiver.next(false).unwrap()), Some(4 * PLACED_BYTES));
    }

    #[test]
    fn data_of_a_write_is_thrown_away_and_what_follows_is_found() {
        let mut receiver = Receiver::new(BufferPool::new(0));
        receiver.configure(Digests::default(), 1 << 20);
        let long = 4 * PLACED_BYTES;
        receive(&mut receiver, &pdu(long)[..1000]);
        assert!(receiver.next(false).unwrap().is_none() && receiver.discard_data());
        assert!(receiver.next(false).unwrap().is_none());
        assert!(receiver.placed.is_none() && !receiver.is_before_data());
        assert_eq!((receiver.filled, receiver.decoder.buffered_bytes()), (0, 0));
        receive(&mut receiver, &[&pdu(long)[1000..], &pdu(0)[..], &pdu(4096)[..]].concat());
        let frame = receiver.next(false).unwrap().unwrap();
        assert!(frame.lacks_data());
        assert_eq!(frame.bhs.data_bytes(), long);
        assert_eq!(data_bytes(receiver.next(false).unwrap()), Some(0));
        // The next one waits again.
        assert!(receiver.next(false).unwrap().is_none() && receiver.is_before_data());
        assert_eq!(data_bytes(receiver.next(true).unwrap()), Some(4096));
    }

    #[test]
    fn solicited_data_pings_and_texts_have_their_memory() {
        let mut receiver = Receiver::new(BufferPool::new(0));
        receiver.configure(Digests::default(), 1 << 20);
        let with_opcode = |opcode: Opcode, ttt: Ttt, len: usize| {
            let mut pdu = pdu(len);
            pdu[0] = opcode.0;
            pdu[20..24].copy_from_slice(&ttt.0.to_be_bytes());
            pdu
        };
        let (usual, most) = (4096, RESERVED_DATA_BYTES);
        let with_memory = [
            with_opcode(Opcode::DATA_OUT, Ttt(7), usual),
            with_opcode(Opcode::NOP_OUT, Ttt::NONE, usual),
            with_opcode(Opcode::TEXT_REQUEST, Ttt::NONE, usual),
        ];
        receive(&mut receiver, &with_memory.concat());
        for _ in with_memory {
            assert_eq!(data_bytes(receiver.next(false).unwrap()), Some(usual));
        }
        receive(&mut receiver, &with_opcode(Opcode::NOP_OUT, Ttt::NONE, most)[..1000]);
        assert!(receiver.next(false).unwrap().is_none() && !receiver.is_before_data());
        let placed = receiver.placed.as_mut().unwrap();
        placed.filled = placed.buffer.len();
        assert_eq!(data_bytes(receiver.next(false).unwrap()), Some(most));
        // Four bytes more, since there is no padding here.
        for (opcode, len) in [(Opcode::DATA_OUT, usual), (Opcode::NOP_OUT, most + 4)] {
            receive(&mut receiver, &with_opcode(opcode, Ttt::NONE, len));
            assert!(receiver.next(false).unwrap().is_none(), "{opcode:?}");
            assert!(receiver.discard_data(), "{opcode:?}");
            assert!(receiver.next(false).unwrap().unwrap().lacks_data(), "{opcode:?}");
        }
    }
}
