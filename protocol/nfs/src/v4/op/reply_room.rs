//! Room for the result of an operation that changes something. Without it the operation is not
//! run: its error would tell the client that nothing was done (RFC 8881 §2.10.6.4).

use crate::limits::FH_PREFIX_BYTES;
use crate::v4::request::Cx;
use zgate_nfs_wire::v4::{OpNum, Status};
use zgate_store::handle::MAX_NODE_HANDLE_BYTES;
use zgate_xdr::{Decode, Decoder};

/// Number of the operation, and status.
const HEAD_BYTES: usize = 4 + 4;
const STATEID_BYTES: usize = 4 + 12;
const CHANGE_INFO_BYTES: usize = 4 + 8 + 8;
/// A bitmap of attributes that were set: three words at most.
const BITMAP_BYTES: usize = 4 + 3 * 4;
/// A delegation to write: kind, stateid, recall, limit, an entry of an ACL without a name.
const DELEGATION_BYTES: usize = 4 + STATEID_BYTES + 4 + (4 + 8) + 4 * 4;
/// One channel of a session: six numbers, and the length of ca_rdma_ird.
const CHANNEL_BYTES: usize = 7 * 4;
/// A copy that goes on: its stateid, bytes, stability, verifier, two answers to what was asked.
const COPY_BYTES: usize = 4 + STATEID_BYTES + 8 + 4 + 8 + 2 * 4;
/// GETFH of the longest handle.
const GETFH_BYTES: usize =
    HEAD_BYTES + 4 + (FH_PREFIX_BYTES + MAX_NODE_HANDLE_BYTES).next_multiple_of(4);

/// Returns the length of the longest successful result behind its status, in bytes; `None` for an
/// operation that changes nothing, or whose repetition does the same.
const fn longest_result(op: OpNum) -> Option<usize> {
    Some(match op {
        OpNum::Allocate
        | OpNum::BackchannelCtl
        | OpNum::Clone
        | OpNum::Deallocate
        | OpNum::Delegpurge
        | OpNum::Delegreturn
        | OpNum::DestroyClientid
        | OpNum::DestroySession
        | OpNum::FreeStateid
        | OpNum::OffloadCancel
        | OpNum::ReclaimComplete
        | OpNum::ReleaseLockowner
        | OpNum::SetclientidConfirm => 0,
        OpNum::Close | OpNum::Lock | OpNum::Locku | OpNum::OpenConfirm | OpNum::OpenDowngrade => {
            STATEID_BYTES
        }
        OpNum::Link | OpNum::Remove | OpNum::Removexattr | OpNum::Setxattr => CHANGE_INFO_BYTES,
        OpNum::Copy => COPY_BYTES,
        OpNum::Create => CHANGE_INFO_BYTES + BITMAP_BYTES,
        // Session, sequence number, flags.
        OpNum::CreateSession => 16 + 4 + 4 + 2 * CHANNEL_BYTES,
        OpNum::Open => STATEID_BYTES + CHANGE_INFO_BYTES + 4 + BITMAP_BYTES + DELEGATION_BYTES,
        OpNum::Rename => 2 * CHANGE_INFO_BYTES,
        OpNum::Setattr => BITMAP_BYTES,
        // Client, verifier.
        OpNum::Setclientid => 8 + 8,
        // Count, stability, verifier.
        OpNum::Write => 4 + 4 + 8,
        _ => return None,
    })
}

/// Checks before an operation runs that its result has room. `d` is at the next operation: if
/// that is GETFH, it tells the handle of what OPEN or CREATE has made, and has room as well.
///
/// # Errors
/// The status for an answer that is too big.
pub(super) fn check(cx: &Cx<'_>, op: OpNum, d: &Decoder<'_>) -> Result<(), Status> {
    let Some(result_bytes) = longest_result(op) else { return Ok(()) };
    let tells_handle = matches!(op, OpNum::Open | OpNum::Create)
        && cx.op_index + 1 < cx.op_count
        && OpNum::decode(&mut d.clone()) == Ok(OpNum::Getfh);
    let behind = if tells_handle { GETFH_BYTES } else { 0 };
    if HEAD_BYTES + result_bytes + behind > cx.reply_room {
        return Err(cx.reply_limit().1);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use zgate_nfs_wire::v4::op::create_session::{ChannelAttrs, Res as NewSession};
    use zgate_nfs_wire::v4::op::open::{Delegated, Res as Opened};
    use zgate_nfs_wire::v4::op::{copy, write};
    use zgate_nfs_wire::v4::{Bitmap, ChangeInfo, SessionId, StableHow, Stateid};
    use zgate_xdr::{Encode, Encoder};

    fn assert_longest(op: OpNum, result: &impl Encode) {
        let mut e = Encoder::new();
        result.encode(&mut e);
        assert_eq!(longest_result(op), Some(e.len()), "{}", op.name());
    }

    #[test]
    fn results_are_as_long_as_they_are_written() {
        let (stateid, attrs_set) = (Stateid::ANONYMOUS, Bitmap::of(&[4, 33, 81]));
        let change = ChangeInfo { atomic: true, before: 1, after: 2 };
        let delegated =
            Delegated::Write { stateid, recall: false, limit_bytes: u64::MAX, attrs: true };
        assert_longest(OpNum::Setattr, &attrs_set);
        assert_longest(OpNum::Remove, &change);
        assert_longest(OpNum::Open, &Opened { stateid, change, flags: 4, attrs_set, delegated });
        let (committed, verifier) = (StableHow::Unstable, [0; 8]);
        assert_longest(OpNum::Write, &write::Res { count: 1, committed, verifier });
        let copied = copy::Res {
            callback: Some(stateid),
            count: 1,
            committed,
            verifier,
            consecutive: true,
            synchronous: false,
        };
        assert_longest(OpNum::Copy, &copied);
        let channel = ChannelAttrs {
            header_pad_bytes: 0,
            max_request_bytes: 1,
            max_response_bytes: 1,
            max_cached_bytes: 1,
            max_ops: 1,
            slots: 1,
        };
        let session = SessionId::default();
        let made = NewSession { session, sequence: 1, flags: 0, fore: channel, back: channel };
        assert_longest(OpNum::CreateSession, &made);
        assert_eq!(longest_result(OpNum::Read), None);
    }
}
