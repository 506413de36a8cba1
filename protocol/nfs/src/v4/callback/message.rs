//! CB_COMPOUND on the wire.

use crate::namespace::Fh;
use crate::v4::state::session::CallbackHeader;
use crate::v4::state::tables::{Delegation, LockOwnerId};
use crate::v4::wire::{Bitmap, Fattr, SessionId, Stateid, Status};
use zgate_rpc::CallHeader;
use zgate_rpc::auth::OpaqueAuth;
use zgate_xdr::{Decode, Decoder, Encode, Encoder, Message, XdrError};

/// Callback program version.
const CALLBACK_VERSION: u32 = 1;
const CB_COMPOUND: u32 = 1;
const OP_CB_GETATTR: u32 = 3;
const OP_CB_RECALL: u32 = 4;
const OP_CB_SEQUENCE: u32 = 11;
const OP_CB_NOTIFY_LOCK: u32 = 13;
const OP_CB_OFFLOAD: u32 = 15;

/// An operation of a CB_COMPOUND.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallbackOp {
    /// Ask for the attributes of a write-delegated file.
    GetAttr {
        /// Which file.
        fh: Fh,
        /// Which attributes.
        want: Bitmap,
    },
    /// Ask for a delegation back.
    Recall {
        /// Which delegation.
        stateid: Stateid,
        /// The file will be truncated: dirty data need not come back.
        truncate: bool,
        /// Which file.
        fh: Fh,
    },
    /// A lock that was refused may be had now.
    NotifyLock {
        /// Which file.
        fh: Fh,
        /// Who waited.
        owner: LockOwnerId,
    },
    /// An asynchronous copy ended.
    Offload {
        /// Destination file.
        fh: Fh,
        /// The copy.
        stateid: Stateid,
        /// How it ended.
        status: Status,
        /// Bytes copied.
        bytes: u64,
        /// stable_how4 of the data.
        committed: u32,
        /// Write verifier.
        verifier: [u8; 8],
    },
}

/// The call that asks for this delegation back.
#[must_use]
pub fn recall_call(delegation: &Delegation) -> CallbackOp {
    CallbackOp::Recall {
        stateid: delegation.key.stateid(delegation.seqid),
        truncate: false,
        fh: delegation.fh.clone(),
    }
}

impl Encode for CallbackOp {
    fn encode(&self, e: &mut Encoder) {
        match self {
            Self::GetAttr { fh, want } => {
                e.u32(OP_CB_GETATTR);
                fh.encode(e);
                want.encode(e);
            }
            Self::Recall { stateid, truncate, fh } => {
                e.u32(OP_CB_RECALL);
                stateid.encode(e);
                truncate.encode(e);
                fh.encode(e);
            }
            Self::NotifyLock { fh, owner } => {
                e.u32(OP_CB_NOTIFY_LOCK);
                fh.encode(e);
                owner.client.encode(e);
                e.opaque(&owner.name);
            }
            Self::Offload { fh, stateid, status, bytes, committed, verifier } => {
                e.u32(OP_CB_OFFLOAD);
                fh.encode(e);
                stateid.encode(e);
                status.encode(e);
                if *status == Status::Ok {
                    // write_response4: no callback id, count, stability, verifier.
                    e.u32(0);
                    e.u64(*bytes);
                    e.u32(*committed);
                    verifier.encode(e);
                } else {
                    e.u64(*bytes);
                }
            }
        }
    }
}

/// Where in a session's back channel a call goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct BackSlot {
    pub session: SessionId,
    pub slot: u32,
    pub seqid: u32,
    pub highest_slot: u32,
}

/// Builds the RPC call. `minor` 0 has no session and carries `ident`.
pub(super) fn encode_call(
    xid: u32,
    to: &CallbackHeader,
    ident: u32,
    slot: Option<BackSlot>,
    ops: &[CallbackOp],
) -> Message {
    let mut e = Encoder::new();
    let header = CallHeader {
        xid,
        program: to.program,
        version: CALLBACK_VERSION,
        procedure: CB_COMPOUND,
        credential: to.credential.clone(),
        verifier: OpaqueAuth::none(),
    };
    header.encode(&mut e);
    e.opaque(b"");
    e.u32(u32::from(to.minor));
    e.u32(ident);
    e.u32(ops.len() as u32 + u32::from(slot.is_some()));
    if let Some(slot) = slot {
        e.u32(OP_CB_SEQUENCE);
        slot.session.encode(&mut e);
        for word in [slot.seqid, slot.slot, slot.highest_slot, 0, 0] {
            e.u32(word);
        }
    }
    for op in ops {
        op.encode(&mut e);
    }
    e.finish()
}

/// A CB_NULL call: is anybody there?
pub(super) fn encode_null(xid: u32, to: &CallbackHeader) -> Message {
    let mut e = Encoder::new();
    let header = CallHeader {
        xid,
        program: to.program,
        version: CALLBACK_VERSION,
        procedure: 0,
        credential: to.credential.clone(),
        verifier: OpaqueAuth::none(),
    };
    header.encode(&mut e);
    e.finish()
}

/// What a client answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallbackReply {
    /// Status of the whole CB_COMPOUND.
    pub status: Status,
    /// Whether the client's slot has this call's sequence number now. A
    /// CB_SEQUENCE that fails leaves the slot as it was, unless it failed as a
    /// retry (RFC 8881 §2.10.6.1, §20.9.3).
    pub took_slot: bool,
    /// Attributes CB_GETATTR brought.
    pub attrs: Option<Fattr>,
}

/// Reads a reply.
pub(super) fn decode_reply(raw: &[u8]) -> Result<CallbackReply, XdrError> {
    let mut d = Decoder::new(raw);
    zgate_rpc::message::decode_reply(&mut d).map_err(|_| XdrError::BadValue)?;
    if d.remaining() == 0 {
        return Ok(CallbackReply { status: Status::Ok, took_slot: false, attrs: None });
    }
    let status = Status::from_u32(d.u32()?).unwrap_or(Status::Serverfault);
    d.opaque(crate::limits::MAX_TAG_BYTES)?;
    let count = d.length(16)?;
    let mut attrs = None;
    let mut took_slot = false;
    for _ in 0..count {
        let (op, result) = (d.u32()?, Status::from_u32(d.u32()?));
        took_slot |= op == OP_CB_SEQUENCE
            && matches!(
                result,
                Some(Status::Ok | Status::RetryUncachedRep | Status::SeqFalseRetry)
            );
        if result != Some(Status::Ok) {
            break;
        }
        match op {
            OP_CB_SEQUENCE => {
                d.take(16 + 4 * 4)?;
            }
            OP_CB_GETATTR => attrs = Some(Fattr::decode(&mut d)?),
            _ => {}
        }
    }
    Ok(CallbackReply { status, took_slot, attrs })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_getattr_reply_is_read() {
        let mut e = Encoder::new();
        zgate_rpc::message::encode_success(&mut e, 5);
        e.u32(0);
        e.opaque(b"tag");
        e.u32(2);
        e.u32(OP_CB_SEQUENCE);
        e.u32(0);
        e.raw(&[0; 32]);
        e.u32(OP_CB_GETATTR);
        e.u32(0);
        let attrs = Fattr { mask: Bitmap::of(&[3, 4]), values: zgate_xdr::Opaque(vec![0; 16]) };
        attrs.encode(&mut e);
        let raw = e.finish().flatten().unwrap();
        let reply = decode_reply(&raw).unwrap();
        let expected = CallbackReply { status: Status::Ok, took_slot: true, attrs: Some(attrs) };
        assert_eq!(reply, expected);
        for cut in 28..raw.len() {
            let _ = decode_reply(&raw[..cut]);
        }
    }
}
