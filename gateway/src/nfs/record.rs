//! Decoder of a byte stream into RPC records. The body of a large WRITE goes
//! directly into an aligned pool buffer: the head of the record is examined
//! first, and the rest is received where storage will write it from.

use super::limits::{MAX_UNNAMED_RECORD_BYTES, UNNAMED_STREAM_BYTES};
use crate::net::channel::Channel;
use crate::net::send::Sender;
use bytes::Bytes;
use zgate_nfs_wire::bulk::{BulkPosition, bulk_position};
use zgate_rpc::limits::MAX_RECORD_BYTES;
use zgate_rpc::record::{self, MARKER_BYTES, Marker, Parsed, RecordError};
use zgate_store::{AlignedBuf, BufferPool, Payload};
use zgate_xdr::{Message, Segment};

/// Buffer size for small records, in bytes.
const STREAM_BYTES: usize = 64 << 10;
/// Length from which a record is examined before it is received, in bytes.
pub(crate) const BULK_BYTES: usize = 32 << 10;
/// Bytes read first after a large record: the head of the next one. Only the
/// part of its body within this read is ever copied.
const HEAD_BYTES: usize = 512;
/// Longest head of a large WRITE, in bytes; a record with a longer one is
/// received like any other.
const MAX_HEAD_BYTES: usize = 4 << 10;

/// Longest message that is copied behind its marker, in bytes: to send its segments one by one
/// takes more than the copy.
const MAX_JOINED_BYTES: usize = 1 << 10;

/// One record, without its marker.
#[derive(Debug)]
pub(crate) struct Received {
    /// Everything except the bulk body.
    pub head: Bytes,
    /// A bulk body and its position in `head`.
    pub bulk: Option<(usize, Bytes)>,
    /// Number of times `head` was copied since it was received.
    pub head_copies: usize,
    /// Bytes of the bulk body that had to be copied.
    pub copied_bytes: usize,
}

impl Received {
    /// Returns the transaction id of the call (RFC 5531 §9).
    pub(crate) fn xid(&self) -> Option<u32> {
        self.head.first_chunk().map(|xid| u32::from_be_bytes(*xid))
    }

    /// Returns the number of bytes received.
    pub(crate) fn len(&self) -> usize {
        self.head.len() + self.bulk.as_ref().map_or(0, |(_, data)| data.len())
    }
}

/// Queues a message as one record. False: it is too long to be framed, which no
/// operation produces.
pub(crate) fn queue_record(sender: &mut Sender, message: Message) -> bool {
    let Some(marker) = Marker::whole(message.len()) else { return false };
    if let Some(whole) = joined(marker, &message) {
        sender.push_payload(Payload::Bytes(whole));
        return true;
    }
    sender.push_marker(marker);
    for segment in message.segments {
        sender.push_payload(match segment {
            Segment::Bytes(bytes) => Payload::Bytes(bytes),
            Segment::Payload(payload) => payload,
        });
    }
    true
}

/// Returns a short message behind its marker; `None` for a long one, and for one with bulk
/// data, which is never copied.
fn joined(marker: [u8; MARKER_BYTES], message: &Message) -> Option<Bytes> {
    let len = message.len();
    let is_plain = message.segments.iter().all(|one| matches!(one, Segment::Bytes(_)));
    if len > MAX_JOINED_BYTES || !is_plain {
        return None;
    }
    let mut whole = Vec::with_capacity(MARKER_BYTES + len);
    whole.extend_from_slice(&marker);
    for segment in &message.segments {
        if let Segment::Bytes(bytes) = segment {
            whole.extend_from_slice(bytes);
        }
    }
    Some(whole.into())
}

/// A record whose bulk body is being received.
#[derive(Debug)]
struct Bulk {
    head: Vec<u8>,
    at: usize,
    body: AlignedBuf,
    filled: usize,
    tail_missing: usize,
    copied_bytes: usize,
}

/// Result of examining the stream.
#[derive(Debug)]
pub(crate) enum Progress {
    /// A record.
    Record(Received),
    /// More bytes are needed.
    Wait,
    /// The next record is a large one that must wait for memory.
    NoMemory,
}

/// Right of the host to memory, as known to the connection.
pub(crate) trait Allowance {
    /// Returns whether an export names the host. Otherwise its records must be
    /// small.
    fn is_named(&mut self) -> bool;
    /// Returns whether memory for a large record may be taken now: bytes of what
    /// is received apart from small records.
    fn may_take_memory(&self, bytes: usize) -> bool;
}

/// Receiving side of one connection.
#[derive(Debug)]
pub(crate) struct Receiver {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    bulk: Option<Bulk>,
    after_bulk: bool,
    /// Bytes granted to the record in the buffer, beyond the buffer's usual size.
    granted_bytes: usize,
    /// Number of bytes received and records completed so far; they wrap.
    received: u64,
    records: u64,
    pool: BufferPool,
}

/// Form in which a record is handed on. It depends on the record alone, not on how its
/// bytes arrive: a retry is recognised by what lies beside the data, so it must have the
/// form of the first record.
enum Form {
    /// More bytes are needed to know it.
    Unknown,
    /// As it is.
    Whole,
    /// Without the data of its WRITE, which follows apart.
    Apart {
        /// Position of the data.
        at: usize,
        /// Length of the data.
        len: usize,
        /// Bytes behind the data.
        tail: usize,
    },
}

impl Form {
    /// Returns the form of a record of `len` bytes that begins with `have`.
    fn of(len: usize, have: &[u8]) -> Self {
        if !(BULK_BYTES..=MAX_RECORD_BYTES).contains(&len) {
            return Self::Whole;
        }
        match bulk_position(&have[..have.len().min(MAX_HEAD_BYTES)]) {
            BulkPosition::At { offset: at, len: data } => {
                let tail = at.checked_add(data).and_then(|end| len.checked_sub(end));
                // No WRITE has that much behind its data: the record takes the way of those
                // whose whole length is asked for.
                match tail.filter(|tail| *tail <= MAX_HEAD_BYTES) {
                    Some(tail) => Self::Apart { at, len: data, tail },
                    None => Self::Whole,
                }
            }
            BulkPosition::NeedMore if have.len() < MAX_HEAD_BYTES => Self::Unknown,
            BulkPosition::NeedMore | BulkPosition::None => Self::Whole,
        }
    }
}

/// Hands on a record that was copied out of the buffer.
fn hand_on(record: Bytes) -> Received {
    match Form::of(record.len(), &record) {
        Form::Apart { at, len, .. } => {
            let head = [&record[..at], &record[at + len..]].concat();
            let data = record.slice(at..at + len);
            let bulk = Some((at, data));
            Received { head: Bytes::from(head), bulk, head_copies: 1, copied_bytes: len }
        }
        Form::Unknown | Form::Whole => {
            Received { head: record, bulk: None, head_copies: 1, copied_bytes: 0 }
        }
    }
}

/// Progress of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    /// Bytes received.
    pub received: u64,
    /// Complete records.
    pub records: u64,
    /// Set if part of another record has arrived.
    pub unfinished: bool,
}

impl Receiver {
    /// Creates the receiver of a connection; `is_named` is set if an export
    /// names the host.
    pub(crate) fn new(pool: BufferPool, is_named: bool) -> Self {
        Self {
            buffer: vec![0; if is_named { STREAM_BYTES } else { UNNAMED_STREAM_BYTES }],
            start: 0,
            end: 0,
            bulk: None,
            after_bulk: false,
            granted_bytes: 0,
            received: 0,
            records: 0,
            pool,
        }
    }

    /// Returns the progress.
    pub(crate) fn mark(&self) -> Mark {
        Mark { received: self.received, records: self.records, unfinished: self.has_pending() }
    }

    /// Returns the bytes held for an incomplete large record.
    pub(crate) fn held_bytes(&self) -> usize {
        let body = self.bulk.as_ref().map_or(0, |bulk| bulk.body.len());
        body + self.buffer.len().saturating_sub(STREAM_BYTES).max(self.granted_bytes)
    }

    /// Returns whether data has arrived that belongs to no record taken so far.
    pub(crate) fn has_pending(&self) -> bool {
        self.bulk.is_some() || self.start < self.end
    }

    /// Reads the available data without waiting. `Ok(0)`: the peer closed.
    pub(crate) fn fill(&mut self, channel: &Channel) -> std::io::Result<usize> {
        if let Some(bulk) = &mut self.bulk {
            if bulk.filled < bulk.body.len() {
                let got = channel.read_some(&mut bulk.body[bulk.filled..])?;
                bulk.filled += got;
                self.received = self.received.wrapping_add(got as u64);
                return Ok(got);
            }
        } else if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        self.make_room();
        let limit = if self.after_bulk && self.bulk.is_none() {
            (self.end + HEAD_BYTES).min(self.buffer.len())
        } else {
            self.buffer.len()
        };
        let got = channel.read_some(&mut self.buffer[self.end..limit])?;
        self.end += got;
        self.received = self.received.wrapping_add(got as u64);
        Ok(got)
    }

    fn make_room(&mut self) {
        if self.end < self.buffer.len() && self.start < self.buffer.len() / 2 {
            return;
        }
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if self.end == self.buffer.len() {
            // Only [`Self::next`] lets a record grow that long.
            self.buffer.resize((self.buffer.len() * 2).max(STREAM_BYTES), 0);
        }
    }

    fn pending(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Returns the next record, if it is complete.
    ///
    /// # Errors
    /// If the peer's framing exceeds the limits, or a host that no export names
    /// sends more than it may.
    pub(crate) fn next(&mut self, allowance: &mut impl Allowance) -> Result<Progress, RecordError> {
        if self.start == self.end && self.bulk.is_none() {
            return Ok(Progress::Wait);
        }
        let most = if allowance.is_named() {
            if self.bulk.is_some() {
                return Ok(self.continue_bulk());
            }
            if let Some(progress) = self.try_begin_bulk(allowance) {
                return Ok(progress);
            }
            MAX_RECORD_BYTES
        } else if self.bulk.is_some() {
            return Err(RecordError::TooLong);
        } else {
            MAX_UNNAMED_RECORD_BYTES
        };
        match record::parse_within(self.pending(), most)? {
            Parsed::Record(found) => {
                let record = Bytes::copy_from_slice(&found.body(self.pending()));
                self.start += found.consumed;
                self.records = self.records.wrapping_add(1);
                self.after_bulk = found.consumed >= BULK_BYTES;
                self.shrink();
                Ok(Progress::Record(hand_on(record)))
            }
            Parsed::Need(more) => self.wait_for(more, most, allowance),
        }
    }

    /// Waits for more of a record, which may need a larger buffer.
    fn wait_for(
        &mut self,
        more: usize,
        most: usize,
        allowance: &impl Allowance,
    ) -> Result<Progress, RecordError> {
        let len = self.end - self.start + more;
        if most < MAX_RECORD_BYTES {
            // Empty fragments count, too.
            let fits = len <= UNNAMED_STREAM_BYTES;
            return if fits { Ok(Progress::Wait) } else { Err(RecordError::TooLong) };
        }
        if self.held_bytes() > 0 || len < STREAM_BYTES {
            return Ok(Progress::Wait);
        }
        // Once it has begun it must not wait for memory: further fragments count now.
        let first = self.pending().first_chunk::<MARKER_BYTES>();
        let is_whole = first.is_some_and(|marker| Marker::parse(*marker).last);
        let bytes = if is_whole { len } else { MAX_RECORD_BYTES };
        if !allowance.may_take_memory(bytes) {
            return Ok(Progress::NoMemory);
        }
        self.granted_bytes = bytes;
        Ok(Progress::Wait)
    }

    /// Shrinks the buffer, so that a connection that once carried a large
    /// record keeps no large buffer.
    fn shrink(&mut self) {
        self.granted_bytes = 0;
        if self.start == self.end && self.buffer.len() > STREAM_BYTES {
            self.buffer = vec![0; STREAM_BYTES];
            (self.start, self.end) = (0, 0);
        }
    }

    /// Begins a bulk record if the stream is at the start of one.
    fn try_begin_bulk(&mut self, allowance: &impl Allowance) -> Option<Progress> {
        let pending = self.pending();
        let marker = Marker::parse(*pending.first_chunk::<MARKER_BYTES>()?);
        let have = &pending[MARKER_BYTES..];
        if !marker.last || have.len() >= marker.len {
            return None;
        }
        let (at, len, tail_missing) = match Form::of(marker.len, have) {
            Form::Apart { at, len, tail } => (at, len, tail),
            Form::Unknown => return Some(Progress::Wait),
            Form::Whole => return None,
        };
        if !allowance.may_take_memory(len) {
            return Some(Progress::NoMemory);
        }
        let mut body = self.pool.take(len);
        let present = (have.len() - at).min(len);
        body[..present].copy_from_slice(&have[at..at + present]);
        let head = have[..at].to_vec();
        self.start += MARKER_BYTES + at + present;
        self.after_bulk = true;
        self.bulk =
            Some(Bulk { head, at, body, filled: present, tail_missing, copied_bytes: present });
        Some(self.continue_bulk())
    }

    fn continue_bulk(&mut self) -> Progress {
        let available = self.end - self.start;
        let Some(bulk) = &mut self.bulk else { return Progress::Wait };
        if bulk.filled < bulk.body.len() || available < bulk.tail_missing {
            return Progress::Wait;
        }
        let tail = &self.buffer[self.start..self.start + bulk.tail_missing];
        bulk.head.extend_from_slice(tail);
        self.start += bulk.tail_missing;
        self.records = self.records.wrapping_add(1);
        let bulk = self.bulk.take();
        self.shrink();
        match bulk {
            Some(bulk) => Progress::Record(Received {
                head: Bytes::from(bulk.head),
                bulk: Some((bulk.at, bulk.body.into_bytes())),
                head_copies: 1,
                copied_bytes: bulk.copied_bytes,
            }),
            None => Progress::Wait,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zgate_rpc::drc::{CallerDigest, Key};
    use zgate_rpc::{CallHeader, Credential};
    use zgate_xdr::Decoder;

    #[test]
    fn only_a_short_message_without_bulk_data_is_copied_behind_its_marker() {
        let words = |len: usize| Message::from(Bytes::from(vec![7; len]));
        let mut reply = words(8);
        reply.prepend(Bytes::from_static(b"head"));
        let whole = joined(Marker::whole(12).unwrap(), &reply).unwrap();
        assert_eq!(whole[..], [0x80, 0, 0, 12, b'h', b'e', b'a', b'd', 7, 7, 7, 7, 7, 7, 7, 7]);
        let marker = [0; MARKER_BYTES];
        assert!(joined(marker, &words(MAX_JOINED_BYTES)).is_some());
        assert!(joined(marker, &words(MAX_JOINED_BYTES + 1)).is_none());
        let data = Segment::Payload(Payload::Bytes(Bytes::from_static(b"data")));
        reply.segments.push(data);
        assert!(joined(marker, &reply).is_none());
        let mut sender = Sender::default();
        assert!(queue_record(&mut sender, words(8)) && queue_record(&mut sender, reply));
        assert_eq!(sender.queued_bytes(), 4 + 8 + 4 + 16);
    }

    /// A named host that may take so many bytes.
    struct Most(usize);

    impl Allowance for Most {
        fn is_named(&mut self) -> bool {
            true
        }

        fn may_take_memory(&self, bytes: usize) -> bool {
            bytes <= self.0
        }
    }

    /// WRITE of NFSv3 (RFC 1813 §3.3.7) of four bytes in a record of the longest kind.
    fn write_with_more_behind_it() -> Receiver {
        let mut receiver = Receiver::new(BufferPool::new(16 << 20), true);
        let marker = Marker::whole(MAX_RECORD_BYTES).unwrap();
        let words = [9, 0, 2, 100_003, 3, 7, 0, 0, 0, 0, 4, 1, 0, 0, 4, 2, 4, 7_u32];
        let words = words.iter().flat_map(|word| word.to_be_bytes());
        for (place, byte) in receiver.buffer.iter_mut().zip(marker.into_iter().chain(words)) {
            *place = byte;
        }
        receiver.end = receiver.buffer.len();
        receiver
    }

    #[test]
    fn what_lies_behind_the_data_of_a_write_is_asked_for_as_well() {
        let refused = write_with_more_behind_it().next(&mut Most(64 << 10));
        assert!(matches!(refused, Ok(Progress::NoMemory)), "{refused:?}");
        let mut receiver = write_with_more_behind_it();
        assert!(matches!(receiver.next(&mut Most(usize::MAX)), Ok(Progress::Wait)));
        assert_eq!(receiver.held_bytes(), MARKER_BYTES + MAX_RECORD_BYTES);
    }

    /// WRITE of NFSv3 of 40 KiB, without a marker.
    fn long_write() -> Vec<u8> {
        const BYTES: u32 = 40 << 10;
        let words = [9, 0, 2, 100_003, 3, 7, 0, 0, 0, 0, 4, 1, 0, 0, BYTES, 2, BYTES];
        let mut record: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        record.extend((0..BYTES).map(|at| at as u8));
        record
    }

    /// Receives a record that arrives in these pieces.
    fn receive(pieces: &[&[u8]]) -> Received {
        let mut receiver = Receiver::new(BufferPool::new(16 << 20), true);
        for piece in pieces {
            let (place, filled) = match &mut receiver.bulk {
                Some(bulk) => (&mut bulk.body[..], &mut bulk.filled),
                None => (&mut receiver.buffer[..], &mut receiver.end),
            };
            place[*filled..][..piece.len()].copy_from_slice(piece);
            *filled += piece.len();
            let progress = receiver.next(&mut Most(usize::MAX));
            if let Ok(Progress::Record(received)) = progress {
                return received;
            }
        }
        panic!("the record is complete")
    }

    fn key(received: &Received) -> Key {
        let mut d = Decoder::new(&received.head);
        let header = CallHeader::decode(&mut d).unwrap();
        let caller = CallerDigest::new(&Credential::None, &());
        Key::new(([192, 0, 2, 7], 700).into(), caller, &header, d.rest())
    }

    #[test]
    fn a_retry_is_recognised_however_it_arrives() {
        let record = long_write();
        let marker = Marker::whole(record.len()).unwrap();
        let sent = [&marker[..], &record[..]].concat();
        let at_once = receive(&[&sent]);
        let (_, data) = at_once.bulk.as_ref().unwrap();
        assert_eq!((data.len(), at_once.copied_bytes), (40 << 10, 40 << 10));
        assert_eq!(data[..], record[record.len() - data.len()..]);
        let in_pieces = receive(&[&sent[..20], &sent[20..1000], &sent[1000..]]);
        let (first, second) = record.split_at(500);
        let marker = |part: &[u8], last: u32| (part.len() as u32 | last << 31).to_be_bytes();
        let cut = [&marker(first, 0)[..], first, &marker(second, 1)[..], second].concat();
        for other in [in_pieces, receive(&[&cut])] {
            assert_eq!((&other.head, &other.bulk), (&at_once.head, &at_once.bulk));
            assert_eq!(key(&other), key(&at_once));
        }
    }
}
