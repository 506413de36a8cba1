//! Send with Invalidate: a reply that also invalidates one of the requester's
//! memory keys, which saves the requester that work (RFC 8797 §3.2, §4.1).

use crate::private_data::PrivateData;
use crate::segment::{Chunks, Segment};

/// Returns the memory key that a reply to a call with `chunks` invalidates.
/// `None` unless the peer offered this while connecting and the call registered
/// memory. The requester invalidates the other keys of the call itself.
#[must_use]
pub fn rkey_to_invalidate(peer: &PrivateData, chunks: &Chunks) -> Option<u32> {
    if !peer.remote_invalidation {
        return None;
    }
    let reads = chunks.reads.iter().map(|read| &read.target);
    let writes = chunks.writes.iter().flat_map(|chunk| &chunk.segments);
    let reply = chunks.reply.iter().flat_map(|chunk| &chunk.segments);
    // Any key of the call is suitable; a segment without bytes may have none.
    let mut all = reads.chain(writes).chain(reply);
    all.find(|segment: &&Segment| segment.length > 0).map(|segment| segment.handle)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::{ReadSegment, WriteChunk};

    #[test]
    fn only_when_offered_and_only_a_key_of_the_call() {
        let segment = |handle, length| Segment { handle, length, offset: 0 };
        let offered = PrivateData { remote_invalidation: true, ..Default::default() };
        let reply = WriteChunk { segments: vec![segment(3, 0), segment(4, 100)] };
        let mut chunks = Chunks { reply: Some(reply), ..Default::default() };
        assert_eq!(rkey_to_invalidate(&PrivateData::default(), &chunks), None);
        assert_eq!(rkey_to_invalidate(&offered, &chunks), Some(4));
        chunks.reads.push(ReadSegment { position: 8, target: segment(9, 8) });
        assert_eq!(rkey_to_invalidate(&offered, &chunks), Some(9));
        assert_eq!(rkey_to_invalidate(&offered, &Chunks::default()), None);
    }
}
