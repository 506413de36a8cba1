//! One direction of a TCP connection, with gaps in the capture, and its
//! completely captured messages.

use super::pcap::TcpSegment;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Largest plausible RPC record or data segment, in bytes.
const MAX_MESSAGE_BYTES: usize = 2 << 20;
const BHS_BYTES: usize = 48;
const LAST_FRAGMENT: u32 = 1 << 31;
const RPC_VERSION: u32 = 2;

/// The bytes from one end of a connection to the other.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    first: u32,
    /// Captured bytes, by offset from the first byte.
    pieces: BTreeMap<u32, Vec<u8>>,
}

/// Sorts segments into streams, in the order of their first segments.
pub(crate) fn streams(segments: Vec<TcpSegment>) -> Vec<Stream> {
    let mut open: BTreeMap<(SocketAddr, SocketAddr), usize> = BTreeMap::new();
    let mut all: Vec<Stream> = Vec::new();
    for segment in segments {
        let (from, to) = (segment.from, segment.to);
        let first = segment.sequence.wrapping_add(u32::from(segment.syn));
        let known = open.get(&(from, to)).copied();
        // Another SYN means that the ports were reused.
        let index = match known.filter(|at| !segment.syn || all[*at].first == first) {
            Some(at) => at,
            None => {
                all.push(Stream { from, to, first, pieces: BTreeMap::new() });
                open.insert((from, to), all.len() - 1);
                all.len() - 1
            }
        };
        let stream = &mut all[index];
        let at = first.wrapping_sub(stream.first);
        let longer = stream.pieces.get(&at).is_none_or(|known| known.len() < segment.data.len());
        if !segment.data.is_empty() && longer {
            stream.pieces.insert(at, segment.data);
        }
    }
    all
}

impl Stream {
    /// A completely recorded stream.
    pub(crate) fn whole(from: SocketAddr, to: SocketAddr, bytes: Vec<u8>) -> Self {
        Self { from, to, first: 0, pieces: BTreeMap::from([(0, bytes)]) }
    }

    /// `len` bytes from `at` on, if all of them were captured.
    fn get(&self, at: u32, len: usize) -> Option<Vec<u8>> {
        let mut bytes = Vec::with_capacity(len);
        let mut next = at;
        while bytes.len() < len {
            let (start, piece) = self.pieces.range(..=next).next_back()?;
            let rest = piece.get((next - start) as usize..).filter(|rest| !rest.is_empty())?;
            let taken = rest.len().min(len - bytes.len());
            bytes.extend_from_slice(&rest[..taken]);
            next += taken as u32;
        }
        Some(bytes)
    }

    fn word(&self, at: u32) -> Option<u32> {
        Some(u32::from_be_bytes(self.get(at, 4)?.try_into().ok()?))
    }

    /// Iterates over messages; `length` returns the length of the message at an
    /// offset, header included. If it is unknown, the iteration continues at
    /// the next segment.
    fn walk(&self, length: impl Fn(u32) -> Option<usize>) -> Vec<Vec<u8>> {
        let (mut messages, mut at) = (Vec::new(), 0);
        let last = self.pieces.last_key_value();
        let end = last.map_or(0, |(start, piece)| start + piece.len() as u32);
        while at < end {
            match length(at) {
                Some(len) => {
                    messages.extend(self.get(at, len));
                    at += len as u32;
                }
                None => match self.pieces.range(at + 1..).next() {
                    Some((next, _)) => at = *next,
                    None => break,
                },
            }
        }
        messages
    }

    /// RPC calls or replies, each one record of one fragment, without its mark.
    pub(crate) fn records(&self) -> Vec<Vec<u8>> {
        let length = |at: u32| {
            let mark = self.word(at)?;
            let len = (mark & !LAST_FRAGMENT) as usize;
            let is_rpc = match self.word(at + 8)? {
                0 => self.word(at + 12)? == RPC_VERSION,
                1 => self.word(at + 12)? < 2,
                _ => false,
            };
            let believed = mark & LAST_FRAGMENT != 0 && len <= MAX_MESSAGE_BYTES && is_rpc;
            believed.then_some(4 + len)
        };
        self.walk(length).into_iter().map(|mut record| record.split_off(4)).collect()
    }

    /// PDUs of an initiator, without digests.
    pub(crate) fn requests(&self) -> Vec<Vec<u8>> {
        self.pdus(|opcode| matches!(opcode, 0..=6 | 0x10))
    }

    /// PDUs of a target, without digests.
    pub(crate) fn responses(&self) -> Vec<Vec<u8>> {
        self.pdus(|opcode| matches!(opcode, 0x20..=0x26 | 0x31 | 0x32 | 0x3f))
    }

    fn pdus(&self, is_known: impl Fn(u8) -> bool) -> Vec<Vec<u8>> {
        self.walk(|at| {
            let header = self.get(at, BHS_BYTES)?;
            let data = u32::from_be_bytes([0, header[5], header[6], header[7]]) as usize;
            let believed = is_known(header[0] & 0xbf) && data <= MAX_MESSAGE_BYTES;
            believed.then_some(BHS_BYTES + usize::from(header[4]) * 4 + data.next_multiple_of(4))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(sequence: u32, data: &[u8]) -> TcpSegment {
        let address = |port| SocketAddr::from(([10, 0, 0, 1], port));
        let (from, to) = (address(700), address(2049));
        TcpSegment { from, to, sequence, syn: false, data: data.to_vec() }
    }

    fn call(tail: &[u8]) -> Vec<u8> {
        let words = [LAST_FRAGMENT | (12 + tail.len() as u32), 77, 0, 2];
        [&words.map(u32::to_be_bytes).concat(), tail].concat()
    }

    #[test]
    fn records_come_out_however_they_were_cut_and_repeated() {
        let bytes = [call(b"one!"), call(b"two!")].concat();
        let segments = vec![
            segment(u32::MAX - 1, &bytes[..7]),
            segment(5, &bytes[7..]),
            segment(5, &bytes[7..9]),
        ];
        let [stream] = &streams(segments)[..] else { panic!("one stream") };
        assert_eq!(stream.records(), [&call(b"one!")[4..], &call(b"two!")[4..]]);
    }

    #[test]
    fn what_was_not_captured_is_skipped() {
        let (long, short) = (call(&[7; 400]), call(b"two!"));
        // The first is truncated; the second begins a new segment.
        let segments = vec![segment(0, &long[..100]), segment(long.len() as u32, &short)];
        assert_eq!(streams(segments)[0].records(), [&short[4..]]);
        // Not even the mark of the first was captured.
        let segments = vec![segment(0, &[9; 3]), segment(50, &short)];
        assert_eq!(streams(segments)[0].records(), [&short[4..]]);
    }

    #[test]
    fn ports_that_are_used_again_are_another_stream() {
        let mut again = segment(900, b"");
        again.syn = true;
        let segments = vec![segment(0, &call(b"one!")), again, segment(901, &call(b"two!"))];
        let all: Vec<_> = streams(segments).iter().map(Stream::records).collect();
        assert_eq!(all, [[&call(b"one!")[4..]], [&call(b"two!")[4..]]]);
    }
}
