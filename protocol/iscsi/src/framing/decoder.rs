//! Bytes to PDUs, incrementally and without copying data.

use super::{Digests, pad_bytes};
use crate::limits::{BHS_BYTES, MAX_AHS_BYTES};
use crate::pdu::{Bhs, Frame};
use bytes::{Buf, Bytes, BytesMut};
use std::collections::VecDeque;

/// Reason why the stream cannot continue. The connection must be closed in each
/// case: the start of the next PDU is unknown, or the peer violates the
/// negotiated limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FramingError {
    /// Header digest mismatch: the length cannot be trusted, so the next PDU
    /// cannot be found (RFC 7143 §7.8).
    #[error("header digest error")]
    HeaderDigest,
    /// More additional header bytes than any supported PDU needs.
    #[error("{0} bytes of additional header")]
    HeaderTooLong(usize),
    /// More data than the declared MaxRecvDataSegmentLength.
    #[error("{0} bytes of data exceed the declared maximum")]
    DataTooLong(usize),
}

/// Input that the decoder can use next; allows a reader to place large data
/// well.
#[derive(Debug, PartialEq, Eq)]
pub enum Want<'a> {
    /// At least this many more bytes until something can be decoded.
    Bytes(usize),
    /// The rest of a data segment: reading exactly `remaining` bytes into one
    /// aligned buffer and feeding it keeps them together. ITT, TTT and buffer
    /// offset are in `header`.
    Data {
        /// The header of the PDU that the data belongs to.
        header: &'a Bhs,
        /// Bytes of the segment already taken.
        taken: usize,
        /// Bytes of the segment still to come.
        remaining: usize,
    },
}

#[derive(Debug)]
enum State {
    Header,
    Extra { bhs: Bhs },
    Data { bhs: Bhs, ahs: Bytes, data: Vec<Bytes>, taken: usize, crc: u32 },
    Trailer { bhs: Bhs, ahs: Bytes, data: Vec<Bytes>, crc: u32 },
    Failed(FramingError),
}

/// The receiving half of one connection's framing.
#[derive(Debug)]
pub struct Decoder {
    digests: Digests,
    max_data_bytes: usize,
    chunks: VecDeque<Bytes>,
    buffered: usize,
    /// The data of the present PDU is not kept.
    discards: bool,
    state: State,
}

impl Decoder {
    /// A decoder at the start of a stream, without digests, that accepts
    /// `max_data_bytes` of data in a PDU.
    #[must_use]
    pub fn new(max_data_bytes: u32) -> Self {
        Self {
            digests: Digests::default(),
            max_data_bytes: max_data_bytes as usize,
            chunks: VecDeque::new(),
            buffered: 0,
            discards: false,
            state: State::Header,
        }
    }

    /// Changes digests and the data limit from the next PDU on: call it when
    /// login has finished, before anything more is decoded.
    pub fn configure(&mut self, digests: Digests, max_data_bytes: u32) {
        self.digests = digests;
        self.max_data_bytes = max_data_bytes as usize;
    }

    /// Bytes fed and not yet decoded.
    #[must_use]
    pub fn buffered_bytes(&self) -> usize {
        self.buffered
    }

    /// Takes bytes from the stream. Drain [`Self::poll`] after each call.
    pub fn feed(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.buffered += bytes.len();
            self.chunks.push_back(bytes);
        }
    }

    /// Throws away what is still to come of the present data segment: the PDU comes
    /// without it ([`Frame::lacks_data`]). The digest is checked all the same.
    pub fn discard_data(&mut self) {
        if let State::Data { data, .. } = &mut self.state {
            data.clear();
            self.discards = true;
        }
    }

    /// True if the data segment that has begun is thrown away.
    #[must_use]
    pub fn is_discarding(&self) -> bool {
        self.discards
    }

    /// The most useful next input, once [`Self::poll`] returned nothing.
    #[must_use]
    pub fn wants(&self) -> Want<'_> {
        let needed = match &self.state {
            State::Header => BHS_BYTES,
            State::Extra { bhs } => bhs.ahs_bytes() + self.header_digest_bytes(),
            State::Data { bhs, taken, .. } => {
                let remaining = bhs.data_bytes().saturating_sub(*taken);
                return Want::Data { header: bhs, taken: *taken, remaining };
            }
            State::Trailer { bhs, .. } => self.trailer_bytes(bhs),
            State::Failed(_) => 0,
        };
        Want::Bytes(needed.saturating_sub(self.buffered))
    }

    /// The next PDU, or nothing until more bytes come.
    ///
    /// # Errors
    /// See [`FramingError`]; all later calls return the same error.
    pub fn poll(&mut self) -> Result<Option<Frame>, FramingError> {
        match self.advance() {
            Err(error) => {
                self.state = State::Failed(error);
                self.chunks.clear();
                self.buffered = 0;
                Err(error)
            }
            ok => ok,
        }
    }

    fn advance(&mut self) -> Result<Option<Frame>, FramingError> {
        loop {
            match &mut self.state {
                State::Failed(error) => return Err(*error),
                State::Header => {
                    let mut header = [0; BHS_BYTES];
                    if !self.copy_out(&mut header) {
                        return Ok(None);
                    }
                    let bhs = Bhs(header);
                    if bhs.ahs_bytes() > MAX_AHS_BYTES {
                        return Err(FramingError::HeaderTooLong(bhs.ahs_bytes()));
                    }
                    self.state = State::Extra { bhs };
                }
                State::Extra { bhs } => {
                    let bhs = *bhs;
                    let Some(ahs) = self.take_extra(&bhs)? else { return Ok(None) };
                    if bhs.data_bytes() > self.max_data_bytes {
                        return Err(FramingError::DataTooLong(bhs.data_bytes()));
                    }
                    self.state = State::Data { bhs, ahs, data: Vec::new(), taken: 0, crc: 0 };
                }
                State::Data { bhs, ahs, data, taken, crc } => {
                    while *taken < bhs.data_bytes() {
                        let Some(front) = self.chunks.front_mut() else { return Ok(None) };
                        let piece = front.split_to(front.len().min(bhs.data_bytes() - *taken));
                        if front.is_empty() {
                            self.chunks.pop_front();
                        }
                        if self.digests.data {
                            *crc = crc32c::crc32c_append(*crc, &piece);
                        }
                        self.buffered -= piece.len();
                        *taken += piece.len();
                        if !self.discards {
                            data.push(piece);
                        }
                    }
                    self.discards = false;
                    let (bhs, ahs, data, crc) =
                        (*bhs, std::mem::take(ahs), std::mem::take(data), *crc);
                    self.state = State::Trailer { bhs, ahs, data, crc };
                }
                State::Trailer { bhs, ahs, data, crc } => {
                    let (bhs, ahs, data, crc) =
                        (*bhs, std::mem::take(ahs), std::mem::take(data), *crc);
                    let Some(data_digest_ok) = self.take_trailer(&bhs, crc) else {
                        self.state = State::Trailer { bhs, ahs, data, crc };
                        return Ok(None);
                    };
                    self.state = State::Header;
                    return Ok(Some(Frame { bhs, ahs, data, data_digest_ok }));
                }
            }
        }
    }

    fn header_digest_bytes(&self) -> usize {
        if self.digests.header { 4 } else { 0 }
    }

    fn trailer_bytes(&self, bhs: &Bhs) -> usize {
        match bhs.data_bytes() {
            0 => 0,
            len => pad_bytes(len) + if self.digests.data { 4 } else { 0 },
        }
    }

    /// Takes the additional headers and checks the header digest.
    fn take_extra(&mut self, bhs: &Bhs) -> Result<Option<Bytes>, FramingError> {
        let total = bhs.ahs_bytes() + self.header_digest_bytes();
        if total == 0 {
            return Ok(Some(Bytes::new()));
        }
        if self.buffered < total {
            return Ok(None);
        }
        let mut extra = BytesMut::zeroed(total);
        self.copy_out(&mut extra);
        let ahs = extra.split_to(bhs.ahs_bytes()).freeze();
        if let Some(digest) = extra.first_chunk::<4>() {
            // RFC 7143 §13.1: the digest travels least significant byte first.
            let crc = crc32c::crc32c_append(crc32c::crc32c(&bhs.0), &ahs);
            if u32::from_le_bytes(*digest) != crc {
                return Err(FramingError::HeaderDigest);
            }
        }
        Ok(Some(ahs))
    }

    /// Takes padding and data digest; returns whether the digest matched.
    fn take_trailer(&mut self, bhs: &Bhs, crc: u32) -> Option<bool> {
        let total = self.trailer_bytes(bhs);
        if total == 0 {
            return Some(true);
        }
        let mut trailer = [0; 8];
        let trailer = trailer.get_mut(..total)?;
        if !self.copy_out(trailer) {
            return None;
        }
        let (padding, digest) = trailer.split_at(pad_bytes(bhs.data_bytes()));
        Some(match digest.first_chunk::<4>() {
            Some(digest) => u32::from_le_bytes(*digest) == crc32c::crc32c_append(crc, padding),
            None => true,
        })
    }

    /// Copies a few bytes out of the stream, all or none.
    fn copy_out(&mut self, out: &mut [u8]) -> bool {
        if self.buffered < out.len() {
            return false;
        }
        self.buffered -= out.len();
        let mut filled = 0;
        while filled < out.len() {
            let Some(front) = self.chunks.front_mut() else { return false };
            let n = front.len().min(out.len() - filled);
            front.copy_to_slice(&mut out[filled..filled + n]);
            filled += n;
            if front.is_empty() {
                self.chunks.pop_front();
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::Encoder;
    use super::*;
    use crate::pdu::{DataOut, Itt, Lun, Ttt};
    use crate::serial::Sn;
    use zgate_store::Payload;

    fn wire(digests: Digests, len: usize) -> Vec<u8> {
        let pdu = DataOut {
            is_final: true,
            lun: Lun(0),
            itt: Itt(1),
            ttt: Ttt(2),
            exp_stat_sn: Sn(3),
            data_sn: 0,
            offset: 512,
        };
        let mut pieces = Vec::new();
        let data: Vec<u8> = (0..len).map(|i| i as u8).collect();
        let mut encoder = Encoder::new();
        encoder.configure(digests);
        encoder.encode(pdu.encode(data.into()), &mut pieces).unwrap();
        let bytes = |p: &Payload| match p {
            Payload::Bytes(b) => b.to_vec(),
            Payload::Span(_) => unreachable!(),
        };
        pieces.iter().flat_map(bytes).collect()
    }

    fn decoder(digests: Digests) -> Decoder {
        let mut decoder = Decoder::new(1 << 20);
        decoder.configure(digests, 1 << 20);
        decoder
    }

    #[test]
    fn any_split_decodes_the_same() {
        for (header, data) in [(false, false), (true, false), (false, true), (true, true)] {
            let digests = Digests { header, data };
            for len in [0, 1, 3, 4, 1000] {
                let stream = Bytes::from(wire(digests, len));
                for step in [1, 7, 48, 4096] {
                    let mut decoder = decoder(digests);
                    let mut got = None;
                    for at in (0..stream.len()).step_by(step) {
                        decoder.feed(stream.slice(at..stream.len().min(at + step)));
                        got = got.or(decoder.poll().unwrap());
                    }
                    let frame = got.expect("a whole PDU was fed");
                    assert!(frame.data_digest_ok);
                    assert_eq!(frame.contiguous_data().len(), len);
                    assert_eq!(decoder.buffered_bytes(), 0);
                }
            }
        }
    }

    #[test]
    fn data_is_not_copied_and_the_destination_is_told() {
        let stream = Bytes::from(wire(Digests::default(), 4096));
        let mut decoder = decoder(Digests::default());
        decoder.feed(stream.slice(..48));
        assert!(decoder.poll().unwrap().is_none());
        let Want::Data { header, taken: 0, remaining: 4096 } = decoder.wants() else {
            panic!("wants data")
        };
        assert_eq!(DataOut::parse(header).offset, 512);
        let body = stream.slice(48..);
        decoder.feed(body.clone());
        let frame = decoder.poll().unwrap().unwrap();
        assert_eq!(frame.data[0].as_ptr(), body.as_ptr());
    }

    #[test]
    fn data_can_be_thrown_away() {
        let digests = Digests { header: false, data: true };
        let stream = Bytes::from([wire(digests, 1000), wire(digests, 10)].concat());
        let mut decoder = decoder(digests);
        decoder.feed(stream.slice(..48));
        assert!(decoder.poll().unwrap().is_none());
        decoder.discard_data();
        decoder.feed(stream.slice(48..500));
        assert!(decoder.poll().unwrap().is_none() && decoder.is_discarding());
        assert_eq!(decoder.buffered_bytes(), 0);
        decoder.feed(stream.slice(500..));
        let frame = decoder.poll().unwrap().unwrap();
        assert!(frame.lacks_data() && frame.data_digest_ok);
        assert_eq!((frame.data_bytes(), frame.bhs.data_bytes()), (0, 1000));
        let next = decoder.poll().unwrap().unwrap();
        assert!(!next.lacks_data() && !decoder.is_discarding());
        assert_eq!(next.data_bytes(), 10);
    }

    #[test]
    fn digest_errors_are_told_apart() {
        let digests = Digests { header: true, data: true };
        let mut bytes = wire(digests, 10);
        bytes[20] ^= 1;
        let mut one = decoder(digests);
        one.feed(bytes.clone().into());
        assert_eq!(one.poll().unwrap_err(), FramingError::HeaderDigest);
        assert_eq!(one.poll().unwrap_err(), FramingError::HeaderDigest);
        bytes[20] ^= 1;
        bytes[55] ^= 1;
        let mut two = decoder(digests);
        two.feed(bytes.into());
        assert!(!two.poll().unwrap().unwrap().data_digest_ok);
    }

    #[test]
    fn too_long_is_refused_before_it_is_received() {
        let mut decoder = Decoder::new(512);
        decoder.feed(Bytes::from(wire(Digests::default(), 513)).slice(..48));
        assert_eq!(decoder.poll().unwrap_err(), FramingError::DataTooLong(513));
    }
}
