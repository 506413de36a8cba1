//! Record marking on streams (RFC 5531 §11): a record is one or more
//! fragments, each behind a four-byte marker of a last bit and a length.
//!
//! [`parse`] is pure: it examines all bytes received since the last record and
//! returns how many more it needs or where the record lies.

use crate::limits::{MAX_FRAGMENTS, MAX_RECORD_BYTES};
use std::borrow::Cow;
use std::ops::Range;
use thiserror::Error;

/// Length of a fragment's marker in bytes.
pub const MARKER_BYTES: usize = 4;

const LAST: u32 = 1 << 31;

/// The header of a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marker {
    /// Set if the fragment ends its record.
    pub last: bool,
    /// Length of the fragment in bytes, below 2^31.
    pub len: usize,
}

impl Marker {
    /// Parses a marker.
    #[must_use]
    pub fn parse(raw: [u8; MARKER_BYTES]) -> Self {
        let word = u32::from_be_bytes(raw);
        Self { last: word & LAST != 0, len: (word & !LAST) as usize }
    }

    /// Returns the marker of a record of `len` bytes in one fragment; `None` if
    /// it would need several (2^31 bytes or more; no message comes near).
    #[must_use]
    pub fn whole(len: usize) -> Option<[u8; MARKER_BYTES]> {
        let len = u32::try_from(len).ok().filter(|len| len & LAST == 0)?;
        Some((len | LAST).to_be_bytes())
    }
}

/// Fault of the peer; the connection must be closed, because the start of the
/// next record is unknown or too far away.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum RecordError {
    /// All fragments together exceed the peer's limit, which is at most
    /// [`MAX_RECORD_BYTES`].
    #[error("record longer than this peer may send (never more than {MAX_RECORD_BYTES} bytes)")]
    TooLong,
    /// More than [`MAX_FRAGMENTS`] fragments.
    #[error("record in more than {MAX_FRAGMENTS} fragments")]
    TooManyFragments,
}

/// Position of a complete record in the buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Number of bytes consumed from the buffer, markers included; the next
    /// record begins there.
    pub consumed: usize,
    /// The first fragment without its marker; empty ones are omitted.
    first: Range<usize>,
    /// The fragments behind it, in order. Clients send none: nothing is allocated then.
    more: Vec<Range<usize>>,
}

impl Record {
    /// Returns the record's bytes: borrowed if it came in one fragment.
    #[must_use]
    pub fn body<'a>(&self, buffer: &'a [u8]) -> Cow<'a, [u8]> {
        let part = |range: &Range<usize>| buffer.get(range.clone()).unwrap_or_default();
        if self.more.is_empty() {
            return Cow::Borrowed(part(&self.first));
        }
        Cow::Owned(self.fragments().flat_map(part).copied().collect())
    }

    /// Returns the length of the record in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.fragments().map(Range::len).sum()
    }

    fn fragments(&self) -> impl Iterator<Item = &Range<usize>> {
        std::iter::once(&self.first).chain(&self.more)
    }

    /// Returns whether the record is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// State of the bytes received so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// At least this many more bytes are needed (never 0).
    Need(usize),
    /// A complete record.
    Record(Record),
}

/// Looks for a record of any legal length at the start of `buffer`.
///
/// # Errors
/// As [`parse_within`].
pub fn parse(buffer: &[u8]) -> Result<Parsed, RecordError> {
    parse_within(buffer, MAX_RECORD_BYTES)
}

/// Looks for a record of at most `most` bytes at the start of `buffer`.
///
/// # Errors
/// [`RecordError`], returned as soon as a marker shows it, before the fragment
/// arrives.
pub fn parse_within(buffer: &[u8], most: usize) -> Result<Parsed, RecordError> {
    let mut at = 0;
    let mut total = 0;
    let (mut first, mut more): (Range<usize>, Vec<Range<usize>>) = (0..0, Vec::new());
    for _ in 0..MAX_FRAGMENTS {
        let Some(raw) = buffer[at..].first_chunk::<MARKER_BYTES>() else {
            return Ok(Parsed::Need(MARKER_BYTES - (buffer.len() - at)));
        };
        let marker = Marker::parse(*raw);
        at += MARKER_BYTES;
        total += marker.len;
        if total > most.min(MAX_RECORD_BYTES) {
            return Err(RecordError::TooLong);
        }
        let end = at + marker.len;
        if buffer.len() < end {
            // A marker always follows a fragment that is not the last.
            let next = if marker.last { 0 } else { MARKER_BYTES };
            return Ok(Parsed::Need(end - buffer.len() + next));
        }
        if first.is_empty() {
            first = at..end;
        } else if marker.len > 0 {
            more.push(at..end);
        }
        at = end;
        if marker.last {
            return Ok(Parsed::Record(Record { consumed: at, first, more }));
        }
    }
    Err(RecordError::TooManyFragments)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fragment(last: bool, body: &[u8]) -> Vec<u8> {
        let word = body.len() as u32 | if last { LAST } else { 0 };
        [&word.to_be_bytes()[..], body].concat()
    }

    #[test]
    fn fragments_are_joined_and_empty_ones_skipped() {
        let mut raw = fragment(false, b"ab");
        raw.extend(fragment(false, b""));
        raw.extend(fragment(true, b"cde"));
        let len = raw.len();
        raw.extend(b"next");
        let Ok(Parsed::Record(record)) = parse(&raw) else { panic!() };
        assert_eq!(record.consumed, len);
        assert_eq!(&*record.body(&raw), b"abcde");
        assert_eq!(record.first, 4..6);
        assert_eq!(record.more, std::iter::once(14..17).collect::<Vec<_>>());
    }

    #[test]
    fn one_fragment_is_borrowed() {
        let raw = [&Marker::whole(3).unwrap()[..], b"xyz"].concat();
        let Ok(Parsed::Record(record)) = parse(&raw) else { panic!() };
        assert!(matches!(record.body(&raw), Cow::Borrowed(b"xyz")));
        // Also between empty ones.
        let (empty, last) = (fragment(false, b""), fragment(true, b""));
        let raw = [&empty[..], &empty, &fragment(false, b"xyz"), &empty, &last].concat();
        let Ok(Parsed::Record(record)) = parse(&raw) else { panic!() };
        assert_eq!((record.consumed, record.len()), (raw.len(), 3));
        assert!(matches!(record.body(&raw), Cow::Borrowed(b"xyz")));
    }

    #[test]
    fn what_is_missing_is_said_exactly() {
        assert_eq!(parse(&[]), Ok(Parsed::Need(4)));
        assert_eq!(parse(&[0x80]), Ok(Parsed::Need(3)));
        assert_eq!(parse(&fragment(true, b"abc")[..5]), Ok(Parsed::Need(2)));
        assert_eq!(parse(&fragment(false, b"abc")[..5]), Ok(Parsed::Need(6)));
    }

    #[test]
    fn bounds_hold_before_the_bytes_arrive() {
        let huge = ((MAX_RECORD_BYTES + 1) as u32 | LAST).to_be_bytes();
        assert_eq!(parse(&huge), Err(RecordError::TooLong));
        assert_eq!(parse(&[0xff; 4]), Err(RecordError::TooLong));
        let mut summed = fragment(false, &[0; 10]);
        summed.extend((MAX_RECORD_BYTES as u32 - 5).to_be_bytes());
        assert_eq!(parse(&summed), Err(RecordError::TooLong));
        let empties = vec![0; MARKER_BYTES * MAX_FRAGMENTS];
        assert_eq!(parse(&empties), Err(RecordError::TooManyFragments));
        let most = [vec![0; MARKER_BYTES * (MAX_FRAGMENTS - 1)], fragment(true, b"")].concat();
        let Ok(Parsed::Record(record)) = parse(&most) else { panic!() };
        assert!(record.is_empty());
    }

    #[test]
    fn a_peer_may_be_held_to_less() {
        let raw = fragment(true, &[7; 11]);
        assert!(matches!(parse_within(&raw, 11), Ok(Parsed::Record(_))));
        assert_eq!(parse_within(&raw[..4], 10), Err(RecordError::TooLong));
        let cut = [fragment(false, &[7; 6]), fragment(true, &[7; 5])].concat();
        assert_eq!(parse_within(&cut[..14], 10), Err(RecordError::TooLong));
    }

    #[test]
    fn markers_survive_the_trip() {
        let raw = Marker::whole(7).unwrap();
        assert_eq!(Marker::parse(raw), Marker { last: true, len: 7 });
        assert_eq!(Marker::whole(1 << 31), None);
    }
}
