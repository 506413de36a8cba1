//! Splits a reply into the parts that are written to the client's memory and
//! those that are sent.

use bytes::Bytes;
use std::ops::Range;
use zgate_fabric::{RemoteSlice, RemoteWrite, SendPart};
use zgate_rpcrdma::server::{DataItem, ReplyPlan};
use zgate_store::Payload;
use zgate_xdr::{Direct, Message, Segment};

/// Pieces of a message, each with its offset.
pub(super) struct Pieces(Vec<(usize, Bytes)>);

impl Pieces {
    /// Collects the pieces; `None` if a piece is not in memory.
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

    /// Returns the bytes of a range, without a copy.
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

/// Returns the results that may be written directly, as marked by the
/// operations (RFC 8267 §4, §6.1): data of READ and targets of READLINK, but
/// not data of READ_PLUS.
///
/// Chunks correspond to the results in order (RFC 8267 §6.4.1), and an empty
/// result uses up its chunk. A failed operation has no such result: it is the
/// last of its COMPOUND (RFC 8881 §16.2.3), and its chunk and those behind it
/// are returned unused.
pub(super) fn direct_items(message: &Message) -> Vec<DataItem> {
    let item = |direct: &Direct| DataItem { offset: direct.offset, len: direct.len };
    message.direct.iter().map(item).collect()
}

/// Builds the RDMA Writes and the Send of a plan.
pub(super) fn post(
    plan: &ReplyPlan,
    pieces: &Pieces,
    invalidate: Option<u32>,
) -> (Vec<RemoteWrite>, SendPart) {
    let writes = plan.rdma_writes.iter().map(|push| {
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

    #[test]
    fn the_data_of_read_is_direct_empty_or_not_and_other_data_is_not() {
        let data = || Payload::Bytes(Bytes::from_static(b"hello"));
        let mut e = Encoder::new();
        e.bulk(data());
        e.direct_bulk(Payload::Bytes(Bytes::new()));
        e.direct_bulk(data());
        let (empty, full) = (DataItem { offset: 16, len: 0 }, DataItem { offset: 20, len: 5 });
        assert_eq!(direct_items(&e.finish()), [empty, full]);
    }

    #[test]
    fn ranges_are_slices_of_the_pieces() {
        let mut e = Encoder::new();
        [77, 0, 0, 1].into_iter().for_each(|word| e.u32(word));
        e.direct_bulk(Payload::Bytes(Bytes::from_static(b"hello")));
        let message = e.finish();
        let pieces = Pieces::of(&message).unwrap();
        let gathered = pieces.gather(&[16..22, 25..28]);
        let flat: Vec<u8> = gathered.iter().flatten().copied().collect();
        assert_eq!(flat, b"\0\0\0\x05he\0\0\0");
        let Segment::Payload(Payload::Bytes(data)) = &message.segments[1] else { panic!() };
        assert_eq!(gathered[1].as_ptr(), data.as_ptr());
    }
}
