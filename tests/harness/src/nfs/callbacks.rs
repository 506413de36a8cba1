//! The clients' ends of the callback paths: received calls and their answers.

use bytes::Bytes;
use std::collections::HashMap;
use zgate_nfs::runtime::{CallbackFailure, CallbackPath};
use zgate_nfs_wire::v4::callback::{
    Body, CB_NULL, CallHead, CallbackNum, CallbackOp, OpResult, ReferringCalls, Reply, Sequence,
    SequenceRes, VERSION,
};
use zgate_nfs_wire::v4::{Fattr, SessionId, Status};
use zgate_rpc::CallHeader;
use zgate_xdr::{Decode, Decoder, Encode, Encoder};

/// Behaviour of a client.
#[derive(Clone, Debug, Default)]
pub enum CallbackBehavior {
    /// Correct; CB_GETATTR without known attributes.
    #[default]
    Good,
    /// No answer.
    Silent,
    /// It executes the call; its answer is lost.
    Lost,
    /// It does not know the session (yet).
    KnowsNoSession,
    /// There is no client.
    Unreachable,
    /// Answers with an error.
    Refuses(Status),
    /// Answers CB_GETATTR with these attributes.
    Knows(Fattr),
    /// Answers with these bytes after the RPC header.
    Says(Vec<u8>),
}

/// The callbacks of all clients.
#[derive(Default)]
pub struct CallbackInbox {
    pub behaviors: HashMap<CallbackPath, CallbackBehavior>,
    pub callbacks: Vec<(CallbackPath, CallbackOp)>,
    pub nulls: usize,
    /// Number of calls, answered or not.
    pub calls: usize,
    /// Referring calls of the latest one in a session that has operations.
    pub referring: Vec<ReferringCalls>,
    sequences: HashMap<(SessionId, u32), u32>,
}

impl CallbackInbox {
    /// Decodes a call and answers it; `None`: there will be no answer.
    pub fn answer(
        &mut self,
        path: CallbackPath,
        xid: u32,
        raw: &[u8],
    ) -> Option<Result<Bytes, CallbackFailure>> {
        self.calls += 1;
        let behavior = self.behaviors.get(&path).cloned().unwrap_or_default();
        match behavior {
            CallbackBehavior::Silent => return None,
            CallbackBehavior::Unreachable => return Some(Err(CallbackFailure::Unreachable)),
            _ => {}
        }
        let mut d = Decoder::new(raw);
        let header = CallHeader::decode(&mut d).unwrap();
        assert_eq!((header.xid, header.version), (xid, VERSION));
        let mut e = Encoder::new();
        zgate_rpc::message::encode_success(&mut e, xid);
        if let CallbackBehavior::Says(bytes) = &behavior {
            e.raw(bytes);
            return Some(Ok(e.finish().flatten().unwrap()));
        }
        if header.procedure == CB_NULL {
            self.nulls += 1;
        } else {
            self.compound(&path, &behavior, &mut d, &mut e);
        }
        if !matches!(behavior, CallbackBehavior::KnowsNoSession) {
            d.finish().unwrap();
        }
        if matches!(behavior, CallbackBehavior::Lost) {
            return None;
        }
        Some(Ok(e.finish().flatten().unwrap()))
    }

    fn compound(
        &mut self,
        path: &CallbackPath,
        behavior: &CallbackBehavior,
        d: &mut Decoder<'_>,
        e: &mut Encoder,
    ) {
        let head = CallHead::decode(d).unwrap();
        let mut reply = Reply { status: Status::Ok, tag: head.tag, results: Vec::new() };
        for at in 0..head.count {
            let num = CallbackNum::decode(d).unwrap();
            let first = at == 0 && head.minor > 0;
            let sequence = num == CallbackNum::Sequence;
            assert_eq!(sequence, first, "CB_SEQUENCE first, and only in sessions");
            let result = match CallbackOp::decode_args(num, d).unwrap() {
                CallbackOp::Sequence(args) => self.sequence(args, head.count == 1, behavior),
                CallbackOp::Other(num) => panic!("callback operation {num:?}"),
                op => {
                    self.callbacks.push((path.clone(), op));
                    self.result(num, behavior)
                }
            };
            reply.status = result.status;
            reply.results.push(result);
            if reply.status != Status::Ok {
                break;
            }
        }
        reply.encode(e);
    }

    /// The answer to every operation except CB_SEQUENCE.
    fn result(&self, num: CallbackNum, behavior: &CallbackBehavior) -> OpResult {
        let (status, attrs) = match behavior {
            CallbackBehavior::Refuses(why) => (*why, Fattr::default()),
            CallbackBehavior::Knows(attrs) => (Status::Ok, attrs.clone()),
            _ => (Status::Ok, Fattr::default()),
        };
        let asked = num == CallbackNum::Getattr && status == Status::Ok;
        let body = if asked { Body::Attrs(attrs) } else { Body::None };
        OpResult { num: num as u32, status, body }
    }

    /// CB_SEQUENCE: the numbers of a slot must be consecutive (RFC 8881
    /// §20.9.3). A call without other operations may repeat the latest number.
    fn sequence(&mut self, args: Sequence, alone: bool, behavior: &CallbackBehavior) -> OpResult {
        assert!(!args.cache_this);
        assert!(args.slot <= args.highest_slot);
        if alone {
            assert_eq!(args.referring, []);
        } else {
            self.referring = args.referring;
        }
        let last = self.sequences.entry((args.session, args.slot)).or_default();
        let refused = match behavior {
            CallbackBehavior::KnowsNoSession => Some(Status::Badsession),
            _ if alone && args.sequence == *last => Some(Status::RetryUncachedRep),
            _ => None,
        };
        let num = CallbackNum::Sequence as u32;
        if let Some(status) = refused {
            return OpResult::bare(num, status);
        }
        assert_eq!(args.sequence, last.wrapping_add(1), "back channel slot {}", args.slot);
        *last = args.sequence;
        let body = Body::Sequence(SequenceRes {
            session: args.session,
            sequence: args.sequence,
            slot: args.slot,
            highest_slot: args.highest_slot,
            target_highest_slot: args.highest_slot,
        });
        OpResult { num, status: Status::Ok, body }
    }
}
