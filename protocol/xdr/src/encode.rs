//! XDR encoder. File data never enters the encoder's buffer: it is kept as a
//! separate segment between two runs of encoded bytes.
//!
//! Functions that write a word or a few bytes are inlined into other crates, as in the decoder.

use crate::decode::padding;
use bytes::{Bytes, BytesMut};
use zgate_store::Payload;

/// Fewest encoded bytes that are worth a segment of their own: fewer are copied.
const MIN_SHARED_BYTES: usize = 8 << 10;

/// A type that can be written as XDR.
pub trait Encode {
    /// Writes the value.
    fn encode(&self, e: &mut Encoder);
}

/// One piece of an encoded message.
#[derive(Clone, Debug)]
pub enum Segment {
    /// Encoded bytes.
    Bytes(Bytes),
    /// Bulk data, sent without a copy.
    Payload(Payload),
}

impl Segment {
    /// Returns the length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Payload(payload) => payload.len(),
        }
    }

    /// Returns whether the segment is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A result that a transport may place directly into the requester's memory
/// (RFC 8166 §3.4.2). An empty result counts as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Direct {
    /// Offset in the message of its first byte, behind its length word.
    pub offset: usize,
    /// Length in bytes, without padding.
    pub len: usize,
}

/// An encoded message: segments to be sent one after the other. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Message {
    /// Segments in order.
    pub segments: Vec<Segment>,
    /// Results that may be placed directly, in order.
    pub direct: Vec<Direct>,
}

impl From<Bytes> for Message {
    fn from(bytes: Bytes) -> Self {
        Self { segments: vec![Segment::Bytes(bytes)], direct: Vec::new() }
    }
}

impl Message {
    /// Puts encoded bytes before the message.
    pub fn prepend(&mut self, head: Bytes) {
        for item in &mut self.direct {
            *item = item.behind(head.len());
        }
        self.segments.insert(0, Segment::Bytes(head));
    }

    /// Appends another message.
    pub fn extend(&mut self, more: Self) {
        let at = self.len();
        self.direct.extend(more.direct.iter().map(|item| item.behind(at)));
        self.segments.extend(more.segments);
    }

    /// Returns the total length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.segments.iter().map(Segment::len).sum()
    }

    /// Returns the bytes of bulk data.
    #[must_use]
    pub fn payload_bytes(&self) -> usize {
        let of = |segment: &Segment| match segment {
            Segment::Bytes(_) => 0,
            Segment::Payload(payload) => payload.len(),
        };
        self.segments.iter().map(of).sum()
    }

    /// Returns whether the message is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns a copy to be kept: in memory of its own and exact length, so that no
    /// larger buffer stays allocated for it; `None` if the message contains a file
    /// span, whose file may change.
    #[must_use]
    pub fn compacted(&self) -> Option<Self> {
        Some(Self { direct: self.direct.clone(), ..Self::from(self.copied()?) })
    }

    /// Returns the message in one piece, for tests and small messages; `None`
    /// if it contains a file span.
    #[must_use]
    pub fn flatten(&self) -> Option<Bytes> {
        if let [Segment::Bytes(only)] = self.segments.as_slice() {
            return Some(only.clone());
        }
        self.copied()
    }

    /// Returns a copy of the bytes; `None` if some lie in a file.
    fn copied(&self) -> Option<Bytes> {
        let mut out = Vec::with_capacity(self.len());
        for segment in &self.segments {
            match segment {
                Segment::Bytes(bytes) | Segment::Payload(Payload::Bytes(bytes)) => {
                    out.extend_from_slice(bytes);
                }
                Segment::Payload(Payload::Span(_)) => return None,
            }
        }
        Some(out.into())
    }
}

impl Direct {
    fn behind(self, bytes: usize) -> Self {
        Self { offset: bytes + self.offset, len: self.len }
    }
}

/// A position in an encoder that can be rolled back to.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    segments: usize,
    buffered: usize,
}

/// Segments of a reply with bulk data: the header of the call, the bytes before the data,
/// the data, the bytes behind it.
const USUAL_SEGMENTS: usize = 4;

/// Builds one message.
#[derive(Clone, Debug, Default)]
pub struct Encoder {
    segments: Vec<Segment>,
    direct: Vec<Direct>,
    // A `BytesMut` would take three times the instructions for a word.
    buffer: Vec<u8>,
    flushed_bytes: usize,
}

impl Encoder {
    /// Creates an empty encoder.
    #[must_use]
    pub fn new() -> Self {
        Self::with_capacity(512)
    }

    /// Creates an empty encoder with room for `capacity` bytes.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        let buffer = Vec::with_capacity(capacity);
        Self { segments: Vec::new(), direct: Vec::new(), buffer, flushed_bytes: 0 }
    }

    /// Returns the number of bytes written so far, bulk data included.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.flushed_bytes + self.buffer.len()
    }

    /// Returns whether nothing was written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns a mark of the present position.
    #[must_use]
    pub fn mark(&self) -> Mark {
        Mark { segments: self.segments.len(), buffered: self.buffer.len() }
    }

    /// Removes everything written after `mark`, bulk data included.
    pub fn rollback(&mut self, mark: Mark) {
        if self.segments.len() > mark.segments {
            // The bytes before the mark were moved to a segment in front of
            // bulk data: move them back into the buffer.
            let flushed = self.segments.split_off(mark.segments);
            self.flushed_bytes = self.segments.iter().map(Segment::len).sum();
            self.buffer.clear();
            if let Some(Segment::Bytes(bytes)) = flushed.first() {
                self.buffer.extend_from_slice(&bytes[..mark.buffered.min(bytes.len())]);
            }
        }
        self.buffer.truncate(mark.buffered);
        // An empty result may end at the mark; one behind it has at least its
        // length word there.
        let left = self.len();
        self.direct.retain(|item| item.offset <= left);
    }

    /// Overwrites the word at `mark`, a placeholder written before.
    pub fn patch_u32(&mut self, mark: Mark, value: u32) {
        debug_assert_eq!(mark.segments, self.segments.len(), "patch across bulk data");
        self.buffer[mark.buffered..mark.buffered + 4].copy_from_slice(&value.to_be_bytes());
    }

    /// Overwrites words of the message's beginning, placeholders that were written before any
    /// bulk data: each is given with its offset in bytes.
    pub fn patch_head(&mut self, words: &[(usize, u32)]) {
        let patch = |head: &mut [u8]| {
            for (at, value) in words {
                head[*at..*at + 4].copy_from_slice(&value.to_be_bytes());
            }
        };
        match self.segments.first_mut() {
            None => patch(&mut self.buffer),
            Some(Segment::Bytes(head)) => {
                // As a rule nobody else has it, and it is not copied.
                let own = std::mem::take(head).try_into_mut();
                let mut own = own.unwrap_or_else(|shared| BytesMut::from(&shared[..]));
                patch(&mut own);
                *head = own.freeze();
            }
            Some(Segment::Payload(_)) => debug_assert!(false, "bulk data has no placeholders"),
        }
    }

    /// Writes an unsigned integer.
    #[inline]
    pub fn u32(&mut self, value: u32) {
        self.buffer.extend_from_slice(&value.to_be_bytes());
    }

    /// Writes an unsigned hyper integer.
    #[inline]
    pub fn u64(&mut self, value: u64) {
        self.buffer.extend_from_slice(&value.to_be_bytes());
    }

    /// Writes raw bytes without padding.
    #[inline]
    pub fn raw(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Writes raw bytes without padding, and without a copy if they are many.
    pub fn shared(&mut self, bytes: &Bytes) {
        if bytes.len() < MIN_SHARED_BYTES {
            return self.raw(bytes);
        }
        self.flush();
        self.flushed_bytes += bytes.len();
        self.push(Segment::Bytes(bytes.clone()));
    }

    /// Writes fixed-length opaque data with padding.
    #[inline]
    pub fn opaque_fixed(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
        self.pad(bytes.len());
    }

    #[inline]
    fn pad(&mut self, len: usize) {
        self.buffer.extend_from_slice(&[0; 3][..padding(len)]);
    }

    /// Writes variable-length opaque data.
    #[inline]
    pub fn opaque(&mut self, bytes: &[u8]) {
        self.u32(bytes.len() as u32);
        self.opaque_fixed(bytes);
    }

    /// Writes variable-length bulk data, kept as a separate segment.
    pub fn bulk(&mut self, payload: Payload) {
        let len = payload.len();
        self.u32(len as u32);
        if len > 0 {
            self.flush();
            self.flushed_bytes += len;
            self.push(Segment::Payload(payload));
        }
        self.pad(len);
    }

    /// Writes bulk data that may be placed directly.
    pub fn direct_bulk(&mut self, payload: Payload) {
        self.note_direct(payload.len());
        self.bulk(payload);
    }

    /// Writes variable-length opaque data that may be placed directly.
    pub fn direct_opaque(&mut self, bytes: &[u8]) {
        self.note_direct(bytes.len());
        self.opaque(bytes);
    }

    fn note_direct(&mut self, len: usize) {
        let offset = self.len() + size_of::<u32>();
        self.direct.push(Direct { offset, len });
    }

    /// Writes a counted array.
    pub fn array<T: Encode>(&mut self, items: &[T]) {
        self.u32(items.len() as u32);
        for item in items {
            item.encode(self);
        }
    }

    /// Appends a finished message.
    pub fn append(&mut self, message: &Message) {
        let at = self.len();
        self.direct.extend(message.direct.iter().map(|item| item.behind(at)));
        for segment in &message.segments {
            match segment {
                Segment::Bytes(bytes) => self.shared(bytes),
                Segment::Payload(payload) => {
                    self.flush();
                    self.flushed_bytes += payload.len();
                    self.push(Segment::Payload(payload.clone()));
                }
            }
        }
    }

    fn flush(&mut self) {
        if !self.buffer.is_empty() {
            let bytes = Bytes::from(std::mem::take(&mut self.buffer));
            self.flushed_bytes += bytes.len();
            self.push(Segment::Bytes(bytes));
        }
    }

    fn push(&mut self, segment: Segment) {
        if self.segments.is_empty() {
            self.segments.reserve_exact(USUAL_SEGMENTS);
        }
        self.segments.push(segment);
    }

    /// Returns the finished message.
    #[must_use]
    pub fn finish(mut self) -> Message {
        if !self.buffer.is_empty() {
            let rest = Bytes::from(std::mem::take(&mut self.buffer));
            self.push(Segment::Bytes(rest));
        }
        Message { segments: self.segments, direct: self.direct }
    }

    /// Returns the bytes of a message without bulk data; `None` if it has some.
    #[must_use]
    pub fn finish_bytes(self) -> Option<Bytes> {
        self.into_vec().map(Bytes::from)
    }

    /// Returns the same as they were written, without a copy.
    #[must_use]
    pub fn into_vec(self) -> Option<Vec<u8>> {
        self.segments.is_empty().then_some(self.buffer)
    }
}

impl Encode for u32 {
    #[inline]
    fn encode(&self, e: &mut Encoder) {
        e.u32(*self);
    }
}

impl Encode for i32 {
    #[inline]
    fn encode(&self, e: &mut Encoder) {
        e.u32(*self as u32);
    }
}

impl Encode for u64 {
    #[inline]
    fn encode(&self, e: &mut Encoder) {
        e.u64(*self);
    }
}

impl Encode for i64 {
    #[inline]
    fn encode(&self, e: &mut Encoder) {
        e.u64(*self as u64);
    }
}

impl Encode for bool {
    #[inline]
    fn encode(&self, e: &mut Encoder) {
        e.u32(u32::from(*self));
    }
}

impl Encode for () {
    fn encode(&self, _: &mut Encoder) {}
}

impl<T: Encode> Encode for Option<T> {
    fn encode(&self, e: &mut Encoder) {
        self.is_some().encode(e);
        if let Some(value) = self {
            value.encode(e);
        }
    }
}

impl<const N: usize> Encode for [u8; N] {
    fn encode(&self, e: &mut Encoder) {
        e.opaque_fixed(self);
    }
}

impl<T: Encode> Encode for &T {
    fn encode(&self, e: &mut Encoder) {
        (*self).encode(e);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_comes_before_a_message_and_moves_what_is_placed_directly() {
        let mut e = Encoder::new();
        e.u32(7);
        e.direct_bulk(Payload::Bytes(Bytes::from_static(b"data")));
        let mut message = e.finish();
        let mut head = Encoder::with_capacity(8);
        head.u64(1);
        message.prepend(head.finish_bytes().unwrap());
        let all = message.flatten().unwrap();
        assert_eq!(all[..], [0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 7, 0, 0, 0, 4, 100, 97, 116, 97]);
        assert_eq!(message.direct, [Direct { offset: 16, len: 4 }]);
    }

    #[test]
    fn many_encoded_bytes_are_shared_and_few_copied() {
        let many = Bytes::from(vec![5; MIN_SHARED_BYTES]);
        let mut e = Encoder::new();
        e.u32(1);
        let mark = e.mark();
        e.shared(&many);
        e.rollback(mark);
        e.shared(&Bytes::from_static(b"few!"));
        e.shared(&many);
        e.u32(2);
        let message = e.finish();
        assert_eq!(message.segments.len(), 3);
        let Segment::Bytes(shared) = &message.segments[1] else { panic!("a payload") };
        assert_eq!(shared.as_ptr(), many.as_ptr());
        let expected = [&[0, 0, 0, 1][..], b"few!", &many, &[0, 0, 0, 2]].concat();
        assert_eq!(message.flatten().unwrap(), expected);
        let mut outer = Encoder::new();
        outer.append(&message);
        assert_eq!(outer.len(), expected.len());
        assert_eq!(outer.finish().flatten().unwrap(), expected);
    }

    #[test]
    fn the_beginning_is_patched_also_before_bulk_data() {
        for has_bulk in [false, true] {
            let mut e = Encoder::new();
            for word in [1, 2, 3] {
                e.u32(word);
            }
            if has_bulk {
                e.bulk(Payload::Bytes(Bytes::from_static(b"data")));
            }
            let sharing = e.clone();
            e.patch_head(&[(0, 7), (8, 9)]);
            let before = sharing.finish().flatten().unwrap();
            assert_eq!(before[..12], [0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3]);
            e.patch_head(&[(4, 8)]);
            let after = e.finish().flatten().unwrap();
            assert_eq!(after[..12], [0, 0, 0, 7, 0, 0, 0, 8, 0, 0, 0, 9]);
            assert_eq!(after[12..], before[12..]);
        }
    }

    #[test]
    fn bulk_data_does_not_become_plain_bytes() {
        let mut e = Encoder::new();
        e.bulk(Payload::Bytes(Bytes::from_static(b"data")));
        assert!(e.clone().into_vec().is_none() && e.finish_bytes().is_none());
        let mut words = Encoder::new();
        words.u32(7);
        assert_eq!(words.into_vec(), Some(vec![0, 0, 0, 7]));
    }
}
