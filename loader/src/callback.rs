//! The callback program (RFC 8881 §20): bytes of a call in, bytes of its answer
//! out. What is recalled goes to whoever holds it.

use bytes::Bytes;
use zgate_nfs::limits::MAX_TAG_BYTES;
use zgate_nfs::namespace::Fh;
use zgate_nfs::v4::op::create_session::ChannelAttrs;
use zgate_nfs::v4::wire::{Bitmap, SessionId, Stateid, Status};
use zgate_rpc::CallHeader;
use zgate_rpc::message::{AcceptError, CallError, Rejection, encode_rejection, encode_success};
use zgate_xdr::{Decode, Decoder, Encode, Encoder, XdrError};

/// The number this program is asked for by.
pub(crate) const PROGRAM: u32 = 0x4000_0000;
/// Its version; some servers take the protocol's own (RFC 8881 §18.36.3 is not
/// clear about it).
const VERSIONS: [u32; 2] = [1, 4];

/// Longest call and answer, in bytes.
pub(crate) const MAX_MESSAGE_BYTES: u32 = 4096;
const MAX_OPS: u32 = 8;
const MAX_SLOTS: u32 = 4;
/// Referring lists of a CB_SEQUENCE, and calls in each.
const MAX_REFERRING: usize = 64;
const _: () = assert!(MAX_OPS as usize * 64 < MAX_MESSAGE_BYTES as usize);

const OP_CB_GETATTR: u32 = 3;
const OP_CB_RECALL: u32 = 4;
const OP_CB_RECALL_ANY: u32 = 8;
const OP_CB_SEQUENCE: u32 = 11;
const OP_CB_OFFLOAD: u32 = 15;
const OP_CB_ILLEGAL: u32 = 10044;
/// RCA4_TYPE_MASK_RDATA_DLG.
const READ_DELEGATIONS: u32 = 0;

/// Who holds what a server recalls.
pub(crate) trait Holder {
    /// Gives one delegation back, soon.
    fn recall(&self, stateid: Stateid) -> Status;
    /// Gives all delegations back but so many.
    fn recall_any(&self, keep: usize);
}

/// What this side takes on a back channel.
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

/// The program's state: the slots of the back channel.
#[derive(Debug, Default)]
pub(crate) struct CallbackProgram {
    session: Option<SessionId>,
    /// A session is being created: its calls may be here before its name.
    expecting: bool,
    slots: Vec<Slot>,
}

/// How one operation went, and its result body.
type Outcome = (Status, Vec<u8>);

impl CallbackProgram {
    /// A session is about to be created.
    pub(crate) fn expect(&mut self) {
        self.expecting = true;
    }

    /// A session with so many slots has been created, or none.
    pub(crate) fn begin(&mut self, session: Option<(SessionId, u32)>) {
        self.expecting = false;
        if let Some((session, slots)) = session {
            self.session = Some(session);
            self.slots = vec![Slot::default(); slots.clamp(1, MAX_SLOTS) as usize];
        }
    }

    /// The answer to a call; none to what is no call.
    pub(crate) fn answer(&mut self, call: &[u8], holder: &impl Holder) -> Option<Bytes> {
        let mut d = Decoder::new(call);
        let mut e = Encoder::with_capacity(256);
        match CallHeader::decode(&mut d) {
            Err(CallError::NotACall) => return None,
            Err(CallError::Reject { xid, why }) => encode_rejection(&mut e, xid, why),
            Ok(header) => match reject(&header) {
                Some(why) => encode_rejection(&mut e, header.xid, Rejection::Accept(why)),
                // CB_NULL.
                None if header.procedure == 0 => encode_success(&mut e, header.xid),
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
        let tag = d.opaque(MAX_TAG_BYTES)?.to_vec();
        let minor = d.u32()?;
        let _callback_ident = d.u32()?;
        let count = d.u32()?;
        if !(1..=2).contains(&minor) {
            return Ok(compound_answer(Status::MinorVersMismatch, &tag, &[]));
        }
        if count == 0 {
            return Ok(compound_answer(Status::Ok, &tag, &[]));
        }
        let first = d.u32()?;
        if first != OP_CB_SEQUENCE {
            // RFC 8881 §20.9.3.
            let status = Status::OpNotInSession;
            return Ok(compound_answer(status, &tag, &[(first, (status, Vec::new()))]));
        }
        let args = CbSequence::decode(d)?;
        let slot = match self.take(&args, count) {
            Ok(Turn::New(slot)) => slot,
            Ok(Turn::Again(answer)) => return Ok(answer),
            Err(status) => {
                let results = [(first, (status, Vec::new()))];
                return Ok(compound_answer(status, &tag, &results));
            }
        };
        let mut results = vec![(first, (Status::Ok, args.answer(self.slots.len())))];
        let mut status = Status::Ok;
        for _ in 1..count {
            let number = d.u32();
            let (number, outcome) = match number {
                Ok(number) => run(number, d, holder),
                Err(_) => (OP_CB_ILLEGAL, (Status::Badxdr, Vec::new())),
            };
            status = outcome.0;
            results.push((number, outcome));
            if status != Status::Ok {
                break;
            }
        }
        let answer = compound_answer(status, &tag, &results);
        if let Some(slot) = self.slots.get_mut(slot) {
            *slot = Slot { sequence: args.sequence, answer: Some(answer.clone()) };
        }
        Ok(answer)
    }

    /// Whose turn it is in a slot (RFC 8881 §2.10.6.1, §20.9).
    fn take(&self, args: &CbSequence, count: u32) -> Result<Turn, Status> {
        if self.session != Some(args.session) {
            return Err(if self.expecting { Status::Delay } else { Status::Badsession });
        }
        let number = args.slot as usize;
        let slot = self.slots.get(number).ok_or(Status::Badslot)?;
        if args.highest_slot as usize >= self.slots.len() {
            return Err(Status::BadHighSlot);
        }
        if args.sequence == slot.sequence.wrapping_add(1) {
            return if count > MAX_OPS { Err(Status::TooManyOps) } else { Ok(Turn::New(number)) };
        }
        match &slot.answer {
            Some(answer) if args.sequence == slot.sequence => Ok(Turn::Again(answer.clone())),
            _ => Err(Status::SeqMisordered),
        }
    }
}

enum Turn {
    /// A request that was not there before.
    New(usize),
    /// One that was answered.
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

/// Runs an operation behind CB_SEQUENCE. Its arguments are read to their end
/// only where others may follow: everything that is refused is the last one.
fn run(number: u32, d: &mut Decoder<'_>, holder: &impl Holder) -> (u32, Outcome) {
    let status = match number {
        OP_CB_RECALL => recall(d, holder).unwrap_or(Status::Badxdr),
        OP_CB_RECALL_ANY => recall_any(d, holder).unwrap_or(Status::Badxdr),
        OP_CB_SEQUENCE => Status::SequencePos,
        OP_CB_GETATTR..=OP_CB_OFFLOAD => Status::Notsupp,
        _ => return (OP_CB_ILLEGAL, (Status::OpIllegal, Vec::new())),
    };
    (number, (status, Vec::new()))
}

fn recall(d: &mut Decoder<'_>, holder: &impl Holder) -> Result<Status, XdrError> {
    let stateid = Stateid::decode(d)?;
    let _truncate = bool::decode(d)?;
    Fh::decode(d)?;
    Ok(holder.recall(stateid))
}

fn recall_any(d: &mut Decoder<'_>, holder: &impl Holder) -> Result<Status, XdrError> {
    let keep = d.u32()?;
    if Bitmap::decode(d)?.contains(READ_DELEGATIONS) {
        holder.recall_any(keep as usize);
    }
    Ok(Status::Ok)
}

fn compound_answer(status: Status, tag: &[u8], results: &[(u32, Outcome)]) -> Bytes {
    let mut e = Encoder::with_capacity(128);
    status.encode(&mut e);
    e.opaque(tag);
    e.u32(results.len() as u32);
    for (number, (status, body)) in results {
        e.u32(*number);
        status.encode(&mut e);
        e.raw(body);
    }
    e.finish().flatten().unwrap_or_default()
}

/// CB_SEQUENCE4args.
#[derive(Debug)]
struct CbSequence {
    session: SessionId,
    sequence: u32,
    slot: u32,
    highest_slot: u32,
}

impl CbSequence {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        let args = Self {
            session: SessionId::decode(d)?,
            sequence: d.u32()?,
            slot: d.u32()?,
            highest_slot: d.u32()?,
        };
        let _cache_this = bool::decode(d)?;
        // csa_referring_call_lists: which of our calls this one may overtake.
        // What is recalled before we have heard of it is known by its stateid.
        for _ in 0..d.length(MAX_REFERRING)? {
            SessionId::decode(d)?;
            for _ in 0..d.length(MAX_REFERRING)? {
                d.u32()?;
                d.u32()?;
            }
        }
        Ok(args)
    }

    /// CB_SEQUENCE4resok.
    fn answer(&self, slots: usize) -> Vec<u8> {
        let highest = slots.saturating_sub(1) as u32;
        let mut e = Encoder::with_capacity(32);
        self.session.encode(&mut e);
        for word in [self.sequence, self.slot, highest, highest] {
            e.u32(word);
        }
        e.finish().flatten().map(|bytes| bytes.to_vec()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use zgate_rpc::auth::OpaqueAuth;

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

    /// A CB_COMPOUND; `sequence`: number and slot of a CB_SEQUENCE in front.
    fn call(sequence: Option<(u32, u32)>, count: u32, ops: impl Fn(&mut Encoder)) -> Bytes {
        let mut e = header(PROGRAM, 1, 1);
        e.opaque(b"tag");
        e.u32(1);
        e.u32(0);
        e.u32(count + u32::from(sequence.is_some()));
        if let Some((number, slot)) = sequence {
            e.u32(OP_CB_SEQUENCE);
            SESSION.encode(&mut e);
            // The highest slot, not cached, one referring list with one call.
            for word in [number, slot, 1, 0, 1] {
                e.u32(word);
            }
            SESSION.encode(&mut e);
            for word in [1, 3, 0] {
                e.u32(word);
            }
        }
        ops(&mut e);
        flat(e)
    }

    fn recall_of(seqid: u32) -> impl Fn(&mut Encoder) {
        move |e| {
            e.u32(OP_CB_RECALL);
            Stateid { seqid, other: [3; 12] }.encode(e);
            e.u32(0);
            Fh(vec![1, 2, 3]).encode(e);
        }
    }

    /// Status of the whole, and number and status of each operation.
    fn read(answer: &Bytes) -> (Status, Vec<(u32, Status)>) {
        let mut d = Decoder::new(answer);
        zgate_rpc::message::decode_reply(&mut d).unwrap();
        let status = Status::decode(&mut d).unwrap();
        assert_eq!(d.opaque(16).unwrap(), b"tag");
        let count = d.u32().unwrap();
        let mut results = Vec::new();
        for _ in 0..count {
            let (number, status) = (d.u32().unwrap(), Status::decode(&mut d).unwrap());
            if number == OP_CB_SEQUENCE && status == Status::Ok {
                assert_eq!(SessionId::decode(&mut d).unwrap(), SESSION);
                d.take(16).unwrap();
            }
            results.push((number, status));
        }
        d.finish().unwrap();
        (status, results)
    }

    #[test]
    fn a_recall_is_heard_once() {
        let (mut program, hand) = (program(), Hand::default());
        let first = program.answer(&call(Some((1, 0)), 1, recall_of(1)), &hand).unwrap();
        let ok = vec![(OP_CB_SEQUENCE, Status::Ok), (OP_CB_RECALL, Status::Ok)];
        assert_eq!(read(&first), (Status::Ok, ok));
        // Repeated in its slot: the same answer, and nothing happens.
        let again = program.answer(&call(Some((1, 0)), 1, recall_of(1)), &hand).unwrap();
        assert_eq!(first, again);
        assert_eq!(hand.recalled.borrow().len(), 1);
        // Another slot has its own numbers.
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
        for op in [OP_CB_GETATTR, 5, 6, 7, 9, 10, 12, 13, 14, OP_CB_OFFLOAD] {
            assert_eq!(said(op), [(op, Status::Notsupp)]);
        }
        for op in [0, 2, 16, 77] {
            assert_eq!(said(op), [(OP_CB_ILLEGAL, Status::OpIllegal)]);
        }
        assert_eq!(said(OP_CB_SEQUENCE), [(OP_CB_SEQUENCE, Status::SequencePos)]);
        assert!(hand.recalled.borrow().is_empty());
        let any = |e: &mut Encoder| {
            e.u32(OP_CB_RECALL_ANY);
            e.u32(3);
            Bitmap::of(&[READ_DELEGATIONS]).encode(e);
        };
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
        for wrong in [header(100_003, 4, 1), header(PROGRAM, 3, 1), header(PROGRAM, 1, 2)] {
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
