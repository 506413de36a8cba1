//! Operations of calls, for faults that are planted into their records, and for
//! memory that a client offers.

use bytes::Bytes;
use zgate_nfs_wire::v4::{COMPOUND, Fh, OpNum, op};
use zgate_rpc::CallHeader;
use zgate_xdr::{Decode, Decoder};

/// A planted fault: the reply of a RENEW, made a success.
pub(super) fn renewed(record: &Bytes, reply: Bytes) -> Bytes {
    /// xid, REPLY, MSG_ACCEPTED, AUTH_NONE, SUCCESS.
    const HEADER_BYTES: usize = 24;
    // Status, an empty tag, one result, its operation, its status.
    let (status, operation, last) = (HEADER_BYTES, HEADER_BYTES + 12, HEADER_BYTES + 16);
    let is_renew = first_operation(record) == Some(OpNum::Renew as u32)
        && reply.get(operation..last) == Some(&(OpNum::Renew as u32).to_be_bytes()[..]);
    if !is_renew || reply.len() != last + 4 {
        return reply;
    }
    let mut changed = reply.to_vec();
    changed[status..status + 4].fill(0);
    changed[last..].fill(0);
    changed.into()
}

/// A planted fault: the record of an OPEN, without its deny modes.
pub(super) fn without_deny(record: &Bytes) -> Bytes {
    /// Behind the sequence number and the access modes.
    const DENY: usize = 8;
    let at = operand(record, OpNum::Open, u32::MAX).map(|at| at + DENY);
    let Some(at) = at else { return record.clone() };
    let mut changed = record.to_vec();
    changed[at..at + 4].fill(0);
    changed.into()
}

/// Place of an operation's arguments, behind SEQUENCE and PUTFH in a COMPOUND;
/// 0 for an NFSv3 call of `procedure`.
#[must_use]
pub fn operand(record: &[u8], wanted: OpNum, procedure: u32) -> Option<usize> {
    let mut d = Decoder::new(record);
    let header = CallHeader::decode(&mut d).ok()?;
    if header.version == zgate_nfs_wire::v3::VERSION {
        return (header.procedure == procedure).then_some(0);
    }
    if header.procedure != COMPOUND {
        return None;
    }
    d.opaque(64).ok()?;
    let (_minor, count) = (d.u32().ok()?, d.u32().ok()?);
    for _ in 0..count {
        match d.u32().ok()? {
            number if number == wanted as u32 => return Some(d.position()),
            number if number == OpNum::Sequence as u32 => {
                op::sequence::Args::decode(&mut d).ok()?;
            }
            number if number == OpNum::Putfh as u32 => {
                Fh::decode(&mut d).ok()?;
            }
            _ => return None,
        }
    }
    None
}

/// Number of the first operation of a COMPOUND.
fn first_operation(record: &Bytes) -> Option<u32> {
    let mut d = Decoder::new(record);
    CallHeader::decode(&mut d).ok()?;
    d.opaque(64).ok()?;
    let (_minor, _count) = (d.u32().ok()?, d.u32().ok()?);
    d.u32().ok()
}
