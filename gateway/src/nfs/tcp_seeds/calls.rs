//! Calls of NFSv3 and their replies, as bytes.

use zgate_rpc::record::Marker;

/// Content of the only file.
pub(super) const FILL: u8 = 7;
/// Length of the only file in bytes, and of the longest READ and WRITE.
pub(super) const FILE_BYTES: usize = 1 << 20;
/// Length of a record in bytes from which it waits for memory.
const LARGE_BYTES: usize = 32 << 10;

/// Program, version and procedures of NFSv3 (RFC 1813 §3).
const PROGRAM: u32 = 100_003;
const VERSION: u32 = 3;
const READ: u32 = 6;
const WRITE: u32 = 7;
/// FILE_SYNC (RFC 1813 §3.3.7).
const FILE_SYNC: u32 = 2;
/// Bytes of the header of an accepted call (RFC 5531 §9).
const SUCCESS_BYTES: usize = 24;

/// A call; lengths are in bytes and multiples of four.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    Null,
    Read(usize),
    Write(usize),
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// Variable-length opaque data (RFC 4506 §4.10).
fn opaque(data: &[u8]) -> Vec<u8> {
    let mut encoded = words(&[data.len() as u32]);
    encoded.extend_from_slice(data);
    encoded.resize(encoded.len().next_multiple_of(4), 0);
    encoded
}

impl Call {
    /// Returns the call of the file with this handle, without a marker.
    pub(super) fn record(self, xid: u32, file: &[u8]) -> Vec<u8> {
        let procedure = match self {
            Self::Null => 0,
            Self::Read(_) => READ,
            Self::Write(_) => WRITE,
        };
        // A call of RPC version 2, with AUTH_NONE twice.
        let mut record = words(&[xid, 0, 2, PROGRAM, VERSION, procedure, 0, 0, 0, 0]);
        match self {
            Self::Null => {}
            Self::Read(bytes) => {
                record.extend(opaque(file));
                record.extend(words(&[0, 0, bytes as u32]));
            }
            Self::Write(bytes) => {
                record.extend(opaque(file));
                record.extend(words(&[0, 0, bytes as u32, FILE_SYNC]));
                record.extend(opaque(&vec![FILL; bytes]));
            }
        }
        record
    }

    /// Returns whether it may have to wait for memory.
    pub(super) fn is_large(self) -> bool {
        matches!(self, Self::Write(bytes) if bytes >= LARGE_BYTES)
    }

    /// Checks the reply.
    ///
    /// # Errors
    /// The reason for which it is not that of a call that succeeded.
    pub(super) fn check(self, reply: &[u8]) -> Result<(), String> {
        let word = |at: usize| {
            let bytes = reply.get(4 * at..)?.first_chunk::<4>()?;
            Some(u32::from_be_bytes(*bytes))
        };
        // REPLY, MSG_ACCEPTED, the verifier AUTH_NONE, SUCCESS.
        if [1, 2, 3, 4, 5].map(word) != [1, 0, 0, 0, 0].map(Some) {
            return Err(format!("{self:?} was not accepted: {:x?}", &reply[..reply.len().min(40)]));
        }
        let is_ok = match self {
            Self::Null => reply.len() == SUCCESS_BYTES,
            Self::Read(bytes) => {
                let data = reply.len().checked_sub(bytes).map(|at| &reply[at..]);
                word(6) == Some(0) && data == Some(&vec![FILL; bytes][..])
            }
            Self::Write(_) => word(6) == Some(0),
        };
        if is_ok { Ok(()) } else { Err(format!("{self:?} failed: status {:?}", word(6))) }
    }
}

/// Frames a record in so many fragments, each of at least one byte (RFC 5531 §11).
pub(super) fn framed(record: &[u8], fragments: usize) -> Vec<u8> {
    let each = record.len().div_ceil(fragments.max(1)).max(1);
    let mut bytes = Vec::with_capacity(record.len() + 4 * fragments);
    let mut rest = record;
    while !rest.is_empty() {
        let (fragment, later) = rest.split_at(each.min(rest.len()));
        let mut marker = Marker::whole(fragment.len()).unwrap();
        if !later.is_empty() {
            marker[0] &= 0x7f;
        }
        bytes.extend_from_slice(&marker);
        bytes.extend_from_slice(fragment);
        rest = later;
    }
    bytes
}

/// Takes the complete records out of what was received, without their markers.
///
/// # Errors
/// If a record has more than one fragment: the gateway sends none.
pub(super) fn take_records(received: &mut Vec<u8>) -> Result<Vec<Vec<u8>>, String> {
    let (mut records, mut at) = (Vec::new(), 0);
    while let Some(marker) = received[at..].first_chunk::<4>() {
        let marker = Marker::parse(*marker);
        if !marker.last {
            return Err("a reply in fragments".to_owned());
        }
        let Some(record) = received.get(at + 4..at + 4 + marker.len) else { break };
        records.push(record.to_vec());
        at += 4 + marker.len;
    }
    received.drain(..at);
    Ok(records)
}
