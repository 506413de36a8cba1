//! From a byte stream to RPC records. The body of a large WRITE goes straight
//! into an aligned pool buffer: the head of the record is looked at first, and
//! what follows is received where storage will take it from.

use super::stream::read_some;
use bytes::Bytes;
use tokio::net::TcpStream;
use zgate_nfs::v4::bulk::{BulkPosition, bulk_position};
use zgate_rpc::record::{self, MARKER_BYTES, Marker, Parsed, RecordError};
use zgate_store::{AlignedBuf, BufferPool};

/// Room for small records, in bytes.
const STREAM_BYTES: usize = 64 << 10;
/// Records at least this long are looked into before they are received.
const BULK_BYTES: usize = 32 << 10;
/// After a large record as much is read first: the head of the next one. Only
/// what this read happens to take of the body is ever copied.
const HEAD_BYTES: usize = 512;
/// The head of a large WRITE ends within this many bytes, or it is received
/// like any other record.
const MAX_HEAD_BYTES: usize = 4 << 10;

/// One record, without its marker.
#[derive(Debug)]
pub(crate) struct Received {
    /// All but the bulk body.
    pub head: Bytes,
    /// A bulk body and where in `head` it belongs.
    pub bulk: Option<(usize, Bytes)>,
    /// How often `head` was copied since it came in.
    pub head_copies: usize,
    /// Bytes of the bulk body that had to be moved.
    pub copied_bytes: usize,
}

impl Received {
    /// Bytes received.
    pub(crate) fn len(&self) -> usize {
        self.head.len() + self.bulk.as_ref().map_or(0, |(_, data)| data.len())
    }
}

/// A bulk record whose body is being received.
#[derive(Debug)]
struct Bulk {
    head: Vec<u8>,
    at: usize,
    body: AlignedBuf,
    filled: usize,
    tail_missing: usize,
    copied_bytes: usize,
}

/// What a look at the stream found.
#[derive(Debug)]
pub(crate) enum Progress {
    /// A record.
    Record(Received),
    /// More bytes are needed.
    Wait,
}

/// The receiving side of one connection.
#[derive(Debug)]
pub(crate) struct Receiver {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    bulk: Option<Bulk>,
    after_bulk: bool,
    pool: BufferPool,
}

impl Receiver {
    pub(crate) fn new(pool: BufferPool) -> Self {
        Self {
            buffer: vec![0; STREAM_BYTES],
            start: 0,
            end: 0,
            bulk: None,
            after_bulk: false,
            pool,
        }
    }

    /// Reads what is there without waiting. `Ok(0)`: the peer closed.
    pub(crate) fn fill(&mut self, stream: &TcpStream) -> std::io::Result<usize> {
        if let Some(bulk) = &mut self.bulk {
            if bulk.filled < bulk.body.len() {
                let got = read_some(stream, &mut bulk.body[bulk.filled..])?;
                bulk.filled += got;
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
        let got = read_some(stream, &mut self.buffer[self.end..limit])?;
        self.end += got;
        Ok(got)
    }

    fn make_room(&mut self) {
        if self.end < self.buffer.len() && self.start < STREAM_BYTES / 2 {
            return;
        }
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if self.end == self.buffer.len() {
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
    }

    fn pending(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// The next record, when it is complete.
    ///
    /// # Errors
    /// The peer's framing is beyond the limits.
    pub(crate) fn next(&mut self) -> Result<Progress, RecordError> {
        if self.bulk.is_some() {
            return Ok(self.continue_bulk());
        }
        if let Some(progress) = self.try_begin_bulk() {
            return Ok(progress);
        }
        match record::parse(self.pending())? {
            Parsed::Record(found) => {
                let head = Bytes::copy_from_slice(&found.body(self.pending()));
                self.start += found.consumed;
                self.after_bulk = found.consumed >= BULK_BYTES;
                self.shrink();
                Ok(Progress::Record(Received { head, bulk: None, head_copies: 1, copied_bytes: 0 }))
            }
            Parsed::Need(_) => Ok(Progress::Wait),
        }
    }

    /// A connection that once carried a large record keeps no large buffer.
    fn shrink(&mut self) {
        if self.start == self.end && self.buffer.len() > STREAM_BYTES {
            self.buffer = vec![0; STREAM_BYTES];
            (self.start, self.end) = (0, 0);
        }
    }

    /// Starts a bulk record when the stream stands at one.
    fn try_begin_bulk(&mut self) -> Option<Progress> {
        let pending = self.pending();
        let marker = Marker::parse(*pending.first_chunk::<MARKER_BYTES>()?);
        let have = &pending[MARKER_BYTES..];
        if !marker.last
            || marker.len < BULK_BYTES
            || marker.len > zgate_rpc::limits::MAX_RECORD_BYTES
            || have.len() >= marker.len
        {
            return None;
        }
        let (at, len) = match bulk_position(&have[..have.len().min(MAX_HEAD_BYTES)]) {
            BulkPosition::At { offset, len } => (offset, len),
            BulkPosition::NeedMore if have.len() < MAX_HEAD_BYTES => return Some(Progress::Wait),
            BulkPosition::NeedMore | BulkPosition::None => return None,
        };
        let tail_missing = marker.len.checked_sub(at.checked_add(len)?)?;
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
        match self.bulk.take() {
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
