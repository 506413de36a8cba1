//! Position of bulk data in calls and replies of NFSv3 and NFSv4: found in the
//! first bytes of a record, so that the data can be received directly into its
//! final buffer. Only the forms that clients use for reads and writes are
//! recognized; every other record is received as a whole.

use crate::limits::{MAX_FH3_BYTES, MAX_LINK_BYTES, MAX_TRANSFER_BYTES};
use crate::v3::proc::{self as procedures, Procedure};
use crate::v3::{self, Attributes};
use crate::v4::walk::{Arguments, Results};
use crate::v4::{self, OpNum, Status};
use zgate_rpc::CallHeader;
use zgate_rpc::auth::RPCSEC_GSS;
use zgate_rpc::gss::{GssCredential, Service};
use zgate_rpc::message::decode_reply;
use zgate_xdr::{Decode, Decoder, XdrError};

const READ3: u32 = procedures::Read::NUMBER;
const WRITE3: u32 = procedures::Write::NUMBER;

/// Position of the data of a WRITE, from the first bytes of its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BulkPosition {
    /// More bytes are needed.
    NeedMore,
    /// Not a WRITE of a known form.
    None,
    /// The data.
    At {
        /// Its offset in the record.
        offset: usize,
        /// Returns its length in bytes.
        len: usize,
    },
}

/// Finds the data of a WRITE in the first bytes of a call.
#[must_use]
pub fn bulk_position(prefix: &[u8]) -> BulkPosition {
    let mut d = Decoder::new(prefix);
    let Ok(header) = CallHeader::decode(&mut d) else {
        // Truncated or not a call: with more bytes it is decided, up to the
        // caller's bound.
        return BulkPosition::NeedMore;
    };
    if hides_arguments(&header) {
        return BulkPosition::None;
    }
    let found = match (header.program, header.version, header.procedure) {
        (crate::PROGRAM, v4::VERSION, v4::COMPOUND) => written_in_compound(&mut d),
        (crate::PROGRAM, v3::VERSION, WRITE3) => written_by_write3(&mut d).map(Some),
        _ => return BulkPosition::None,
    };
    match found {
        Ok(Some((offset, len))) if len > 0 => BulkPosition::At { offset, len },
        Ok(_) => BulkPosition::None,
        Err(XdrError::Short) => BulkPosition::NeedMore,
        Err(_) => BulkPosition::None,
    }
}

/// Returns whether the arguments of a call are signed or encrypted (RFC 2203
/// §5.3.2): they are decoded only after they have been verified.
fn hides_arguments(header: &CallHeader) -> bool {
    header.credential.flavor == RPCSEC_GSS
        && !GssCredential::parse(&header.credential)
            .is_ok_and(|credential| credential.service == Service::None)
}

fn written_by_write3(d: &mut Decoder<'_>) -> Result<(usize, usize), XdrError> {
    d.opaque(MAX_FH3_BYTES)?;
    // Offset, count, stability.
    d.take(8 + 4 + 4)?;
    d.bulk_position(MAX_TRANSFER_BYTES)
}

fn written_in_compound(d: &mut Decoder<'_>) -> Result<Option<(usize, usize)>, XdrError> {
    let mut operations = Arguments::open(d)?;
    while let Some(op) = operations.next_op()? {
        if op == OpNum::Write {
            // Stateid, offset, stability.
            operations.d.take(16 + 8 + 4)?;
            return operations.d.bulk_position(MAX_TRANSFER_BYTES).map(Some);
        }
        if !operations.skip(op)? {
            break;
        }
    }
    Ok(None)
}

/// Offset and length of the data of a COMPOUND that ends with a READ, from the
/// first bytes of its reply.
#[must_use]
pub fn read_position(reply: &[u8]) -> Option<(usize, usize)> {
    let mut d = Decoder::new(reply);
    decode_reply(&mut d).ok()?;
    let mut results = Results::open(&mut d).ok()?;
    while let Some((op, Status::Ok)) = results.next_op().ok()? {
        if op == OpNum::Read && results.is_last() {
            bool::decode(results.d).ok()?;
            return results.d.bulk_position(MAX_TRANSFER_BYTES).ok();
        }
        if !results.skip(op).ok()? {
            break;
        }
    }
    None
}

/// Results of a call that a transport may place directly into the caller's
/// memory (RFC 8267).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DirectResults {
    /// Greatest length of each in bytes.
    pub max_bytes: Vec<usize>,
    version: u32,
}

impl DirectResults {
    /// The direct results of a call.
    #[must_use]
    pub fn of_call(call: &[u8]) -> Self {
        let mut d = Decoder::new(call);
        let mut results = Self::default();
        let Ok(header) = CallHeader::decode(&mut d) else { return results };
        results.version = header.version;
        if hides_arguments(&header) {
            return results;
        }
        // An error ends the search; the results found before it count.
        let _ = match (header.program, header.version, header.procedure) {
            (crate::PROGRAM, v3::VERSION, READ3) => results.asked_by_read3(&mut d),
            (crate::PROGRAM, v4::VERSION, v4::COMPOUND) => results.asked_in_compound(&mut d),
            _ => Ok(()),
        };
        results
    }

    fn asked_by_read3(&mut self, d: &mut Decoder<'_>) -> Result<(), XdrError> {
        let args = procedures::read::Args::decode(d)?;
        self.max_bytes.push(args.count as usize);
        Ok(())
    }

    fn asked_in_compound(&mut self, d: &mut Decoder<'_>) -> Result<(), XdrError> {
        let mut operations = Arguments::open(d)?;
        while let Some(op) = operations.next_op()? {
            match op {
                OpNum::Read => {
                    let args = v4::op::read::Args::decode(operations.d)?;
                    self.max_bytes.push(args.count as usize);
                }
                OpNum::Readlink => self.max_bytes.push(MAX_LINK_BYTES),
                op if operations.skip(op)? => {}
                _ => break,
            }
        }
        Ok(())
    }

    /// Offsets of the `placed` directly placed results in a reply that was
    /// received without them.
    #[must_use]
    pub fn offsets(&self, reply: &[u8], placed: usize) -> Vec<usize> {
        let mut offsets = Vec::new();
        let mut d = Decoder::new(reply);
        if decode_reply(&mut d).is_ok() {
            let _ = match self.version {
                v3::VERSION => find_read3(&mut d, &mut offsets),
                _ => find_in_compound(&mut d, placed, &mut offsets),
            };
        }
        offsets
    }
}

fn find_read3(d: &mut Decoder<'_>, offsets: &mut Vec<usize>) -> Result<(), XdrError> {
    if v3::Status::decode(d)? == v3::Status::Ok {
        Option::<Attributes>::decode(d)?;
        // Count, eof, and the length of the data.
        d.take(4 + 4 + 4)?;
        offsets.push(d.position());
    }
    Ok(())
}

fn find_in_compound(
    d: &mut Decoder<'_>,
    placed: usize,
    offsets: &mut Vec<usize>,
) -> Result<(), XdrError> {
    let mut results = Results::open(d)?;
    while let Some((op, Status::Ok)) = results.next_op()? {
        if matches!(op, OpNum::Read | OpNum::Readlink) {
            if op == OpNum::Read {
                bool::decode(results.d)?;
            }
            let (offset, len) = results.d.bulk_position(MAX_TRANSFER_BYTES)?;
            // RFC 8267 §6.4.1: a result without a chunk is inline.
            if offsets.len() < placed {
                offsets.push(offset);
            } else {
                results.d.opaque_fixed(len)?;
            }
        } else if !results.skip(op)? {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v3::{Fh3, StableHow as StableHow3};
    use crate::v4::op::{sequence, write};
    use crate::v4::{Fh, StableHow, Stateid};
    use bytes::Bytes;
    use zgate_rpc::auth::OpaqueAuth;
    use zgate_rpc::message::encode_success;
    use zgate_xdr::{Encode, Encoder};

    fn call(version: u32, procedure: u32) -> Encoder {
        let mut e = Encoder::new();
        let (credential, verifier) = (OpaqueAuth::none(), OpaqueAuth::none());
        let program = crate::PROGRAM;
        CallHeader { xid: 1, program, version, procedure, credential, verifier }.encode(&mut e);
        e
    }

    fn record() -> Vec<u8> {
        let mut e = call(v4::VERSION, v4::COMPOUND);
        e.opaque(b"tag");
        e.u32(0);
        e.u32(2);
        OpNum::Putfh.encode(&mut e);
        Fh(vec![5; 21]).encode(&mut e);
        OpNum::Write.encode(&mut e);
        let args = write::Args {
            stateid: Stateid::ANONYMOUS,
            offset: 9,
            stable: StableHow::Unstable,
            data: Bytes::from(vec![0xab; 1001]),
        };
        args.encode(&mut e);
        e.finish().flatten().unwrap().to_vec()
    }

    #[test]
    fn the_body_of_a_write_is_found_from_every_long_enough_prefix() {
        let record = record();
        let at = record.len() - 1004;
        for len in 0..record.len() {
            let seen = bulk_position(&record[..len]);
            if len < at {
                assert_eq!(seen, BulkPosition::NeedMore, "{len}");
            } else {
                assert_eq!(seen, BulkPosition::At { offset: at, len: 1001 }, "{len}");
            }
        }
        assert_eq!(&record[at..at + 1001], &[0xab; 1001]);
    }

    /// Signed and encrypted arguments are no WRITE to whoever has not verified
    /// them; behind a signed header they are.
    #[test]
    fn arguments_that_are_protected_are_left_alone() {
        let whole = record();
        let arguments = &whole[10 * 4..];
        for service in Service::ALL {
            let credential = GssCredential {
                procedure: zgate_rpc::gss::Procedure::Data,
                sequence: 1,
                service,
                handle: None,
                has_no_handle: true,
            };
            let mut e = Encoder::new();
            let header = CallHeader {
                xid: 1,
                program: crate::PROGRAM,
                version: v4::VERSION,
                procedure: v4::COMPOUND,
                credential: credential.to_opaque(),
                verifier: OpaqueAuth { flavor: RPCSEC_GSS, body: vec![0; 28] },
            };
            header.encode(&mut e);
            e.raw(arguments);
            let raw = e.finish().flatten().unwrap();
            let seen = bulk_position(&raw[..raw.len() - 1004]);
            if service == Service::None {
                let offset = raw.len() - 1004;
                assert_eq!(seen, BulkPosition::At { offset, len: 1001 });
            } else {
                assert_eq!(seen, BulkPosition::None, "{service:?}");
                assert_eq!(DirectResults::of_call(&raw).max_bytes, []);
            }
        }
    }

    #[test]
    fn the_body_of_write3_is_found_before_it_arrives() {
        let mut e = call(v3::VERSION, WRITE3);
        let args = procedures::write::Args {
            file: Fh3(vec![1; 13]),
            offset: 0,
            count: 5,
            stable: StableHow3::FileSync,
            data: Bytes::from_static(b"data!"),
        };
        args.encode(&mut e);
        let raw = e.finish().flatten().unwrap();
        let seen = bulk_position(&raw[..raw.len() - 8]);
        let BulkPosition::At { offset, len } = seen else { panic!("{seen:?}") };
        assert_eq!(&raw[offset..offset + len], b"data!");
    }

    #[test]
    fn the_data_of_a_reply_that_ends_with_a_read_is_found() {
        let reply = |behind: u32| {
            let mut e = Encoder::new();
            encode_success(&mut e, 1);
            Status::Ok.encode(&mut e);
            e.opaque(b"tag");
            e.u32(3 + behind);
            OpNum::Sequence.encode(&mut e);
            Status::Ok.encode(&mut e);
            let words = sequence::Res {
                session: Default::default(),
                sequence: 1,
                slot: 0,
                highest_slot: 1,
                target_highest_slot: 1,
                status_flags: 0,
            };
            words.encode(&mut e);
            OpNum::Putfh.encode(&mut e);
            Status::Ok.encode(&mut e);
            OpNum::Read.encode(&mut e);
            Status::Ok.encode(&mut e);
            true.encode(&mut e);
            e.opaque(b"hello");
            e.finish().flatten().unwrap()
        };
        let raw = reply(0);
        for len in 0..raw.len() - 8 {
            assert_eq!(read_position(&raw[..len]), None, "{len}");
        }
        let (at, len) = read_position(&raw[..raw.len() - 8]).unwrap();
        assert_eq!(&raw[at..at + len], b"hello");
        // The bytes after it would be taken for the data.
        assert_eq!(read_position(&reply(1)), None);
    }

    #[test]
    fn results_of_read_are_found_on_both_sides() {
        let mut e = Encoder::new();
        for word in [7, 0, 2, crate::PROGRAM, 4, v4::COMPOUND, 0, 0, 0, 0, 0, 1, 4] {
            e.u32(word);
        }
        OpNum::Putrootfh.encode(&mut e);
        for count in [100, 200] {
            OpNum::Read.encode(&mut e);
            Stateid::ANONYMOUS.encode(&mut e);
            e.u64(0);
            e.u32(count);
        }
        OpNum::Readlink.encode(&mut e);
        let call = e.finish().flatten().unwrap();
        let results = DirectResults::of_call(&call);
        assert_eq!(results.max_bytes, [100, 200, MAX_LINK_BYTES]);
        let mut e = Encoder::new();
        for word in [7, 1, 0, 0, 0, 0, 0, 0, 4, 24, 0, 25, 0, 0, 100, 25, 0, 1, 50, 27, 0, 8] {
            e.u32(word);
        }
        let reply = e.finish().flatten().unwrap();
        assert_eq!(results.offsets(&reply, 3), [60, 76, 88]);
    }
}
