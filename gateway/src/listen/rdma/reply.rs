//! From a reply to what is written into the client's memory and what is sent.

use bytes::Bytes;
use std::ops::Range;
use zgate_fabric::{RemoteSlice, RemoteWrite, SendPart};
use zgate_rpcrdma::server::{DataItem, ReplyPlan};
use zgate_store::Payload;
use zgate_xdr::{Message, Segment};

/// Operation number of READ (RFC 8881 §18.22).
const OP_READ: u32 = 25;

/// The pieces of a message, each with where it begins.
pub(super) struct Pieces(Vec<(usize, Bytes)>);

impl Pieces {
    /// `None` when a piece is not in memory.
    pub(super) fn of(message: &Message) -> Option<Self> {
        let mut at = 0;
        let mut pieces = Vec::with_capacity(message.segments.len());
        for segment in &message.segments {
            let (Segment::Bytes(bytes) | Segment::Payload(Payload::Bytes(bytes))) = segment else {
                return None;
            };
            pieces.push((at, bytes.clone()));
            at += bytes.len();
        }
        Some(Self(pieces))
    }

    /// The bytes of a range, without copying.
    fn slices(&self, range: &Range<usize>) -> impl Iterator<Item = Bytes> {
        self.0.iter().filter_map(move |(begins, bytes)| {
            let from = range.start.max(*begins);
            let to = range.end.min(begins + bytes.len());
            (from < to).then(|| bytes.slice(from - begins..to - begins))
        })
    }

    fn gather(&self, ranges: &[Range<usize>]) -> Vec<Bytes> {
        ranges.iter().flat_map(|range| self.slices(range)).collect()
    }
}

/// The results that may be written directly (RFC 8267): the data of READ in
/// both versions, and not that of READ_PLUS, which carries bulk data, too.
pub(super) fn direct_items(message: &Message, version: u32) -> Vec<DataItem> {
    let mut items = Vec::new();
    let mut at = 0;
    let mut before: &[u8] = &[];
    for segment in &message.segments {
        match segment {
            Segment::Bytes(bytes) => before = bytes,
            Segment::Payload(payload) if version != 4 || follows_read(before) => {
                items.push(DataItem { offset: at, len: payload.len() });
            }
            Segment::Payload(_) => {}
        }
        at += segment.len();
    }
    items
}

/// Whether the data behind these bytes is a READ's of version 4: operation,
/// status, end of file, length. READ_PLUS has a content type of zero where
/// READ has its number.
fn follows_read(before: &[u8]) -> bool {
    let Some(words) = before.last_chunk::<16>() else { return false };
    words[..4] == OP_READ.to_be_bytes() && words[4..8] == [0; 4]
}

/// The RDMA Writes and the Send of a plan.
pub(super) fn post(
    plan: &ReplyPlan,
    pieces: &Pieces,
    invalidate: Option<u32>,
) -> (Vec<RemoteWrite>, SendPart) {
    let writes = plan.pushes.iter().map(|push| {
        let (target, gather) = (push.target, pieces.gather(&push.from));
        let to = RemoteSlice { rkey: target.handle, address: target.offset, len: target.length };
        RemoteWrite { to, gather }
    });
    let mut gather = vec![Bytes::from(plan.header.clone())];
    gather.extend(pieces.gather(&plan.inline));
    (writes.collect(), SendPart { gather, invalidate })
}

#[cfg(test)]
mod tests {
    use super::*;
    use zgate_xdr::Encoder;

    fn message(before: [u32; 3]) -> Message {
        let mut e = Encoder::new();
        e.u32(77);
        before.into_iter().for_each(|word| e.u32(word));
        e.bulk(Payload::Bytes(Bytes::from_static(b"hello")));
        e.finish()
    }

    #[test]
    fn only_the_data_of_read_is_direct() {
        let read = message([OP_READ, 0, 1]);
        assert_eq!(direct_items(&read, 4), [DataItem { offset: 20, len: 5 }]);
        let read_plus = message([0, 0, 4096]);
        assert_eq!(direct_items(&read_plus, 4), []);
        assert_eq!(direct_items(&read_plus, 3).len(), 1);
    }

    #[test]
    fn ranges_are_slices_of_the_pieces() {
        let message = message([OP_READ, 0, 1]);
        let pieces = Pieces::of(&message).unwrap();
        let gathered = pieces.gather(&[16..22, 25..28]);
        let flat: Vec<u8> = gathered.iter().flatten().copied().collect();
        assert_eq!(flat, b"\0\0\0\x05he\0\0\0");
        let Segment::Payload(Payload::Bytes(data)) = &message.segments[1] else { panic!() };
        assert_eq!(gathered[1].as_ptr(), data.as_ptr());
    }
}
