//! The callback program (RFC 8881 §20): takes the bytes of a call and returns
//! those of its reply. Recalls are passed to the holder of the delegations.

use bytes::Bytes;
use zgate_nfs_wire::v4::callback::{
    Body, CB_NULL, CallHead, CallbackNum, CallbackOp, OpResult, READ_DELEGATIONS, Reply, Sequence,
    SequenceRes, VERSION,
};
use zgate_nfs_wire::v4::op::create_session::ChannelAttrs;
use zgate_nfs_wire::v4::{self, SessionId, Stateid, Status};
use zgate_rpc::CallHeader;
use zgate_rpc::message::{AcceptError, CallError, Rejection, encode_rejection, encode_success};
use zgate_xdr::{Decode, Decoder, Encode, Encoder, XdrError};

/// Program number of the callback program.
pub(crate) const PROGRAM: u32 = 0x4000_0000;
/// Its versions; some servers use the protocol's own (RFC 8881 §18.36.3 is
/// ambiguous).
const VERSIONS: [u32; 2] = [VERSION, v4::VERSION];

/// Longest call and reply, in bytes.
pub(crate) const MAX_MESSAGE_BYTES: u32 = 4096;
const MAX_OPS: u32 = 8;
const MAX_SLOTS: u32 = 4;
const _: () = assert!(MAX_OPS as usize * 64 < MAX_MESSAGE_BYTES as usize);

/// Holder of recalled delegations.
pub(crate) trait Holder {
    /// Schedules the return of one delegation.
    fn recall(&self, stateid: Stateid) -> Status;
    /// Schedules the return of all but `keep` delegations.
    fn recall_any(&self, keep: usize);
}

/// Returns the channel attributes that this side offers for a back channel.
pub(crate) fn attributes() -> ChannelAttrs {
    ChannelAttrs {
        header_pad_bytes: 0,
        max_request_bytes: MAX_MESSAGE_BYTES,
        max_response_bytes: MAX_MESSAGE_BYTES,
        max_cached_bytes: MAX_MESSAGE_BYTES,
        max_ops: MAX_OPS,
        slots: MAX_SLOTS,
    }
}

#[derive(Clone, Debug, Default)]
struct Slot {
    sequence: u32,
    answer: Option<Bytes>,
}

/// State of the program: the slots of the back channel.
#[derive(Debug, Default)]
pub(crate) struct CallbackProgram {
    session: Option<SessionId>,
    /// Set while a session is being created: its callbacks may arrive before
    /// its id.
    expecting: bool,
    slots: Vec<Slot>,
}

impl CallbackProgram {
    /// Announces that a session is about to be created.
    pub(crate) fn expect(&mut self) {
        self.expecting = true;
    }

    /// Sets the session with its number of slots, or none.
    pub(crate) fn begin(&mut self, session: Option<(SessionId, u32)>) {
        self.expecting = false;
        if let Some((session, slots)) = session {
            self.session = Some(session);
            self.slots = vec![Slot::default(); slots.clamp(1, MAX_SLOTS) as usize];
        }
    }

    /// Returns the reply to a call; none if it is not a call.
    pub(crate) fn answer(&mut self, call: &[u8], holder: &impl Holder) -> Option<Bytes> {
        let mut d = Decoder::new(call);
        let mut e = Encoder::with_capacity(256);
        match CallHeader::decode(&mut d) {
            Err(CallError::NotACall) => return None,
            Err(CallError::Reject { xid, why }) => encode_rejection(&mut e, xid, why),
            Ok(header) => match reject(&header) {
                Some(why) => encode_rejection(&mut e, header.xid, Rejection::Accept(why)),
                None if header.procedure == CB_NULL => encode_success(&mut e, header.xid),
                None => match self.compound(&mut d, holder) {
                    Ok(answer) => {
                        encode_success(&mut e, header.xid);
                        e.raw(&answer);
                    }
                    Err(_) => {
                        let why = Rejection::Accept(AcceptError::GarbageArguments);
                        encode_rejection(&mut e, header.xid, why);
                    }
                },
            },
        }
        e.finish().flatten()
    }

    /// CB_COMPOUND.
    fn compound(&mut self, d: &mut Decoder<'_>, holder: &impl Holder) -> Result<Bytes, XdrError> {
        let head = CallHead::decode(d)?;
        let mut reply = Reply { status: Status::Ok, tag: head.tag, results: Vec::new() };
        if !(1..=2).contains(&head.minor) {
            reply.status = Status::MinorVersMismatch;
            return Ok(bytes_of(&reply));
        }
        if head.count == 0 {
            return Ok(bytes_of(&reply));
        }
        let first = d.u32()?;
        if first != CallbackNum::Sequence as u32 {
            // RFC 8881 §20.9.3.
            end(&mut reply, OpResult::bare(first, Status::OpNotInSession));
            return Ok(bytes_of(&reply));
        }
        let args = Sequence::decode(d)?;
        let slot = match self.take(&args, head.count) {
            Ok(Request::New(slot)) => slot,
            Ok(Request::Again(answer)) => return Ok(answer),
            Err(status) => {
                end(&mut reply, OpResult::bare(first, status));
                return Ok(bytes_of(&reply));
            }
        };
        reply.results.push(self.took(&args));
        for _ in 1..head.count {
            end(&mut reply, run(d, holder));
            if reply.status != Status::Ok {
                break;
            }
        }
        let answer = bytes_of(&reply);
        if let Some(slot) = self.slots.get_mut(slot) {
            *slot = Slot { sequence: args.sequence, answer: Some(answer.clone()) };
        }
        Ok(answer)
    }

    /// Looks at the sequence number of a slot (RFC 8881 §2.10.6.1, §20.9).
    fn take(&self, args: &Sequence, count: u32) -> Result<Request, Status> {
        if self.session != Some(args.session) {
            return Err(if self.expecting { Status::Delay } else { Status::Badsession });
        }
        let number = args.slot as usize;
        let slot = self.slots.get(number).ok_or(Status::Badslot)?;
        if args.highest_slot as usize >= self.slots.len() {
            return Err(Status::BadHighSlot);
        }
        if args.sequence == slot.sequence.wrapping_add(1) {
            return if count > MAX_OPS {
                Err(Status::TooManyOps)
            } else {
                Ok(Request::New(number))
            };
        }
        match &slot.answer {
            Some(answer) if args.sequence == slot.sequence => Ok(Request::Again(answer.clone())),
            _ => Err(Status::SeqMisordered),
        }
    }

    /// CB_SEQUENCE's result. Its referring calls are ignored: a recall that
    /// arrives before the reply that granted the delegation is matched by its
    /// stateid.
    fn took(&self, args: &Sequence) -> OpResult {
        let highest_slot = self.slots.len().saturating_sub(1) as u32;
        let body = Body::Sequence(SequenceRes {
            session: args.session,
            sequence: args.sequence,
            slot: args.slot,
            highest_slot,
            target_highest_slot: highest_slot,
        });
        OpResult { num: CallbackNum::Sequence as u32, status: Status::Ok, body }
    }
}

enum Request {
    /// A new request in this slot.
    New(usize),
    /// A retransmission, with its cached reply.
    Again(Bytes),
}

fn reject(header: &CallHeader) -> Option<AcceptError> {
    if header.program != PROGRAM {
        return Some(AcceptError::ProgramUnavailable);
    }
    if !VERSIONS.contains(&header.version) {
        return Some(AcceptError::ProgramMismatch(VERSIONS[0], VERSIONS[1]));
    }
    (header.procedure > 1).then_some(AcceptError::ProcedureUnavailable)
}

/// Adds a result, whose status is that of the whole.
fn end(reply: &mut Reply, result: OpResult) {
    reply.status = result.status;
    reply.results.push(result);
}

/// Runs an operation behind CB_SEQUENCE. Its arguments are decoded completely
/// only where other operations may follow: a refused operation is the last one.
fn run(d: &mut Decoder<'_>, holder: &impl Holder) -> OpResult {
    let illegal = |status| OpResult::bare(CallbackNum::Illegal as u32, status);
    let num = match d.u32().map(CallbackNum::from_u32) {
        Ok(Some(num)) if num != CallbackNum::Illegal => num,
        Ok(_) => return illegal(Status::OpIllegal),
        Err(_) => return illegal(Status::Badxdr),
    };
    let status = match num {
        CallbackNum::Sequence => Status::SequencePos,
        CallbackNum::Recall | CallbackNum::RecallAny => match CallbackOp::decode_args(num, d) {
            Ok(CallbackOp::Recall { stateid, .. }) => holder.recall(stateid),
            Ok(CallbackOp::RecallAny { keep, kinds }) => {
                if kinds.contains(READ_DELEGATIONS) {
                    holder.recall_any(keep as usize);
                }
                Status::Ok
            }
            _ => Status::Badxdr,
        },
        _ => Status::Notsupp,
    };
    OpResult::bare(num as u32, status)
}

fn bytes_of(reply: &Reply) -> Bytes {
    let mut e = Encoder::with_capacity(128);
    reply.encode(&mut e);
    e.finish().flatten().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use zgate_nfs_wire::v4::callback::{ReferringCall, ReferringCalls};
    use zgate_nfs_wire::v4::{Bitmap, Fh};
    use zgate_rpc::auth::OpaqueAuth;

    const SEQUENCE: u32 = CallbackNum::Sequence as u32;
    const RECALL: u32 = CallbackNum::Recall as u32;
    const ILLEGAL: u32 = CallbackNum::Illegal as u32;
    const SESSION: SessionId = SessionId([7; 16]);

    #[derive(Default)]
    struct Hand {
        recalled: RefCell<Vec<Stateid>>,
        kept: RefCell<Vec<usize>>,
    }

    impl Holder for Hand {
        fn recall(&self, stateid: Stateid) -> Status {
            self.recalled.borrow_mut().push(stateid);
            if stateid.seqid == 9 { Status::BadStateid } else { Status::Ok }
        }
        fn recall_any(&self, keep: usize) {
            self.kept.borrow_mut().push(keep);
        }
    }

    fn program() -> CallbackProgram {
        let mut program = CallbackProgram::default();
        program.begin(Some((SESSION, 2)));
        program
    }

    fn header(program: u32, version: u32, procedure: u32) -> Encoder {
        let mut e = Encoder::new();
        let (credential, verifier) = (OpaqueAuth::none(), OpaqueAuth::none());
        CallHeader { xid: 5, program, version, procedure, credential, verifier }.encode(&mut e);
        e
    }

    fn flat(e: Encoder) -> Bytes {
        e.finish().flatten().unwrap()
    }

    /// Builds a CB_COMPOUND; `sequence`: number and slot of a CB_SEQUENCE in
    /// front.
    fn call(sequence: Option<(u32, u32)>, count: u32, ops: impl Fn(&mut Encoder)) -> Bytes {
        let mut e = header(PROGRAM, 1, 1);
        let count = count + u32::from(sequence.is_some());
        CallHead { tag: b"tag"[..].into(), minor: 1, ident: 0, count }.encode(&mut e);
        if let Some((sequence, slot)) = sequence {
            let calls = vec![ReferringCall { sequence: 3, slot: 0 }];
            let args = Sequence {
                session: SESSION,
                sequence,
                slot,
                highest_slot: 1,
                cache_this: false,
                referring: vec![ReferringCalls { session: SESSION, calls }],
            };
            CallbackOp::Sequence(args).encode(&mut e);
        }
        ops(&mut e);
        flat(e)
    }

    fn recall_of(seqid: u32) -> impl Fn(&mut Encoder) {
        let stateid = Stateid { seqid, other: [3; 12] };
        move |e| CallbackOp::Recall { stateid, truncate: false, fh: Fh(vec![1, 2, 3]) }.encode(e)
    }

    /// Returns the status of the COMPOUND, and number and status of each
    /// operation.
    fn read(answer: &Bytes) -> (Status, Vec<(u32, Status)>) {
        let mut d = Decoder::new(answer);
        zgate_rpc::message::decode_reply(&mut d).unwrap();
        let reply = Reply::decode(&mut d).unwrap();
        assert_eq!(reply.tag.0, b"tag");
        for result in &reply.results {
            if let Body::Sequence(res) = &result.body {
                assert_eq!(res.session, SESSION);
            }
        }
        d.finish().unwrap();
        (reply.status, reply.results.iter().map(|result| (result.num, result.status)).collect())
    }

    #[test]
    fn a_recall_is_heard_once() {
        let (mut program, hand) = (program(), Hand::default());
        let first = program.answer(&call(Some((1, 0)), 1, recall_of(1)), &hand).unwrap();
        let ok = vec![(SEQUENCE, Status::Ok), (RECALL, Status::Ok)];
        assert_eq!(read(&first), (Status::Ok, ok));
        // Repeated in its slot: the same reply, and no other effect.
        let again = program.answer(&call(Some((1, 0)), 1, recall_of(1)), &hand).unwrap();
        assert_eq!(first, again);
        assert_eq!(hand.recalled.borrow().len(), 1);
        // Another slot has its own sequence numbers.
        program.answer(&call(Some((1, 1)), 1, recall_of(2)), &hand).unwrap();
        let unknown = program.answer(&call(Some((2, 0)), 1, recall_of(9)), &hand).unwrap();
        assert_eq!(read(&unknown).0, Status::BadStateid);
        let heard: Vec<u32> = hand.recalled.borrow().iter().map(|s| s.seqid).collect();
        assert_eq!(heard, [1, 2, 9]);
    }

    #[test]
    fn the_wrong_turn_is_refused() {
        let (mut program, hand) = (program(), Hand::default());
        let mut said = |sequence| {
            let answer = program.answer(&call(sequence, 1, recall_of(1)), &hand).unwrap();
            read(&answer).0
        };
        assert_eq!(said(Some((2, 0))), Status::SeqMisordered);
        assert_eq!(said(Some((0, 0))), Status::SeqMisordered);
        assert_eq!(said(Some((1, 2))), Status::Badslot);
        assert_eq!(said(None), Status::OpNotInSession);
        assert!(hand.recalled.borrow().is_empty());
        program.begin(Some((SessionId([8; 16]), 2)));
        let early = call(Some((1, 0)), 1, recall_of(1));
        assert_eq!(read(&program.answer(&early, &hand).unwrap()).0, Status::Badsession);
        program.expect();
        assert_eq!(read(&program.answer(&early, &hand).unwrap()).0, Status::Delay);
    }

    #[test]
    fn other_operations_end_the_compound() {
        let (mut program, hand) = (program(), Hand::default());
        let mut number = 0;
        let mut said = |op: u32| {
            number += 1;
            let ops = |e: &mut Encoder| {
                e.u32(op);
                recall_of(1)(e);
            };
            let answer = program.answer(&call(Some((number, 0)), 2, ops), &hand).unwrap();
            read(&answer).1[1..].to_vec()
        };
        for op in
            [CallbackNum::Getattr as u32, 5, 6, 7, 9, 10, 12, 13, 14, CallbackNum::Offload as u32]
        {
            assert_eq!(said(op), [(op, Status::Notsupp)]);
        }
        for op in [0, 2, 16, 77] {
            assert_eq!(said(op), [(ILLEGAL, Status::OpIllegal)]);
        }
        assert_eq!(said(SEQUENCE), [(SEQUENCE, Status::SequencePos)]);
        assert!(hand.recalled.borrow().is_empty());
        let kinds = Bitmap::of(&[READ_DELEGATIONS]);
        let any =
            |e: &mut Encoder| CallbackOp::RecallAny { keep: 3, kinds: kinds.clone() }.encode(e);
        program.answer(&call(Some((number + 1, 0)), 1, any), &hand).unwrap();
        assert_eq!(*hand.kept.borrow(), [3]);
    }

    #[test]
    fn what_is_no_callback_is_rejected_and_nothing_panics() {
        let (mut program, hand) = (program(), Hand::default());
        let answer = program.answer(&flat(header(PROGRAM, 4, 0)), &hand).unwrap();
        let mut d = Decoder::new(&answer);
        zgate_rpc::message::decode_reply(&mut d).unwrap();
        assert_eq!(d.remaining(), 0, "CB_NULL has no result");
        for wrong in
            [header(zgate_nfs_wire::PROGRAM, 4, 1), header(PROGRAM, 3, 1), header(PROGRAM, 1, 2)]
        {
            let answer = program.answer(&flat(wrong), &hand).unwrap();
            assert!(zgate_rpc::message::decode_reply(&mut Decoder::new(&answer)).is_err());
        }
        let mut reply = Encoder::new();
        encode_success(&mut reply, 5);
        assert_eq!(program.answer(&flat(reply), &hand), None);
        let whole = call(Some((1, 0)), 1, recall_of(1));
        for cut in 0..whole.len() {
            let _ = program.answer(&whole[..cut], &hand);
            program.begin(Some((SESSION, 2)));
        }
        let many = call(Some((1, 0)), MAX_OPS, |e| (0..MAX_OPS).for_each(|_| recall_of(1)(e)));
        let before = hand.recalled.borrow().len();
        assert_eq!(read(&program.answer(&many, &hand).unwrap()).0, Status::TooManyOps);
        assert_eq!(hand.recalled.borrow().len(), before);
    }
}
