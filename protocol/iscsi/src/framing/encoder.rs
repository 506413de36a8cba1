//! PDUs to lists of slices, without copying data.

use super::{Digests, pad_bytes};
use crate::pdu::Outgoing;
use bytes::{BufMut, Bytes, BytesMut};
use zgate_store::Payload;

/// Data up to this length is copied behind its header: one slice less.
const INLINE_BYTES: usize = 256;
/// Size of one allocation for headers, in bytes.
const ARENA_BYTES: usize = 16 << 10;

/// Reason why a PDU cannot be put on this stream; an error of the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// A file range has no checksum; with data digests on, the owner must
    /// supply bytes.
    #[error("a file range cannot carry a data digest")]
    SpanUnderDigest,
    /// More data than DataSegmentLength can express.
    #[error("{0} bytes do not fit in a PDU")]
    TooLong(usize),
}

/// The sending half of one connection's framing.
#[derive(Debug, Default)]
pub struct Encoder {
    digests: Digests,
    arena: BytesMut,
}

impl Encoder {
    /// An encoder at the start of a stream, without digests.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Changes digests from the next PDU on.
    pub fn configure(&mut self, digests: Digests) {
        self.digests = digests;
    }

    /// Appends the slices of one PDU to `pieces`, in order.
    ///
    /// # Errors
    /// See [`EncodeError`]; nothing is appended in that case.
    pub fn encode(&mut self, pdu: Outgoing, pieces: &mut Vec<Payload>) -> Result<(), EncodeError> {
        let len = pdu.data_bytes();
        if len >= 1 << 24 {
            return Err(EncodeError::TooLong(len));
        }
        let is_span = |payload: &Payload| matches!(payload, Payload::Span(_));
        let has_span = pdu.data.iter().any(is_span);
        if self.digests.data && has_span {
            return Err(EncodeError::SpanUnderDigest);
        }
        if self.arena.capacity() < 48 + pdu.ahs.len() + 8 + INLINE_BYTES + 8 {
            self.arena = BytesMut::with_capacity(ARENA_BYTES);
        }
        self.put_header(&pdu, len);
        if len == 0 {
            pieces.push(Payload::Bytes(self.arena.split().freeze()));
            return Ok(());
        }
        let mut crc = 0;
        if self.digests.data {
            for payload in &pdu.data {
                if let Payload::Bytes(bytes) = payload {
                    crc = crc32c::crc32c_append(crc, bytes);
                }
            }
        }
        if len <= INLINE_BYTES && !has_span {
            for payload in &pdu.data {
                if let Payload::Bytes(bytes) = payload {
                    self.arena.put_slice(bytes);
                }
            }
            self.put_trailer(len, crc);
            pieces.push(Payload::Bytes(self.arena.split().freeze()));
            return Ok(());
        }
        pieces.push(Payload::Bytes(self.arena.split().freeze()));
        pieces.extend(pdu.data);
        self.put_trailer(len, crc);
        let trailer: Bytes = self.arena.split().freeze();
        if !trailer.is_empty() {
            pieces.push(Payload::Bytes(trailer));
        }
        Ok(())
    }

    fn put_header(&mut self, pdu: &Outgoing, data_bytes: usize) {
        let mut bhs = pdu.bhs;
        bhs.set_data_bytes(data_bytes);
        bhs.set_ahs_bytes(pdu.ahs.len());
        self.arena.put_slice(&bhs.0);
        self.arena.put_slice(&pdu.ahs);
        if self.digests.header {
            self.arena.put_u32_le(crc32c::crc32c_append(crc32c::crc32c(&bhs.0), &pdu.ahs));
        }
    }

    fn put_trailer(&mut self, data_bytes: usize, crc: u32) {
        let padding = &[0; 3][..pad_bytes(data_bytes)];
        self.arena.put_slice(padding);
        if self.digests.data {
            self.arena.put_u32_le(crc32c::crc32c_append(crc, padding));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pdu::{Bhs, Opcode};
    use std::sync::Arc;
    use zgate_store::FileSpan;

    #[test]
    fn long_data_keeps_its_memory() {
        let data = Bytes::from(vec![7; 1001]);
        let mut pieces = Vec::new();
        Encoder::new()
            .encode(Outgoing::with_bytes(Bhs::new(Opcode::DATA_IN), data.clone()), &mut pieces)
            .unwrap();
        let [_, Payload::Bytes(sent), Payload::Bytes(pad)] = pieces.as_slice() else {
            panic!("three slices")
        };
        assert_eq!((sent.as_ptr(), pad.len()), (data.as_ptr(), 3));
    }

    #[test]
    fn a_file_range_passes_only_without_data_digest() {
        let span = Payload::Span(FileSpan { file: Arc::new(()), offset: 0, len: 4096 });
        let pdu = Outgoing::with_payload(Bhs::new(Opcode::DATA_IN), vec![span]);
        let mut encoder = Encoder::new();
        let mut pieces = Vec::new();
        encoder.encode(pdu.clone(), &mut pieces).unwrap();
        assert_eq!(pieces.len(), 2);
        encoder.configure(Digests { header: false, data: true });
        assert_eq!(encoder.encode(pdu, &mut pieces), Err(EncodeError::SpanUnderDigest));
    }

    #[test]
    fn the_digest_of_rfc_7143_appendix_a_matches() {
        // RFC 7143 §13.1 refers to the CRC32C test patterns of RFC 3720 B.4:
        // 32 zero bytes give aa 36 91 8a on the wire.
        assert_eq!(crc32c::crc32c(&[0; 32]).to_le_bytes(), [0xaa, 0x36, 0x91, 0x8a]);
        assert_eq!(crc32c::crc32c(&[0xff; 32]).to_le_bytes(), [0x43, 0xab, 0xa8, 0x62]);
    }
}
