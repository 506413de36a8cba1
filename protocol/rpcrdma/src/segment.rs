//! Segments of a peer's memory and the chunk lists they form (RFC 8166 §4.2,
//! §4.3).

use crate::limits::{MAX_CHUNK_SEGMENTS, MAX_READ_SEGMENTS, MAX_WRITE_CHUNKS};
use std::ops::Range;
use zgate_xdr::{Decode, Decoder, Encode, Encoder, XdrError};

/// A contiguous piece of registered memory of the requester.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Segment {
    /// Steering tag (rkey) it is registered under.
    pub handle: u32,
    /// Length in bytes.
    pub length: u32,
    /// Address of its first byte.
    pub offset: u64,
}

impl Encode for Segment {
    fn encode(&self, e: &mut Encoder) {
        e.u32(self.handle);
        e.u32(self.length);
        e.u64(self.offset);
    }
}

impl Decode for Segment {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        let segment = Self { handle: d.u32()?, length: d.u32()?, offset: d.u64()? };
        // A segment does not wrap around the address space.
        if segment.offset.checked_add(u64::from(segment.length)).is_none() {
            return Err(XdrError::BadValue);
        }
        Ok(segment)
    }
}

/// A segment of the read list. Segments of one position form a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadSegment {
    /// Position of its data in the XDR stream, in bytes; the stream includes
    /// all chunks and their padding.
    pub position: u32,
    /// Memory that holds the data.
    pub target: Segment,
}

impl Encode for ReadSegment {
    fn encode(&self, e: &mut Encoder) {
        e.u32(self.position);
        self.target.encode(e);
    }
}

impl Decode for ReadSegment {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(Self { position: d.u32()?, target: Segment::decode(d)? })
    }
}

/// Memory that a responder may write one data item, or a whole reply, into.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteChunk {
    /// Segments, filled in this order.
    pub segments: Vec<Segment>,
}

impl WriteChunk {
    /// Returns the capacity in bytes.
    #[must_use]
    pub fn capacity_bytes(&self) -> u64 {
        self.segments.iter().map(|segment| u64::from(segment.length)).sum()
    }

    /// Returns the chunk with the lengths actually written, `bytes` in total:
    /// unused segments have length zero (RFC 8166 §3.4.6, §4.3.2.2).
    #[must_use]
    pub fn used(&self, bytes: usize) -> Self {
        let mut left = bytes;
        let mut take = |segment: &Segment| {
            let length = left.min(segment.length as usize);
            left -= length;
            Segment { length: length as u32, ..*segment }
        };
        Self { segments: self.segments.iter().map(&mut take).collect() }
    }
}

impl Encode for WriteChunk {
    fn encode(&self, e: &mut Encoder) {
        e.array(&self.segments);
    }
}

impl Decode for WriteChunk {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(Self { segments: d.array(MAX_CHUNK_SEGMENTS)? })
    }
}

/// The three chunk lists of every call and reply (RFC 8166 §4.3).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chunks {
    /// Memory that the responder reads.
    pub reads: Vec<ReadSegment>,
    /// One chunk for each result that may be written directly.
    pub writes: Vec<WriteChunk>,
    /// Memory for a reply that is too long to be sent inline.
    pub reply: Option<WriteChunk>,
}

impl Chunks {
    /// Returns whether no memory is offered at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.reads.is_empty() && self.writes.is_empty() && self.reply.is_none()
    }
}

impl Encode for Chunks {
    fn encode(&self, e: &mut Encoder) {
        encode_list(&self.reads, e);
        encode_list(&self.writes, e);
        self.reply.encode(e);
    }
}

impl Decode for Chunks {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(Self {
            reads: decode_list(d, MAX_READ_SEGMENTS)?,
            writes: decode_list(d, MAX_WRITE_CHUNKS)?,
            reply: Option::decode(d)?,
        })
    }
}

/// Encodes an XDR optional-data list (RFC 4506 §4.19).
fn encode_list<T: Encode>(items: &[T], e: &mut Encoder) {
    for item in items {
        e.u32(1);
        item.encode(e);
    }
    e.u32(0);
}

fn decode_list<T: Decode>(d: &mut Decoder<'_>, max: usize) -> Result<Vec<T>, XdrError> {
    let mut items = Vec::new();
    while bool::decode(d)? {
        if items.len() == max {
            return Err(XdrError::TooLong);
        }
        items.push(T::decode(d)?);
    }
    Ok(items)
}

/// Cuts `bytes` (a range of the concatenation of `segments`) into pieces of
/// single segments. Bytes beyond the last segment are omitted.
pub(crate) fn cut(segments: &[Segment], bytes: Range<usize>) -> Vec<Segment> {
    let mut pieces = Vec::new();
    let mut begins = 0;
    for segment in segments {
        let ends = begins + segment.length as usize;
        let (from, to) = (bytes.start.max(begins), bytes.end.min(ends));
        if from < to {
            pieces.push(Segment {
                handle: segment.handle,
                length: (to - from) as u32,
                offset: segment.offset + (from - begins) as u64,
            });
        }
        begins = ends;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segments() -> Vec<Segment> {
        vec![
            Segment { handle: 1, length: 10, offset: 100 },
            Segment { handle: 2, length: 0, offset: 900 },
            Segment { handle: 3, length: 6, offset: 200 },
        ]
    }

    #[test]
    fn ranges_are_cut_at_segment_borders() {
        let cut = cut(&segments(), 4..13);
        assert_eq!(
            cut,
            [
                Segment { handle: 1, length: 6, offset: 104 },
                Segment { handle: 3, length: 3, offset: 200 },
            ]
        );
        assert!(super::cut(&segments(), 16..20).is_empty());
    }

    #[test]
    fn unused_segments_come_back_empty() {
        let chunk = WriteChunk { segments: segments() };
        assert_eq!(chunk.capacity_bytes(), 16);
        let lengths = |bytes| -> Vec<u32> {
            chunk.used(bytes).segments.iter().map(|segment| segment.length).collect()
        };
        assert_eq!(lengths(0), [0, 0, 0]);
        assert_eq!(lengths(12), [10, 0, 2]);
    }
}
