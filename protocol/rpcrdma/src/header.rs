//! The transport header (RFC 8166 §4.2).

use crate::limits::MIN_HEADER_BYTES;
use crate::segment::Chunks;
use thiserror::Error;
use zgate_xdr::{Decode, Decoder, Encode, Encoder};

/// Version of the protocol implemented here.
pub const VERSION: u32 = 1;

const MSG: u32 = 0;
const NOMSG: u32 = 1;
const MSGP: u32 = 2;
const DONE: u32 = 3;
const ERROR: u32 = 4;

const ERR_VERS: u32 = 1;
const ERR_CHUNK: u32 = 2;

/// Transaction id, equal to that of the RPC message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Xid(pub u32);

/// Reason for which a message could not be processed (RFC 8166 §4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorBody {
    /// ERR_VERS: the supported versions.
    Version {
        /// Version of the message that is answered, which the answer has as well.
        asked: u32,
        /// Lowest version.
        low: u32,
        /// Highest version.
        high: u32,
    },
    /// ERR_CHUNK: the header or its chunks cannot be used.
    Chunk,
}

/// Type of a message, with its chunk lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// RDMA_MSG: the RPC message, or the rest of it, follows the header.
    Message(Chunks),
    /// RDMA_NOMSG: the RPC message lies in the memory of the chunk lists.
    NoMessage(Chunks),
    /// RDMA_DONE of an older protocol; ignored (RFC 8166 §4.6.2).
    Done,
    /// RDMA_ERROR.
    Error(ErrorBody),
}

/// A transport header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Transaction id.
    pub xid: Xid,
    /// Credits requested by a call, or granted by a reply. Zero is possible on
    /// the wire and means one.
    pub credits: u32,
    /// Type and chunk lists.
    pub body: Body,
}

/// Fault of the peer: not a valid header.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum HeaderError {
    /// Too short to be answered, or an error about an error: drop the message.
    #[error("a message that cannot be answered: {0}")]
    Unanswerable(&'static str),
    /// Another version: answer with ERR_VERS.
    #[error("RPC-over-RDMA version {version}")]
    Version {
        /// Transaction id.
        xid: Xid,
        /// Requested version.
        version: u32,
    },
    /// Chunk lists that cannot be decoded or exceed the limits: answer with
    /// ERR_CHUNK.
    #[error("bad chunk lists: {why}")]
    Chunk {
        /// Transaction id.
        xid: Xid,
        /// Fault, for the log.
        why: &'static str,
    },
}

impl HeaderError {
    /// Returns transaction id and error of the answer, if there is one.
    #[must_use]
    pub fn answer(&self) -> Option<(Xid, ErrorBody)> {
        match *self {
            Self::Unanswerable(_) => None,
            // RFC 8166 §4.5.1: the range of supported versions.
            Self::Version { xid, version } => {
                Some((xid, ErrorBody::Version { asked: version, low: VERSION, high: VERSION }))
            }
            Self::Chunk { xid, .. } => Some((xid, ErrorBody::Chunk)),
        }
    }
}

/// A decoded header and the bytes behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded<'a> {
    /// The header.
    pub header: Header,
    /// The inline part of the RPC message.
    pub inline: &'a [u8],
}

impl Header {
    /// Decodes the header at the start of a received message.
    ///
    /// # Errors
    /// [`HeaderError`], which knows its answer.
    pub fn decode(message: &[u8]) -> Result<Decoded<'_>, HeaderError> {
        const SHORT: HeaderError = HeaderError::Unanswerable("shorter than a header");
        let mut d = Decoder::new(message);
        let mut word = || d.u32().map_err(|_| SHORT);
        let (xid, version, credits, procedure) = (Xid(word()?), word()?, word()?, word()?);
        // RFC 8166 §4.5: not even its transaction id can be trusted. Only what is never
        // answered may be so short.
        let has_lists = version != VERSION || !matches!(procedure, DONE | ERROR);
        if has_lists && message.len() < MIN_HEADER_BYTES {
            return Err(SHORT);
        }
        if version != VERSION {
            // An error about an error would be answered forever.
            return Err(match procedure {
                ERROR => HeaderError::Unanswerable("an error of another version"),
                _ => HeaderError::Version { xid, version },
            });
        }
        let bad = |why| move |_| HeaderError::Chunk { xid, why };
        let body = match procedure {
            MSG => Body::Message(Chunks::decode(&mut d).map_err(bad("chunk lists"))?),
            NOMSG => {
                let chunks = Chunks::decode(&mut d).map_err(bad("chunk lists"))?;
                d.finish().map_err(bad("bytes behind RDMA_NOMSG"))?;
                Body::NoMessage(chunks)
            }
            DONE => Body::Done,
            ERROR => Body::Error(decode_error(&mut d)?),
            // RFC 8166 §4.6.1: obsolete and must not be sent.
            MSGP => return Err(HeaderError::Chunk { xid, why: "RDMA_MSGP" }),
            _ => return Err(HeaderError::Chunk { xid, why: "unknown procedure" }),
        };
        Ok(Decoded { header: Self { xid, credits, body }, inline: d.rest() })
    }

    /// Encodes the header.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let version = match self.body {
            // RFC 8166 §4.5: that of the message that is answered.
            Body::Error(ErrorBody::Version { asked, .. }) => asked,
            _ => VERSION,
        };
        let mut e = Encoder::with_capacity(128);
        e.u32(self.xid.0);
        e.u32(version);
        e.u32(self.credits);
        match &self.body {
            Body::Message(chunks) => {
                e.u32(MSG);
                chunks.encode(&mut e);
            }
            Body::NoMessage(chunks) => {
                e.u32(NOMSG);
                chunks.encode(&mut e);
            }
            Body::Done => e.u32(DONE),
            Body::Error(error) => {
                e.u32(ERROR);
                match *error {
                    ErrorBody::Version { low, high, .. } => {
                        e.u32(ERR_VERS);
                        e.u32(low);
                        e.u32(high);
                    }
                    ErrorBody::Chunk => e.u32(ERR_CHUNK),
                }
            }
        }
        e.finish().flatten().map(|bytes| bytes.to_vec()).unwrap_or_default()
    }
}

fn decode_error(d: &mut Decoder<'_>) -> Result<ErrorBody, HeaderError> {
    let short = |_| HeaderError::Unanswerable("an error cut short");
    match d.u32().map_err(short)? {
        ERR_VERS => {
            let (low, high) = (d.u32().map_err(short)?, d.u32().map_err(short)?);
            Ok(ErrorBody::Version { asked: VERSION, low, high })
        }
        ERR_CHUNK => Ok(ErrorBody::Chunk),
        _ => Err(HeaderError::Unanswerable("an unknown error")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::FIXED_HEADER_BYTES;
    use crate::segment::{ReadSegment, Segment, WriteChunk};

    fn chunks() -> Chunks {
        let segment = Segment { handle: 7, length: 8192, offset: 1 << 40 };
        Chunks {
            reads: vec![ReadSegment { position: 148, target: segment }],
            writes: vec![WriteChunk { segments: vec![segment, segment] }, WriteChunk::default()],
            reply: Some(WriteChunk { segments: vec![segment] }),
        }
    }

    #[test]
    fn every_body_survives_the_trip() {
        for body in [
            Body::Message(Chunks::default()),
            Body::Message(chunks()),
            Body::NoMessage(chunks()),
            Body::Done,
            Body::Error(ErrorBody::Chunk),
            Body::Error(ErrorBody::Version { asked: 1, low: 1, high: 1 }),
        ] {
            let header = Header { xid: Xid(0x0a0b_0c0d), credits: 32, body };
            let mut bytes = header.encode();
            assert_eq!(Header::decode(&bytes).unwrap().header, header);
            for cut in 0..bytes.len() {
                assert!(Header::decode(&bytes[..cut]).is_err());
            }
            bytes.extend_from_slice(b"rest");
            match header.body {
                Body::NoMessage(_) => assert!(Header::decode(&bytes).is_err()),
                _ => assert_eq!(Header::decode(&bytes).unwrap().inline, b"rest"),
            }
        }
    }

    #[test]
    fn what_cannot_be_processed_knows_its_answer() {
        let body = Body::Message(Chunks::default());
        let mut bytes = Header { xid: Xid(5), credits: 1, body }.encode();
        bytes[7] = 2;
        let (xid, error) = Header::decode(&bytes).unwrap_err().answer().unwrap();
        assert_eq!((xid, error), (Xid(5), ErrorBody::Version { asked: 2, low: 1, high: 1 }));
        let answer = Header { xid, credits: 1, body: Body::Error(error) }.encode();
        let words: Vec<u8> = answer.chunks(4).map(|word| word[3]).collect();
        assert_eq!(words, [5, 2, 1, 4, 1, 1, 1], "in the version of the message");
        bytes[15] = ERROR as u8;
        assert_eq!(Header::decode(&bytes).unwrap_err().answer(), None);
        bytes[7] = 1;
        for procedure in [MSGP as u8, 5, 255] {
            bytes[15] = procedure;
            let error = Header::decode(&bytes).unwrap_err();
            assert_eq!(error.answer(), Some((Xid(5), ErrorBody::Chunk)));
        }
    }

    #[test]
    fn what_is_shorter_than_any_call_is_not_answered() {
        let body = Body::Message(Chunks::default());
        let whole = Header { xid: Xid(5), credits: 1, body }.encode();
        assert_eq!(whole.len(), MIN_HEADER_BYTES);
        for (version, procedure) in [(1, MSG), (1, NOMSG), (1, MSGP), (1, 9), (2, MSG), (2, DONE)] {
            let mut bytes = whole.clone();
            (bytes[7], bytes[15]) = (version, procedure as u8);
            for len in 0..MIN_HEADER_BYTES {
                let error = Header::decode(&bytes[..len]).unwrap_err();
                assert_eq!(error.answer(), None, "{version} {procedure} {len}");
            }
        }
        let done = Header { xid: Xid(5), credits: 1, body: Body::Done }.encode();
        assert_eq!(done.len(), FIXED_HEADER_BYTES);
        assert!(Header::decode(&done).is_ok());
    }
}
