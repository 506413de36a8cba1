//! Callbacks, requests of a server to its clients: CB_COMPOUND, its operations
//! and their results (RFC 8881 §20, RFC 7530 §15.5-§16).

use super::{Bitmap, Fattr, Fh, SessionId, StateOwner, Stateid, Status, Verifier};
use crate::limits::MAX_TAG_BYTES;
use zgate_xdr::{Decode, Decoder, Encode, Encoder, Opaque, XdrError, xdr_struct};

/// Version of the callback program.
pub const VERSION: u32 = 1;
/// Procedure number of CB_NULL, which does nothing.
pub const CB_NULL: u32 = 0;
/// Procedure number of COMPOUND or CB_COMPOUND, which carries operations.
pub const CB_COMPOUND: u32 = 1;
/// RCA4_TYPE_MASK_RDATA_DLG, a bit of [`CallbackOp::RecallAny`].
pub const READ_DELEGATIONS: u32 = 0;

/// Most operations in a reply.
const MAX_RESULTS: usize = 16;
/// Most referring call lists of a CB_SEQUENCE, and most calls in each.
const MAX_REFERRING: usize = 64;

crate::named_enum! {
    /// nfs_cb_opnum4.
    pub enum CallbackNum {
        Getattr = 3 "CB_GETATTR",
        Recall = 4 "CB_RECALL",
        Layoutrecall = 5 "CB_LAYOUTRECALL",
        Notify = 6 "CB_NOTIFY",
        PushDeleg = 7 "CB_PUSH_DELEG",
        RecallAny = 8 "CB_RECALL_ANY",
        RecallableObjAvail = 9 "CB_RECALLABLE_OBJ_AVAIL",
        RecallSlot = 10 "CB_RECALL_SLOT",
        Sequence = 11 "CB_SEQUENCE",
        WantsCancelled = 12 "CB_WANTS_CANCELLED",
        NotifyLock = 13 "CB_NOTIFY_LOCK",
        NotifyDeviceid = 14 "CB_NOTIFY_DEVICEID",
        Offload = 15 "CB_OFFLOAD",
        Illegal = 10044 "CB_ILLEGAL",
    }
}

xdr_struct! {
    /// Header of CB_COMPOUND4args; `count` operations follow.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct CallHead {
        /// Tag, repeated in the reply.
        pub tag: Opaque<MAX_TAG_BYTES>,
        /// Minor version.
        pub minor: u32,
        /// callback_ident from SETCLIENTID (minor version 0).
        pub ident: u32,
        /// Number of operations.
        pub count: u32,
    }
}

xdr_struct! {
    /// referring_call4: a call that the callback may overtake.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ReferringCall {
        /// rc_sequenceid.
        pub sequence: u32,
        /// rc_slotid.
        pub slot: u32,
    }
}

/// referring_call_list4.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReferringCalls {
    /// rcl_sessionid.
    pub session: SessionId,
    /// rcl_referring_calls.
    pub calls: Vec<ReferringCall>,
}

impl Encode for ReferringCalls {
    fn encode(&self, e: &mut Encoder) {
        self.session.encode(e);
        e.array(&self.calls);
    }
}

impl Decode for ReferringCalls {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(Self { session: Decode::decode(d)?, calls: d.array(MAX_REFERRING)? })
    }
}

/// CB_SEQUENCE4args.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sequence {
    /// csa_sessionid.
    pub session: SessionId,
    /// csa_sequenceid.
    pub sequence: u32,
    /// csa_slotid.
    pub slot: u32,
    /// csa_highest_slotid.
    pub highest_slot: u32,
    /// csa_cachethis.
    pub cache_this: bool,
    /// csa_referring_call_lists.
    pub referring: Vec<ReferringCalls>,
}

impl Encode for Sequence {
    fn encode(&self, e: &mut Encoder) {
        self.session.encode(e);
        for word in [self.sequence, self.slot, self.highest_slot] {
            e.u32(word);
        }
        self.cache_this.encode(e);
        e.array(&self.referring);
    }
}

impl Decode for Sequence {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(Self {
            session: Decode::decode(d)?,
            sequence: d.u32()?,
            slot: d.u32()?,
            highest_slot: d.u32()?,
            cache_this: Decode::decode(d)?,
            referring: d.array(MAX_REFERRING)?,
        })
    }
}

xdr_struct! {
    /// CB_SEQUENCE4resok.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct SequenceRes {
        /// csr_sessionid.
        pub session: SessionId,
        /// csr_sequenceid.
        pub sequence: u32,
        /// csr_slotid.
        pub slot: u32,
        /// csr_highest_slotid.
        pub highest_slot: u32,
        /// csr_target_highest_slotid.
        pub target_highest_slot: u32,
    }
}

/// An operation of a CB_COMPOUND.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallbackOp {
    /// CB_GETATTR: requests the attributes of a write-delegated file.
    GetAttr {
        /// The file.
        fh: Fh,
        /// Requested attributes.
        want: Bitmap,
    },
    /// CB_RECALL: recalls a delegation.
    Recall {
        /// The delegation.
        stateid: Stateid,
        /// The file will be truncated: dirty data need not be written back.
        truncate: bool,
        /// The file.
        fh: Fh,
    },
    /// CB_RECALL_ANY: requests the return of all delegations except `keep`.
    RecallAny {
        /// Number of delegations that the client may keep.
        keep: u32,
        /// RCA4_TYPE_MASK_*.
        kinds: Bitmap,
    },
    /// CB_SEQUENCE: takes a slot of the back channel.
    Sequence(Sequence),
    /// CB_NOTIFY_LOCK: a lock that was refused may be available now.
    NotifyLock {
        /// The file.
        fh: Fh,
        /// The owner that waited.
        owner: StateOwner,
    },
    /// CB_OFFLOAD: an asynchronous copy ended.
    Offload {
        /// Destination file.
        fh: Fh,
        /// The copy.
        stateid: Stateid,
        /// Final status.
        status: Status,
        /// Bytes copied.
        bytes: u64,
        /// stable_how4 of the data; 0 after a failure.
        committed: u32,
        /// Write verifier; zeros after a failure.
        verifier: Verifier,
    },
    /// Another operation, whose arguments are not decoded.
    Other(CallbackNum),
}

impl CallbackOp {
    /// The operation's number.
    #[must_use]
    pub fn num(&self) -> CallbackNum {
        match self {
            Self::GetAttr { .. } => CallbackNum::Getattr,
            Self::Recall { .. } => CallbackNum::Recall,
            Self::RecallAny { .. } => CallbackNum::RecallAny,
            Self::Sequence(_) => CallbackNum::Sequence,
            Self::NotifyLock { .. } => CallbackNum::NotifyLock,
            Self::Offload { .. } => CallbackNum::Offload,
            Self::Other(num) => *num,
        }
    }

    /// Decodes the arguments after the operation's number.
    ///
    /// # Errors
    /// [`XdrError`].
    pub fn decode_args(num: CallbackNum, d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(match num {
            CallbackNum::Getattr => {
                Self::GetAttr { fh: Decode::decode(d)?, want: Decode::decode(d)? }
            }
            CallbackNum::Recall => Self::Recall {
                stateid: Decode::decode(d)?,
                truncate: Decode::decode(d)?,
                fh: Decode::decode(d)?,
            },
            CallbackNum::RecallAny => Self::RecallAny { keep: d.u32()?, kinds: Decode::decode(d)? },
            CallbackNum::Sequence => Self::Sequence(Decode::decode(d)?),
            CallbackNum::NotifyLock => {
                Self::NotifyLock { fh: Decode::decode(d)?, owner: Decode::decode(d)? }
            }
            CallbackNum::Offload => {
                let (fh, stateid, status) =
                    (Decode::decode(d)?, Decode::decode(d)?, Status::decode(d)?);
                if status != Status::Ok {
                    let (bytes, committed, verifier) = (d.u64()?, 0, [0; 8]);
                    return Ok(Self::Offload { fh, stateid, status, bytes, committed, verifier });
                }
                // write_response4, whose callback id is unused.
                Option::<Stateid>::decode(d)?;
                let (bytes, committed, verifier) = (d.u64()?, d.u32()?, Decode::decode(d)?);
                Self::Offload { fh, stateid, status, bytes, committed, verifier }
            }
            other => Self::Other(other),
        })
    }
}

impl Encode for CallbackOp {
    fn encode(&self, e: &mut Encoder) {
        self.num().encode(e);
        match self {
            Self::GetAttr { fh, want } => {
                fh.encode(e);
                want.encode(e);
            }
            Self::Recall { stateid, truncate, fh } => {
                stateid.encode(e);
                truncate.encode(e);
                fh.encode(e);
            }
            Self::RecallAny { keep, kinds } => {
                e.u32(*keep);
                kinds.encode(e);
            }
            Self::Sequence(args) => args.encode(e),
            Self::NotifyLock { fh, owner } => {
                fh.encode(e);
                owner.encode(e);
            }
            Self::Offload { fh, stateid, status, bytes, committed, verifier } => {
                fh.encode(e);
                stateid.encode(e);
                status.encode(e);
                if *status == Status::Ok {
                    None::<Stateid>.encode(e);
                }
                e.u64(*bytes);
                if *status == Status::Ok {
                    e.u32(*committed);
                    verifier.encode(e);
                }
            }
            Self::Other(_) => {}
        }
    }
}

/// Body after the status of a successful operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// Nothing.
    None,
    /// CB_SEQUENCE.
    Sequence(SequenceRes),
    /// CB_GETATTR.
    Attrs(Fattr),
}

/// One operation's result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpResult {
    /// Number of the operation.
    pub num: u32,
    /// Its status.
    pub status: Status,
    /// Its body.
    pub body: Body,
}

impl OpResult {
    /// A result without a body.
    #[must_use]
    pub fn bare(num: u32, status: Status) -> Self {
        Self { num, status, body: Body::None }
    }

    /// Returns whether the result is one of CB_SEQUENCE that advanced the slot
    /// to the call's number. A failed CB_SEQUENCE leaves the slot unchanged,
    /// unless it failed as a retry (RFC 8881 §2.10.6.1, §20.9.3).
    fn took_slot(&self) -> bool {
        self.num == CallbackNum::Sequence as u32
            && matches!(self.status, Status::Ok | Status::RetryUncachedRep | Status::SeqFalseRetry)
    }
}

impl Encode for OpResult {
    fn encode(&self, e: &mut Encoder) {
        e.u32(self.num);
        self.status.encode(e);
        match &self.body {
            Body::None => {}
            Body::Sequence(res) => res.encode(e),
            Body::Attrs(attrs) => attrs.encode(e),
        }
    }
}

impl Decode for OpResult {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        let (num, status) = (d.u32()?, any_status(d)?);
        let body = match CallbackNum::from_u32(num) {
            _ if status != Status::Ok => Body::None,
            Some(CallbackNum::Sequence) => Body::Sequence(Decode::decode(d)?),
            Some(CallbackNum::Getattr) => Body::Attrs(Decode::decode(d)?),
            _ => Body::None,
        };
        Ok(Self { num, status, body })
    }
}

/// Decodes a status of a client; unknown values are accepted.
fn any_status(d: &mut Decoder<'_>) -> Result<Status, XdrError> {
    Ok(Status::from_u32(d.u32()?).unwrap_or(Status::Serverfault))
}

/// CB_COMPOUND4res.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Status of the whole.
    pub status: Status,
    /// Tag of the call.
    pub tag: Opaque<MAX_TAG_BYTES>,
    /// Results up to the first failure.
    pub results: Vec<OpResult>,
}

impl Reply {
    /// Returns whether the client's slot now has the call's sequence number.
    #[must_use]
    pub fn took_slot(&self) -> bool {
        self.results.iter().any(OpResult::took_slot)
    }

    /// The attributes from CB_GETATTR.
    #[must_use]
    pub fn attrs(&self) -> Option<&Fattr> {
        self.results.iter().find_map(|result| match &result.body {
            Body::Attrs(attrs) => Some(attrs),
            Body::None | Body::Sequence(_) => None,
        })
    }
}

impl Encode for Reply {
    fn encode(&self, e: &mut Encoder) {
        self.status.encode(e);
        self.tag.encode(e);
        e.array(&self.results);
    }
}

impl Decode for Reply {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        let (status, tag) = (any_status(d)?, Decode::decode(d)?);
        let mut results = Vec::new();
        for _ in 0..d.length(MAX_RESULTS)? {
            let result = OpResult::decode(d)?;
            let failed = result.status != Status::Ok;
            results.push(result);
            if failed {
                break;
            }
        }
        Ok(Self { status, tag, results })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v4::ClientId;

    fn bytes_of(value: &impl Encode) -> Vec<u8> {
        let mut e = Encoder::new();
        value.encode(&mut e);
        e.finish().flatten().unwrap().to_vec()
    }

    #[test]
    fn every_operation_survives_the_trip() {
        let (fh, stateid) = (Fh(vec![1, 2, 3]), Stateid { seqid: 1, other: [3; 12] });
        let session = SessionId([7; 16]);
        let calls = vec![ReferringCall { sequence: 3, slot: 0 }];
        let offload = |status, committed, verifier| CallbackOp::Offload {
            fh: fh.clone(),
            stateid,
            status,
            bytes: 1 << 40,
            committed,
            verifier,
        };
        for op in [
            CallbackOp::GetAttr { fh: fh.clone(), want: Bitmap::of(&[3, 4]) },
            CallbackOp::Recall { stateid, truncate: true, fh: fh.clone() },
            CallbackOp::RecallAny { keep: 3, kinds: Bitmap::of(&[READ_DELEGATIONS]) },
            CallbackOp::Sequence(Sequence {
                session,
                sequence: 5,
                slot: 1,
                highest_slot: 2,
                cache_this: false,
                referring: vec![ReferringCalls { session, calls }],
            }),
            CallbackOp::NotifyLock {
                fh: fh.clone(),
                owner: StateOwner { clientid: ClientId(9), owner: b"me"[..].into() },
            },
            offload(Status::Ok, 2, [4; 8]),
            offload(Status::Nospc, 0, [0; 8]),
        ] {
            let raw = bytes_of(&op);
            let read = |raw: &[u8]| {
                let mut d = Decoder::new(raw);
                let op = CallbackOp::decode_args(CallbackNum::decode(&mut d)?, &mut d)?;
                d.finish().map(|()| op)
            };
            assert_eq!(read(&raw), Ok(op));
            for cut in 0..raw.len() {
                assert_eq!(read(&raw[..cut]), Err(XdrError::Short), "{cut}");
            }
        }
    }

    #[test]
    fn a_getattr_reply_is_read() {
        let attrs = Fattr { mask: Bitmap::of(&[3, 4]), values: Opaque(vec![0; 16]) };
        let body = Body::Sequence(SequenceRes {
            session: SessionId([7; 16]),
            sequence: 1,
            slot: 0,
            highest_slot: 3,
            target_highest_slot: 3,
        });
        let reply = Reply {
            status: Status::Ok,
            tag: Opaque(b"tag".to_vec()),
            results: vec![
                OpResult { num: 11, status: Status::Ok, body },
                OpResult { num: 3, status: Status::Ok, body: Body::Attrs(attrs.clone()) },
            ],
        };
        let raw = bytes_of(&reply);
        let mut d = Decoder::new(&raw);
        assert_eq!(Reply::decode(&mut d), Ok(reply.clone()));
        d.finish().unwrap();
        assert!(reply.took_slot());
        assert_eq!(reply.attrs(), Some(&attrs));
        for cut in 0..raw.len() {
            assert_eq!(Reply::decode(&mut Decoder::new(&raw[..cut])), Err(XdrError::Short));
        }
    }

    #[test]
    fn what_a_failed_sequence_says_of_the_slot() {
        for (status, took) in [
            (Status::Ok, true),
            (Status::RetryUncachedRep, true),
            (Status::SeqFalseRetry, true),
            (Status::Badsession, false),
            (Status::Delay, false),
        ] {
            assert_eq!(OpResult::bare(CallbackNum::Sequence as u32, status).took_slot(), took);
        }
        assert!(!OpResult::bare(CallbackNum::Recall as u32, Status::Ok).took_slot());
    }
}
