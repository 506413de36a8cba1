//! Callbacks as RPC calls.

use crate::limits::FH_PREFIX_BYTES;
use crate::v4::tables::delegation::Delegation;
use crate::v4::tables::session::CallbackHeader;
use zgate_nfs_wire::v4::callback::{
    CB_COMPOUND, CB_NULL, CallHead, CallbackOp, Reply, Sequence, VERSION,
};
use zgate_nfs_wire::v4::{Fh, SessionId, Stateid, Status};
use zgate_rpc::CallHeader;
use zgate_rpc::auth::OpaqueAuth;
use zgate_store::handle::MAX_NODE_HANDLE_BYTES;
use zgate_xdr::{Decode, Decoder, Encode, Encoder, Message, Opaque, XdrError};

/// The call that recalls this delegation.
#[must_use]
pub fn recall_call(delegation: &Delegation) -> CallbackOp {
    CallbackOp::Recall {
        stateid: delegation.key.stateid(delegation.seqid),
        truncate: false,
        fh: delegation.fh.clone(),
    }
}

fn begin(xid: u32, to: &CallbackHeader, procedure: u32) -> Encoder {
    let mut e = Encoder::new();
    let header = CallHeader {
        xid,
        program: to.program,
        version: VERSION,
        procedure,
        credential: to.credential.clone(),
        verifier: OpaqueAuth::none(),
    };
    header.encode(&mut e);
    e
}

/// Encodes a CB_COMPOUND call. `minor` 0 has no session and carries `ident`.
pub(super) fn encode_call(
    xid: u32,
    to: &CallbackHeader,
    ident: u32,
    slot: Option<&Sequence>,
    ops: &[CallbackOp],
) -> Message {
    let mut e = begin(xid, to, CB_COMPOUND);
    let count = ops.len() as u32 + u32::from(slot.is_some());
    CallHead { tag: Opaque::default(), minor: to.minor.into(), ident, count }.encode(&mut e);
    if let Some(slot) = slot {
        CallbackOp::Sequence(slot.clone()).encode(&mut e);
    }
    ops.iter().for_each(|op| op.encode(&mut e));
    e.finish()
}

/// Encodes a call in a session for which the client has room: without its referring calls if
/// these make it too long. `None`: it is too long without them.
pub(super) fn encode_within(
    max_bytes: u32,
    xid: u32,
    to: &CallbackHeader,
    at: &mut Sequence,
    ops: &[CallbackOp],
) -> Option<Message> {
    let has_room = |call: &Message| call.len() <= max_bytes as usize;
    let call = encode_call(xid, to, 0, Some(&*at), ops);
    if has_room(&call) {
        return Some(call);
    }
    at.referring.clear();
    Some(encode_call(xid, to, 0, Some(&*at), ops)).filter(has_room)
}

/// Length of the longest recall in a session, with its RPC header, as ca_maxrequestsize counts
/// (RFC 8881 §18.36.3). It has no referring calls: they are left out where they have no room.
pub(crate) fn longest_recall_bytes(to: &CallbackHeader) -> usize {
    let slot = Sequence {
        session: SessionId::default(),
        sequence: 0,
        slot: 0,
        highest_slot: 0,
        cache_this: false,
        referring: Vec::new(),
    };
    let fh = Fh(vec![0; FH_PREFIX_BYTES + MAX_NODE_HANDLE_BYTES]);
    let recall = CallbackOp::Recall { stateid: Stateid::default(), truncate: false, fh };
    encode_call(0, to, 0, Some(&slot), &[recall]).len()
}

/// A CB_NULL call.
pub(super) fn encode_null(xid: u32, to: &CallbackHeader) -> Message {
    begin(xid, to, CB_NULL).finish()
}

/// Decodes a reply. A reply without a result is one to CB_NULL.
pub(super) fn decode_reply(raw: &[u8]) -> Result<Reply, XdrError> {
    let mut d = Decoder::new(raw);
    zgate_rpc::message::decode_reply(&mut d).map_err(|_| XdrError::BadValue)?;
    if d.remaining() == 0 {
        return Ok(Reply { status: Status::Ok, tag: Opaque::default(), results: Vec::new() });
    }
    Reply::decode(&mut d)
}

#[cfg(test)]
mod tests {
    use super::*;
    use zgate_nfs_wire::v4::callback::{ReferringCall, ReferringCalls};

    #[test]
    fn referring_calls_are_left_out_where_they_have_no_room() {
        let to = CallbackHeader { minor: 1, program: 7, credential: OpaqueAuth::none() };
        let bare = Sequence {
            session: SessionId::default(),
            sequence: 1,
            slot: 0,
            highest_slot: 0,
            cache_this: false,
            referring: Vec::new(),
        };
        let calls = vec![ReferringCall { sequence: 9, slot: 3 }];
        let referring = vec![ReferringCalls { session: SessionId::default(), calls }];
        let least = encode_call(1, &to, 0, Some(&bare), &[]).len() as u32;
        for (max_bytes, is_sent, are_named) in [
            (least - 1, false, false),
            (least, true, false),
            (least + 27, true, false),
            (least + 28, true, true),
        ] {
            let mut at = Sequence { referring: referring.clone(), ..bare.clone() };
            let call = encode_within(max_bytes, 1, &to, &mut at, &[]);
            assert_eq!(call.is_some(), is_sent, "{max_bytes}");
            assert!(call.is_none_or(|call| call.len() as u32 <= max_bytes));
            assert_eq!(!at.referring.is_empty(), are_named, "{max_bytes}");
        }
    }
}
