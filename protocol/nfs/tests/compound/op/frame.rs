//! The header of a COMPOUND, the legal positions of operations (RFC 8881 §16.2,
//! §18, RFC 7530 §16, RFC 7862 §15, RFC 8276 §8.1), and truncated arguments.

use zgate_nfs_wire::v4::op::{Read, Sequence};
use zgate_nfs_wire::v4::{OpNum, Stateid, Status};
use zgate_rpc::AcceptError;
use zgate_store::Payload;
use zgate_test_harness::nfs::{Fixture, Ops, Reply, each, every_minor, sessions};
use zgate_xdr::{Decode, Decoder};

/// Expected status of an operation number in a minor version, by the RFCs'
/// tables.
fn legality(number: u32, minor: u8) -> Status {
    let withdrawn = matches!(number, 20 | 30 | 35 | 36 | 39);
    let highest = [39, 58, 75][usize::from(minor)];
    match number {
        3.. if number > highest => Status::OpIllegal,
        0..=2 => Status::OpIllegal,
        _ if minor > 0 && withdrawn => Status::Notsupp,
        _ => Status::Ok,
    }
}

#[test]
fn only_the_minor_versions_own_operations_are_legal() {
    every_minor(|s| {
        for number in (0..90).chain([10_044, u32::MAX]) {
            let reply = s.c.run(Ops::new().raw(number, &[]));
            let last = reply.answers.last().unwrap();
            match legality(number, s.c.minor) {
                Status::Ok => {
                    assert_ne!(last.status, Status::OpIllegal, "{number}");
                    assert_eq!(last.num, number);
                }
                Status::OpIllegal => {
                    assert_eq!(last.status, Status::OpIllegal, "{number} in {}", s.c.minor);
                    assert_eq!(last.num, OpNum::Illegal as u32);
                }
                status => assert_eq!((last.status, last.num), (status, number)),
            }
        }
    });
}

#[test]
fn arguments_cut_short_are_bad_xdr() {
    /// Operations without arguments, and those that never decode them.
    const NO_ARGUMENTS: [u32; 13] = [10, 16, 23, 24, 27, 31, 32, 47, 48, 49, 51, 64, 65];
    every_minor(|s| {
        for number in 3..=75 {
            if legality(number, s.c.minor) != Status::Ok || NO_ARGUMENTS.contains(&number) {
                continue;
            }
            // Operations that must be alone, or first, in a COMPOUND.
            let lonely = matches!(number, 41 | 53);
            for len in 0..3 {
                let ops = Ops::new().raw(number, &vec![0; len]);
                let reply = if lonely { s.c.bare(ops) } else { s.c.run(ops) };
                assert_eq!(reply.status, Status::Badxdr, "{number} with {len} bytes");
            }
        }
    });
}

#[test]
fn outside_a_session_only_few_operations_run() {
    sessions(|s| {
        for number in 3..=75_u32 {
            if legality(number, s.c.minor) == Status::OpIllegal {
                continue;
            }
            let status = s.c.bare(Ops::new().raw(number, &[])).status;
            match number {
                41 | 42 | 43 | 44 | 53 | 57 => assert_eq!(status, Status::Badxdr, "{number}"),
                _ => assert_eq!(status, Status::OpNotInSession, "{number}"),
            }
        }
        let two = Ops::new().op::<zgate_nfs_wire::v4::op::ExchangeId>(&s.c.exchange_args()).root();
        assert_eq!(s.c.bare(two).status, Status::NotOnlyOp);
        s.c.check("SEQUENCE twice", Ops::new().raw(53, &[0; 32]), Status::SequencePos);
        s.c.check("BIND_CONN_TO_SESSION inside", Ops::new().raw(41, &[0; 24]), Status::NotOnlyOp);
    });
}

fn head(minor: u32, count: u32, tag: &[u8]) -> Vec<u8> {
    let mut e = zgate_xdr::Encoder::new();
    e.opaque(tag);
    e.u32(minor);
    e.u32(count);
    e.finish().flatten().unwrap().to_vec()
}

#[test]
fn unknown_minor_versions_and_odd_tags() {
    every_minor(|s| {
        let raw = s.c.send(&head(3, 1, b"tag")).unwrap();
        let reply = Reply::parse(raw.clone(), &[]);
        assert_eq!(reply.status, Status::MinorVersMismatch);
        let mut d = Decoder::new(&raw);
        Status::decode(&mut d).unwrap();
        assert_eq!(d.opaque(9).unwrap(), b"tag", "the tag comes back");
        let minor = u32::from(s.c.minor);
        let bad = Reply::parse(s.c.send(&head(minor, 0, b"\xff")).unwrap(), &[]);
        assert_eq!(bad.status, Status::Inval);
        let empty = Reply::parse(s.c.send(&head(minor, 0, b"")).unwrap(), &[]);
        assert_eq!((empty.status, empty.answers.len()), (Status::Ok, 0));
        assert_eq!(s.c.send(&head(minor, 0, &[b'x'; 1025])), Err(AcceptError::GarbageArguments));
        assert_eq!(s.c.send(b""), Err(AcceptError::GarbageArguments));
        assert_eq!(s.c.send(&[0; 8]), Err(AcceptError::GarbageArguments));
    });
}

/// Sends operations, after SEQUENCE where there are sessions, in a COMPOUND with a tag. A retry
/// has the same answer.
fn tagged(s: &Fixture, tag: &[u8], ops: Ops) -> Reply {
    let mut first = Ops::new();
    if s.c.minor > 0 {
        let next = s.c.slots.borrow()[0].wrapping_add(1);
        s.c.slots.borrow_mut()[0] = next;
        first = first.op::<Sequence>(&s.c.sequence_args(0, next));
    }
    let (bytes, sent) = ops.after(first).encode(tag, u32::from(s.c.minor));
    let raw = s.c.send(&bytes).unwrap();
    if s.c.minor > 0 {
        assert_eq!(s.c.send(&bytes).unwrap(), raw);
    }
    Reply::parse(raw, &sent)
}

/// The head is written before the operations, and completed behind them: the data of READ
/// is apart then.
#[test]
fn the_head_tells_of_all_that_ran_behind_any_tag_and_before_data() {
    every_minor(|s| {
        s.c.cache.set(true);
        let first = usize::from(s.c.minor > 0);
        let ops = || Ops::new().at(&s.file).read(Stateid::ANONYMOUS, 0, 7);
        for len in [0, 1, 4, 1023, 1024] {
            let tag = vec![b't'; len];
            let whole = tagged(s, &tag, ops());
            assert_eq!((whole.status, whole.answers.len()), (Status::Ok, first + 2), "{len}");
            let Payload::Bytes(data) = whole.get::<Read>().data else { panic!("a span") };
            assert_eq!(&data[..], b"content", "{len}");
            let cut = tagged(s, &tag, ops().lookup("x").root());
            assert_eq!((cut.status, cut.answers.len()), (Status::Notdir, first + 3), "{len}");
            for reply in [whole, cut] {
                let mut d = Decoder::new(&reply.raw);
                Status::decode(&mut d).unwrap();
                assert_eq!(d.opaque(1024).unwrap(), tag);
            }
        }
    });
}

#[test]
fn more_operations_than_allowed() {
    each([0], |s| {
        let many = |count| (0..count).fold(Ops::new(), |ops, _| ops.root());
        assert_eq!(s.c.run(many(128)).status, Status::Ok);
        assert_eq!(s.c.run(many(129)).status, Status::Resource);
        let short = s.c.send(&head(0, 2, b"")).unwrap();
        let status = Status::decode(&mut Decoder::new(&short));
        assert_eq!(status, Ok(Status::Badxdr), "fewer operations than announced");
    });
    sessions(|s| {
        let many = |count| (0..count).fold(Ops::new(), |ops, _| ops.root());
        assert_eq!(s.c.run(many(63)).status, Status::Ok);
        assert_eq!(s.c.run(many(64)).status, Status::TooManyOps);
    });
}
