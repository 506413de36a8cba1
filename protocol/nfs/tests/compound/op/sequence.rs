//! SEQUENCE (RFC 8881 §18.46, §2.10.6): exactly-once semantics.

use zgate_test_harness::nfs::{LEASE, OpenRequest, Ops, Harness, Fixture, by_kerberos, mode, sessions};
use zgate_memory::{FileOp, When};
use zgate_nfs_wire::v4::op::DestroySession;
use zgate_nfs_wire::v4::op::Open;
use zgate_nfs_wire::v4::op::destroy_session;
use zgate_nfs_wire::v4::op::open::How;
use zgate_nfs_wire::v4::op::Read;
use zgate_nfs_wire::v4::op::Sequence;
use zgate_nfs_wire::v4::op::sequence;
use zgate_nfs_wire::v4::{SessionId, Status};
use zgate_nfs_wire::v4::{StableHow, Stateid};
use zgate_rpc::gss::{Service, reply_overhead_bytes};

fn lone(s: &Fixture, slot: u32, sequence: u32) -> Ops {
    Ops::new().op::<Sequence>(&s.c.sequence_args(slot, sequence))
}

#[test]
fn a_retry_gets_the_same_answer_and_runs_once() {
    sessions(|s| {
        s.c.cache.set(true);
        let next = s.c.slots.borrow()[0] + 1;
        let ops = || Ops::new().at(&s.root).remove("link");
        let first = s.c.run_as(0, next, ops()).ok();
        let again = s.c.run_as(0, next, ops()).ok();
        assert_eq!(first.raw, again.raw);
        s.c.check("a new request", ops(), Status::Noent);
    });
}

#[test]
fn a_retry_of_a_failure_fails_the_same_way() {
    sessions(|s| {
        s.c.cache.set(true);
        let next = s.c.slots.borrow()[0] + 1;
        let ops = || Ops::new().at(&s.root).lookup("nothing").getfh();
        let first = s.c.run_as(0, next, ops());
        s.c.mkdir_elsewhere("nothing");
        assert_eq!(s.c.run_as(0, next, ops()).raw, first.raw);
    });
}

#[test]
fn what_was_not_to_be_kept_is_not_repeated() {
    sessions(|s| {
        let next = s.c.slots.borrow()[0] + 1;
        let ops = || Ops::new().at(&s.root).remove("link");
        s.c.run_as(0, next, ops()).ok();
        // SEQUENCE itself never has this status (RFC 8881 §2.10.6.1.3).
        let again = s.c.run_as(0, next, ops());
        assert_eq!(again.status, Status::RetryUncachedRep);
        let said = again.sequence.unwrap();
        assert_eq!((said.sequence, said.slot, again.answers.len()), (next, 0, 1));
        // A retry is told of a number without an operation as the request was.
        for (number, status) in [(2, Status::OpIllegal), (36, Status::Notsupp)] {
            let next = s.c.slots.borrow()[0] + 1;
            let odd = || s.c.run_as(0, next, Ops::new().raw(number, &[]));
            assert_eq!((odd().status, odd().status), (status, status));
        }
        // A lone SEQUENCE is always cached (RFC 8881 §18.46.3).
        let first = s.c.bare(lone(s, 1, 1)).ok();
        assert_eq!(s.c.bare(lone(s, 1, 1)).ok().raw, first.raw);
    });
}

#[test]
fn another_request_with_an_old_number_is_found_out() {
    sessions(|s| {
        s.c.cache.set(true);
        let next = s.c.slots.borrow()[0] + 1;
        s.c.run_as(0, next, Ops::new().at(&s.root).remove("link")).ok();
        let other = s.c.run_as(0, next, Ops::new().at(&s.root).remove("fifo"));
        assert_eq!(other.status, Status::SeqFalseRetry);
        assert!(s.c.lookup(&s.root, "fifo").is_ok());
    });
}

#[test]
fn numbers_and_slots_out_of_order() {
    sessions(|s| {
        let next = s.c.slots.borrow()[0] + 1;
        for wrong in [next + 1, next - 2, next.wrapping_add(1 << 31), u32::MAX] {
            assert_eq!(s.c.bare(lone(s, 0, wrong)).status, Status::SeqMisordered, "{wrong}");
        }
        assert_eq!(s.c.bare(lone(s, 3, 1)).status, Status::Ok, "each slot counts for itself");
        assert_eq!(s.c.bare(lone(s, 4, 1)).status, Status::Badslot);
        let high = sequence::Args { highest_slot: 4, ..s.c.sequence_args(2, 1) };
        assert_eq!(s.c.bare(Ops::new().op::<Sequence>(&high)).status, Status::BadHighSlot);
        let none = sequence::Args { session: SessionId([9; 16]), ..s.c.sequence_args(2, 1) };
        assert_eq!(s.c.bare(Ops::new().op::<Sequence>(&none)).status, Status::Badsession);
        // None of these advanced the slot.
        s.c.check("the next one", Ops::new().root(), Status::Ok);
    });
}

#[test]
fn a_retry_while_the_first_runs_waits() {
    sessions(|s| {
        s.c.cache.set(true);
        let next = s.c.slots.borrow()[0] + 1;
        let hold = s.harness.store.faults().hold_next(FileOp::Remove, When::AfterEffect);
        let ops = || Ops::new().at(&s.root).remove("link");
        let pending = s.c.begin(0, next, ops());
        s.harness.simulation.settle();
        assert!(pending.borrow().is_none());
        assert_eq!(s.c.run_as(0, next, ops()).status, Status::Delay);
        assert_eq!(s.c.run_as(0, next + 1, ops()).status, Status::Delay);
        hold.release();
        s.harness.simulation.settle();
        let first = pending.borrow_mut().take().unwrap();
        assert_eq!(s.c.run_as(0, next, ops()).ok().raw, first);
    });
}

#[test]
fn limits_of_the_session() {
    sessions(|s| {
        let harness: &std::rc::Rc<Harness> = &s.harness;
        let small = harness.stranger("small", s.c.minor);
        small.introduce_with(|fore| {
            fore.max_request_bytes = 600;
            fore.max_response_bytes = 700;
            fore.max_cached_bytes = 400;
            fore.max_ops = 8;
        });
        small.reclaim_complete().unwrap();
        let many = (0..8).fold(Ops::new(), |ops, _| ops.root());
        small.check("many operations", many, Status::TooManyOps);
        let big = Ops::new().at(&s.file).write(Stateid::ANONYMOUS, 0, &[1; 700], StableHow::Unstable);
        small.check("a big request", big, Status::ReqTooBig);
        let content = s.c.file(&s.root, "kilobyte", &[5; 1024]);
        // READ returns less data instead of failing.
        let read = small.run(Ops::new().at(&content).read(Stateid::ANONYMOUS, 0, 1024)).ok();
        assert!(read.raw.len() <= 700 && read.get::<Read>().data.len() > 300);
        let all: Vec<u32> = (0..56).filter(|bit| ![48, 54].contains(bit)).collect();
        let wide = || Ops::new().at(&content).getattr(&all).getattr(&all);
        small.check("a big answer", wide(), Status::RepTooBig);
        let read = Ops::new().at(&content).read(Stateid::ANONYMOUS, 0, 64);
        let behind_data = read.getattr(&all).getattr(&all);
        small.check("a big answer behind data", behind_data, Status::RepTooBig);
        small.cache.set(true);
        let half = || Ops::new().at(&content).getattr(&all);
        small.check("too big to keep", half(), Status::RepTooBigToCache);
        let kept = small.run(Ops::new().at(&content).getattr(&[1, 4])).ok();
        assert!(kept.raw.len() <= 400);
    });
}

/// An error tells the client that nothing was done (RFC 8881 §2.10.6.4).
#[test]
fn what_has_no_room_for_its_result_is_not_done() {
    sessions(|s| {
        let small = s.harness.stranger("small", s.c.minor);
        small.introduce_with(|fore| {
            fore.max_response_bytes = 700;
            fore.max_cached_bytes = 400;
        });
        small.reclaim_complete().unwrap();
        let long = s.c.file(&s.root, "kilobyte", &[5; 1024]);
        let read = |bytes| Ops::new().at(&long).read(Stateid::ANONYMOUS, 0, bytes);
        for (kept, status) in [(false, Status::RepTooBig), (true, Status::RepTooBigToCache)] {
            small.cache.set(kept);
            // The data takes all the room that there is.
            let write = read(1024).write(Stateid::ANONYMOUS, 0, b"new", StableHow::Unstable);
            small.check("WRITE", write, status);
            assert_eq!(s.c.content(&long), [5_u8; 1024]);
            // There is room for a result without the change numbers.
            let bytes = if kept { 240 } else { 540 };
            small.check("REMOVE", read(bytes).at(&s.root).remove("link"), status);
            assert!(s.c.lookup(&s.root, "link").is_ok());
        }
        small.cache.set(false);
        let (mut opened, mut refused) = (0, 0);
        for bytes in (300..560).step_by(4) {
            let name = format!("new{bytes}");
            let wish = OpenRequest::name(&s.root, &name).how(How::Unchecked(mode(0o644)));
            let open = read(bytes).at(&s.root).op::<Open>(&small.open_args(&wish)).getfh();
            let done = small.run(open).status == Status::Ok;
            assert_eq!(s.c.lookup(&s.root, &name).is_ok(), done, "{bytes}");
            if done {
                opened += 1;
            } else {
                refused += 1;
            }
        }
        assert!(opened > 0 && refused > 0, "{opened} {refused}");
    });
}

/// The headers of RPC are part of a reply (RFC 8881 §18.36.3), and what Kerberos adds to it.
#[test]
fn the_protection_of_a_reply_counts_towards_its_length() {
    sessions(|s| {
        for service in Service::ALL {
            let small = s.harness.stranger(&format!("{service:?}"), s.c.minor);
            *small.credential.borrow_mut() = by_kerberos("host/a@R", service);
            small.introduce_with(|fore| fore.max_response_bytes = 700);
            let mut longest = 0;
            for handles in 0..60 {
                let ops = (0..handles).fold(Ops::new().root(), |ops, _| ops.getfh());
                let reply = small.run(ops);
                // The header of a reply with an empty verifier has 24 bytes.
                let sent = reply.raw.len() + 24 + reply_overhead_bytes(service);
                assert!(sent <= 700, "{service:?}: {sent} bytes, {:?}", reply.status);
                if reply.status != Status::Ok {
                    assert_eq!(reply.status, Status::RepTooBig);
                    break;
                }
                longest = sent;
            }
            assert!(longest > 600, "{service:?}: {longest}");
        }
    });
}

#[test]
fn an_error_of_sequence_leaves_the_slot_as_it_was() {
    sessions(|s| {
        let small = s.harness.stranger("small", s.c.minor);
        small.introduce_with(|fore| {
            fore.max_response_bytes = 700;
            fore.max_cached_bytes = 100;
        });
        let run = |sequence| small.run_as(0, sequence, Ops::new().root()).status;
        small.cache.set(true);
        assert_eq!(run(1), Status::RepTooBigToCache);
        small.cache.set(false);
        assert_eq!(run(1), Status::Ok, "with the same number");
        // The tag is a part of the reply.
        let first = Ops::new().op::<Sequence>(&small.sequence_args(0, 2));
        let (long, _) = Ops::new().root().after(first).encode(&[b'x'; 700], s.c.minor.into());
        let raw = small.send(&long).unwrap();
        assert_eq!(raw[..4], (Status::RepTooBig as u32).to_be_bytes());
        assert_eq!(run(2), Status::Ok, "with the same number");
    });
}

#[test]
fn a_retry_renews_the_lease_and_binds_its_connection() {
    sessions(|s| {
        s.open();
        s.c.cache.set(true);
        s.c.run(Ops::new().root()).ok();
        s.harness.pass_seconds(LEASE - 1);
        s.c.reconnect();
        let (first, again) = s.c.repeat();
        assert_eq!(first, again);
        s.harness.pass_seconds(2);
        let thief = s.harness.stranger("fixture", s.c.minor);
        thief.become_user(1000, 1000);
        assert_eq!(thief.exchange_id(), Err(Status::ClidInuse));
        let args = destroy_session::Args { session: s.c.session.get() };
        let ended = s.c.bare(Ops::new().op::<DestroySession>(&args)).status;
        assert_eq!(ended, Status::Ok, "over the new connection");
    });
}

#[test]
fn a_cached_reply_is_for_who_asked_only() {
    // RFC 8881 §2.10.6.1.3.1: the same request under another credential is a
    // false retry.
    sessions(|s| {
        s.c.cache.set(true);
        let next = s.c.slots.borrow()[0] + 1;
        let ops = || Ops::new().at(&s.root).lookup("file").getfh();
        let first = s.c.run_as(0, next, ops()).ok();
        let theirs = s.c.as_user(1234, || s.c.run_as(0, next, ops()));
        assert_eq!(theirs.status, Status::SeqFalseRetry);
        assert_eq!(s.c.run_as(0, next, ops()).ok().raw, first.raw);
    });
}
