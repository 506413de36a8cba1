//! COPY, COPY_NOTIFY, CLONE, OFFLOAD_CANCEL and OFFLOAD_STATUS
//! (RFC 7862 §15.2, §15.3, §15.8, §15.9, §15.13).

use super::root_traits::RootTraits;
use zgate_test_harness::nfs::{CallbackBehavior, Client, Ops, Harness, Fixture, OpenRequest, each};
use zgate_nfs_wire::v4::callback::CallbackOp;
use zgate_nfs_wire::v4::Fh;
use zgate_nfs_wire::v4::op::{BindConnToSession, bind_conn_to_session};
use zgate_nfs_wire::v4::op::{Clone as CloneOp, clone};
use zgate_nfs_wire::v4::op::Copy;
use zgate_nfs_wire::v4::op::copy::{NetLocation, self};
use zgate_nfs_wire::v4::op::CopyNotify;
use zgate_nfs_wire::v4::op::copy_notify;
use zgate_nfs_wire::v4::op::OffloadCancel;
use zgate_nfs_wire::v4::op::offload_cancel;
use zgate_nfs_wire::v4::op::OffloadStatus;
use zgate_nfs_wire::v4::op::offload_status;
use zgate_nfs_wire::v4::attr::CLONE_BLKSIZE;
use zgate_nfs_wire::v4::{Stateid, Status};
use std::sync::Arc;
use zgate_store::FileStore;
use zgate_store::file_store::StoreTraits;
use zgate_xdr::Opaque;

// Clone is imported under another name, not to hide the trait.

const ANY: Stateid = Stateid::ANONYMOUS;

fn copy_args(from_offset: u64, to_offset: u64, count: u64) -> copy::Args {
    copy::Args {
        from: ANY,
        to: ANY,
        from_offset,
        to_offset,
        count,
        consecutive: true,
        synchronous: true,
        servers: Vec::new(),
    }
}

fn clone_args(from_offset: u64, to_offset: u64, count: u64) -> clone::Args {
    clone::Args { from: ANY, to: ANY, from_offset, to_offset, count }
}

fn between(from: &Fh, to: &Fh) -> Ops {
    Ops::new().at(from).save().at(to)
}

#[test]
fn bytes_are_copied() {
    each([2], |s| {
        let to = s.c.file(&s.root, "to", b"0123456789");
        let ops = between(&s.file, &to).op::<Copy>(&copy_args(3, 5, 2));
        let res = s.c.run(ops).ok().get::<Copy>();
        assert_eq!((res.count, res.synchronous, res.callback), (2, true, None));
        assert_eq!(s.c.content(&to), b"01234te789");
        s.c.check("to the end", between(&s.file, &to).op::<Copy>(&copy_args(3, 9, 0)), Status::Ok);
        assert_eq!(s.c.content(&to), b"01234te78tent");
        let within = between(&s.file, &s.file).op::<Copy>(&copy_args(0, 7, 7));
        s.c.check("within one file", within, Status::Ok);
        assert_eq!(s.c.content(&s.file), b"contentcontent");
        let overlap = between(&s.file, &s.file).op::<Copy>(&copy_args(0, 3, 7));
        s.c.check("onto itself", overlap, Status::Inval);
    });
}

#[test]
fn blocks_are_shared() {
    each([2], |s| {
        let from = s.c.file(&s.root, "from", &[7; 10_000]);
        let to = s.c.file(&s.root, "to", b"");
        let run = |args| s.c.run(between(&from, &to).op::<CloneOp>(&args)).status;
        let commits = || s.harness.store.faults().calls(zgate_memory::FileOp::Commit);
        let before = commits();
        assert_eq!(run(clone_args(0, 4096, 0)), Status::Ok);
        assert_eq!(commits() - before, 1, "nobody will ask for it");
        assert_eq!(s.c.number(&to, 4), 14_096);
        assert_eq!(&s.c.content(&to)[4096..], &[7; 10_000]);
        assert_eq!(run(clone_args(4096, 0, 4096)), Status::Ok);
        assert_eq!(&s.c.content(&to)[..4096], &[7; 4096]);
        assert_eq!(run(clone_args(1, 0, 4096)), Status::Inval, "not at a block");
        assert_eq!(run(clone_args(0, 100, 4096)), Status::Inval, "not to a block");
        assert_eq!(run(clone_args(0, 0, 100)), Status::Inval, "no whole block");
        assert_eq!(run(clone_args(8192, 0, 4096)), Status::Inval, "beyond the end");
        assert_eq!(run(clone_args(u64::MAX, 0, 4096)), Status::Inval);
    });
}

/// RFC 7862 §12.2.1: the attribute is the file system's, and a dataset below the export's root
/// has a recordsize of its own.
#[test]
fn blocks_are_those_of_the_file_system_of_the_file() {
    each([2], |s| {
        let from = s.c.file(&s.root, "from", &[7; 8192]);
        let to = s.c.file(&s.root, "to", b"");
        let store = &s.harness.store;
        let traits = StoreTraits { clone_block_bytes: Some(1 << 20), ..store.traits() };
        s.harness.serve_through("/export", Arc::new(RootTraits(store.clone(), traits)));
        assert_eq!(s.c.number(&to, CLONE_BLKSIZE), 4096);
        let clone = between(&from, &to).op::<CloneOp>(&clone_args(4096, 0, 4096));
        s.c.check("one block", clone, Status::Ok);
        assert_eq!(s.c.content(&to), [7; 4096]);
    });
}

/// Refusals common to both operations.
fn check_refusals(s: &Fixture, what: &str, op: &dyn Fn(Ops, Stateid, Stateid) -> Ops) {
    let to = s.c.file(&s.root, "to", b"0123");
    let plain = |ops| op(ops, ANY, ANY);
    s.c.check(what, plain(Ops::new()), Status::Nofilehandle);
    s.c.check(what, plain(Ops::new().at(&to)), Status::Nofilehandle);
    s.c.check(what, plain(between(&s.stale, &to)), Status::Stale);
    s.c.check(what, plain(between(&s.file, &s.stale)), Status::Stale);
    s.c.check(what, plain(between(&s.dir, &to)), Status::WrongType);
    s.c.check(what, plain(between(&s.file, &s.dir)), Status::WrongType);
    s.c.check(what, plain(Ops::new().root().save().at(&to)), Status::WrongType);
    s.c.check(what, plain(between(&s.fifo, &to)), Status::WrongType);
    s.c.check(what, plain(between(&s.file, &s.link)), Status::WrongType);
    let ro = s.c.lookup(&s.harness.root_of("/dir/ro"), "to").unwrap();
    s.c.check(what, plain(between(&s.file, &ro)), Status::Rofs);
    let second = s.c.file(&s.harness.root_of("/dir/second"), "there", b"");
    s.c.check(what, plain(between(&s.file, &second)), Status::Xdev);
    s.c.check(what, op(between(&s.file, &to), Stateid::INVALID, ANY), Status::BadStateid);
    s.c.check(what, op(between(&s.file, &to), ANY, Stateid::INVALID), Status::BadStateid);
    let reader = s.c.open(&OpenRequest::name(&s.root, "to").access(1)).unwrap();
    s.c.check(what, op(between(&s.file, &to), ANY, reader.stateid), Status::Openmode);
    s.c.as_user(1000, || s.c.check(what, plain(between(&s.file, &to)), Status::Access));
}

#[test]
fn refusals() {
    each([2], |s| {
        check_refusals(s, "COPY", &|ops, from, to| {
            ops.op::<Copy>(&copy::Args { from, to, ..copy_args(0, 0, 0) })
        });
    });
    each([2], |s| {
        check_refusals(s, "CLONE", &|ops, from, to| {
            ops.op::<CloneOp>(&clone::Args { from, to, ..clone_args(0, 0, 0) })
        });
    });
    each([2], |s| {
        let to = s.c.file(&s.root, "to", b"");
        for (from, count) in [(8, 0), (0, 8), (7, 1), (u64::MAX, 1)] {
            let ops = between(&s.file, &to).op::<Copy>(&copy_args(from, 0, count));
            s.c.check("beyond the source", ops, Status::Inval);
        }
        let servers = vec![NetLocation::Text(Opaque(b"elsewhere".to_vec()))];
        let args = copy::Args { servers, ..copy_args(0, 0, 0) };
        s.c.check("other servers", between(&s.file, &to).op::<Copy>(&args), Status::Notsupp);
        let notify = copy_notify::Args {
            stateid: ANY,
            destination: NetLocation::Address(Opaque(b"tcp".to_vec()), Opaque(b"x".to_vec())),
        };
        s.c.check("to others", Ops::new().at(&to).op::<CopyNotify>(&notify), Status::Notsupp);
        s.c.check("no handle", Ops::new().op::<CopyNotify>(&notify), Status::Nofilehandle);
    });
}

/// A large hole: copied in separate steps.
fn large(c: &zgate_test_harness::nfs::Client) -> (Fh, Fh) {
    let root = c.export();
    let from = c.create_in(&root, "from");
    c.truncate(&from.fh, from.stateid, 100 << 20).unwrap();
    let to = c.create_in(&root, "to");
    (from.fh, to.fh)
}

#[test]
fn a_long_copy_goes_on_after_its_answer() {
    let harness = Harness::new();
    let c = harness.reachable("c", 2);
    let maker = harness.client("maker", 2);
    let (from, to) = large(&maker);
    let hold = harness.store.faults().hold_next(zgate_memory::FileOp::CopyRange, zgate_memory::When::BeforeEffect);
    let args = copy::Args { synchronous: false, ..copy_args(0, 0, 0) };
    let res = c.run(between(&from, &to).op::<Copy>(&args)).ok().get::<Copy>();
    assert!(!res.synchronous && res.count == 0);
    let stateid = res.callback.unwrap();
    let ask = || {
        let ops = Ops::new().at(&to).op::<OffloadStatus>(&offload_status::Args { stateid });
        c.run(ops).result().map(|reply| reply.get::<OffloadStatus>())
    };
    assert_eq!(ask().unwrap(), offload_status::Res { count: 0, complete: None });
    hold.release();
    harness.simulation.settle();
    let done = offload_status::Res { count: 100 << 20, complete: Some(Status::Ok) };
    assert_eq!(ask().unwrap(), done);
    let told = CallbackOp::Offload {
        fh: to.clone(),
        stateid,
        status: Status::Ok,
        bytes: 100 << 20,
        committed: 0,
        verifier: res.verifier,
    };
    assert_eq!(c.callbacks(), [told]);
    assert_eq!(c.number(&to, 4), 100 << 20);
    let cancel = |stateid| Ops::new().at(&to).op::<OffloadCancel>(&offload_cancel::Args { stateid });
    let other = harness.client("other", 2);
    other.check("another client's", cancel(stateid), Status::BadStateid);
    c.check("known until cancelled", cancel(stateid), Status::Ok);
    c.check("forgotten", cancel(stateid), Status::BadStateid);
    assert_eq!(ask().unwrap_err(), Status::BadStateid);
}

/// Starts a long copy.
fn begin(c: &Client, from: &Fh, to: &Fh) -> Stateid {
    let args = copy::Args { synchronous: false, ..copy_args(0, 0, 0) };
    c.run(between(from, to).op::<Copy>(&args)).ok().get::<Copy>().callback.unwrap()
}

/// Lets time pass for a client that renews its lease.
fn pass(c: &Client, seconds: u64) {
    for _ in 0..seconds {
        c.harness.pass_seconds(1);
        c.run(Ops::new().root()).ok();
    }
}

#[test]
fn the_end_of_a_copy_is_told_over_the_next_back_channel() {
    let harness = Harness::new();
    let c = harness.reachable("c", 2);
    let (from, to) = large(&harness.client("maker", 2));
    let hold = harness.store.faults().hold_next(zgate_memory::FileOp::CopyRange, zgate_memory::When::BeforeEffect);
    begin(&c, &from, &to);
    let lost = zgate_nfs::runtime::ConnectionId(c.connection.get());
    harness.simulation.cut(lost);
    harness.server().connection_closed(lost);
    hold.release();
    harness.simulation.settle();
    assert_eq!(c.callbacks(), []);
    c.reconnect();
    pass(&c, 60);
    assert_eq!(c.callbacks(), [], "there is no back channel");
    let direction = bind_conn_to_session::Direction::BackOrBoth;
    let args =
        bind_conn_to_session::Args { session: c.session.get(), direction, rdma_mode: false };
    c.bare(Ops::new().op::<BindConnToSession>(&args)).ok();
    pass(&c, 10);
    assert!(matches!(c.callbacks()[..], [CallbackOp::Offload { bytes: 0x640_0000, .. }]));
    pass(&c, 60);
    assert_eq!(c.callbacks().len(), 1, "it has been acknowledged");
}

#[test]
fn the_end_of_a_copy_is_not_told_for_ever_nor_to_who_asked() {
    for asks in [false, true] {
        let harness = Harness::new();
        let c = harness.reachable("c", 2);
        let (from, to) = large(&harness.client("maker", 2));
        // The call that greets a new session is over.
        harness.pass_seconds(1);
        let calls = || harness.simulation.inbox().calls;
        let before = calls();
        c.answers_callbacks(CallbackBehavior::Unreachable);
        let stateid = begin(&c, &from, &to);
        harness.simulation.settle();
        assert_eq!(calls() - before, 1);
        if asks {
            let args = offload_status::Args { stateid };
            let reply = c.run(Ops::new().at(&to).op::<OffloadStatus>(&args)).ok();
            assert_eq!(reply.get::<OffloadStatus>().complete, Some(Status::Ok));
        }
        pass(&c, 60);
        assert_eq!(calls() - before, if asks { 1 } else { 5 });
    }
}

#[test]
fn a_cancelled_copy_stops_before_its_client_is_told_so() {
    let harness = Harness::new();
    let c = harness.reachable("c", 2);
    let (from, to) = large(&harness.client("maker", 2));
    let hold = harness.store.faults().hold(zgate_memory::FileOp::CopyRange, zgate_memory::When::BeforeEffect);
    let cancel = |stateid| Ops::new().at(&to).op::<OffloadCancel>(&offload_cancel::Args { stateid });
    let copies: Vec<_> = (0..64).map(|_| begin(&c, &from, &to)).collect();
    for copy in &copies {
        c.check("it still writes", cancel(*copy), Status::Delay);
    }
    let args = copy::Args { synchronous: false, ..copy_args(0, 0, 0) };
    c.check("as many as may be", between(&from, &to).op::<Copy>(&args), Status::Delay);
    hold.release();
    harness.simulation.settle();
    let stopped = c.number(&to, 4);
    assert!(stopped < 100 << 20, "{stopped}");
    c.check("it has ended", cancel(copies[0]), Status::Ok);
    c.write(&to, ANY, 0, b"mine").unwrap();
    pass(&c, 10);
    assert_eq!(c.content(&to)[..4], *b"mine");
    assert_eq!(c.number(&to, 4), stopped);
    assert_eq!(c.callbacks(), []);
    begin(&c, &from, &to);
    begin(&c, &from, &to);
    harness.simulation.settle();
    c.check("it made room", cancel(copies[1]), Status::BadStateid);
}

#[test]
fn copies_of_a_client_that_restarts_take_its_places_until_they_have_ended() {
    let harness = Harness::new();
    let c = harness.reachable("c", 2);
    let (from, to) = large(&harness.client("maker", 2));
    let hold = harness.store.faults().hold(zgate_memory::FileOp::CopyRange, zgate_memory::When::BeforeEffect);
    for _ in 0..64 {
        begin(&c, &from, &to);
    }
    c.reboot();
    c.introduce(true);
    let args = copy::Args { synchronous: false, ..copy_args(0, 0, 0) };
    c.check("those of before still write", between(&from, &to).op::<Copy>(&args), Status::Delay);
    hold.release();
    harness.simulation.settle();
    let stopped = c.number(&to, 4);
    assert!(stopped < 100 << 20, "{stopped}");
    begin(&c, &from, &to);
}

#[test]
fn a_copy_that_stops_soon_is_cancelled_at_once() {
    let harness = Harness::new();
    let c = harness.reachable("c", 2);
    let (from, to) = large(&harness.client("maker", 2));
    let hold = harness.store.faults().hold_next(zgate_memory::FileOp::CopyRange, zgate_memory::When::BeforeEffect);
    let stateid = begin(&c, &from, &to);
    let cancel = c.begin_next(Ops::new().at(&to).op::<OffloadCancel>(&offload_cancel::Args { stateid }));
    harness.simulation.settle();
    assert!(cancel.borrow().is_none(), "it waits");
    hold.release();
    harness.pass_seconds(1);
    let answer = cancel.borrow_mut().take().unwrap();
    assert_eq!(answer[..4], [0; 4]);
    assert_eq!(c.callbacks(), []);
    for op in [false, true] {
        let ops = if op {
            Ops::new().op::<OffloadStatus>(&offload_status::Args { stateid })
        } else {
            Ops::new().op::<OffloadCancel>(&offload_cancel::Args { stateid })
        };
        c.check("no handle", ops, Status::Nofilehandle);
    }
}
