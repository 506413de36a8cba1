//! State of one client is granted to another one only after the end of the
//! first client's changes in the backend.

use std::rc::Rc;
use zgate_memory::{FileOp, When};
use zgate_nfs::limits::{LEASES_OF_A_RUNNING_REQUEST, RESTART_PATIENCE_SECONDS};
use zgate_nfs_wire::v4::Fh;
use zgate_nfs_wire::v4::op::Allocate;
use zgate_nfs_wire::v4::op::Clone;
use zgate_nfs_wire::v4::op::Copy;
use zgate_nfs_wire::v4::op::CreateSession;
use zgate_nfs_wire::v4::op::Deallocate;
use zgate_nfs_wire::v4::op::Open;
use zgate_nfs_wire::v4::op::Renew;
use zgate_nfs_wire::v4::op::Setattr;
use zgate_nfs_wire::v4::op::allocate;
use zgate_nfs_wire::v4::op::clone;
use zgate_nfs_wire::v4::op::copy;
use zgate_nfs_wire::v4::op::deallocate;
use zgate_nfs_wire::v4::op::open::How;
use zgate_nfs_wire::v4::op::renew;
use zgate_nfs_wire::v4::op::setattr;
use zgate_nfs_wire::v4::{LockType, StableHow, Stateid, Status};
use zgate_test_harness::nfs::{
    CallbackBehavior, Client, Harness, LEASE, OpenRequest, Opened, Ops, attrs,
};

fn alive(c: &Client) -> Status {
    if c.minor > 0 {
        return c.run(Ops::new().root()).status;
    }
    c.run(Ops::new().op::<Renew>(&renew::Args { clientid: c.id.get() })).status
}

/// Time passes until a client with a running request has no lease any more; `other`
/// keeps its own.
fn outlast_running(harness: &Harness, other: &Client) {
    for _ in 0..LEASES_OF_A_RUNNING_REQUEST {
        harness.pass_seconds(LEASE);
        alive(other);
    }
    harness.pass_seconds(1);
    alive(other);
}

fn write(opened: &Opened, data: &[u8]) -> Ops {
    Ops::new().at(&opened.fh).write(opened.stateid, 0, data, StableHow::FileSync)
}

/// Name of an operation, the store's call, and the request for an open file and
/// another one.
type Change = (&'static str, FileOp, fn(&Opened, &Fh) -> Ops);

/// The changes a client makes under a stateid, in this minor version.
fn changes(minor: u8) -> Vec<Change> {
    let mut all: Vec<Change> = vec![
        ("WRITE", FileOp::Write, |o, _| write(o, b"old")),
        ("SETATTR", FileOp::SetAttr, |o, _| {
            let args = setattr::Args { stateid: o.stateid, attrs: attrs(&[4], |e| e.u64(1)) };
            Ops::new().at(&o.fh).op::<Setattr>(&args)
        }),
    ];
    if minor == 2 {
        all.push(("ALLOCATE", FileOp::Allocate, |o, _| {
            let args = allocate::Args { stateid: o.stateid, offset: 0, length: 9 };
            Ops::new().at(&o.fh).op::<Allocate>(&args)
        }));
        all.push(("DEALLOCATE", FileOp::Deallocate, |o, _| {
            let args = deallocate::Args { stateid: o.stateid, offset: 0, length: 9 };
            Ops::new().at(&o.fh).op::<Deallocate>(&args)
        }));
        all.push(("COPY", FileOp::CopyRange, |o, from| {
            let args = copy::Args {
                from: Stateid::ANONYMOUS,
                to: o.stateid,
                from_offset: 0,
                to_offset: 0,
                count: 0,
                consecutive: true,
                synchronous: true,
                servers: Vec::new(),
            };
            Ops::new().at(from).save().at(&o.fh).op::<Copy>(&args)
        }));
        all.push(("CLONE", FileOp::CloneRange, |o, from| {
            let args = clone::Args {
                from: Stateid::ANONYMOUS,
                to: o.stateid,
                from_offset: 0,
                to_offset: 0,
                count: 0,
            };
            Ops::new().at(from).save().at(&o.fh).op::<Clone>(&args)
        }));
    }
    all
}

struct Pair {
    harness: Rc<Harness>,
    a: Client,
    b: Client,
    root: Fh,
    source: Fh,
}

fn pair(minor: u8) -> Pair {
    let harness = Harness::new();
    let (a, b) = (harness.client("a", minor), harness.client("b", minor));
    let root = a.export();
    let source = a.file(&root, "source", b"copied");
    Pair { harness, a, b, root, source }
}

#[test]
fn every_change_of_an_expired_client_ends_before_its_lock_is_given_away() {
    for minor in 0..=2 {
        for (what, call, ops) in changes(minor) {
            let Pair { harness, a, b, root, source } = pair(minor);
            let opened = a.create("f");
            a.lock(&opened, "l", LockType::Write, (0, 9)).unwrap();
            let hold = harness.store.faults().hold_next(call, When::BeforeEffect);
            let late = a.begin_next(ops(&opened, &source));
            harness.simulation.settle();
            assert_eq!(hold.waiting(), 1, "{what}");
            outlast_running(&harness, &b);
            let theirs = b.open(&OpenRequest::name(&root, "f")).unwrap();
            for _ in 0..3 {
                let refused = b.lock(&theirs, "l", LockType::Write, (0, 9));
                assert_eq!(refused.unwrap_err(), Status::Delay, "{what} of minor {minor}");
                let asked = b.lockt(&theirs.fh, "x", LockType::Write, (0, 9));
                assert_eq!(asked, Err(Status::Delay), "{what}");
            }
            hold.release();
            harness.simulation.settle();
            assert!(late.borrow().is_some(), "{what} ended");
            b.lock(&theirs, "l", LockType::Write, (0, 9)).unwrap();
            b.write(&theirs.fh, theirs.stateid, 0, b"new").unwrap();
            harness.pass_seconds(1);
            assert_eq!(b.content(&theirs.fh)[..3], *b"new", "{what}");
        }
    }
}

#[test]
fn a_write_of_an_expired_client_ends_before_anything_of_the_file_is_given_away() {
    type Act = fn(&Client, &Fh, &Fh) -> Status;
    let acts: [(&str, Act); 4] = [
        ("OPEN", |b, root, _| {
            b.open(&OpenRequest::name(root, "f").deny(3)).err().unwrap_or(Status::Ok)
        }),
        ("READ", |b, _, f| b.run(Ops::new().at(f).read(Stateid::ANONYMOUS, 0, 1)).status),
        ("WRITE", |b, _, f| b.write(f, Stateid::ANONYMOUS, 0, b"new").err().unwrap_or(Status::Ok)),
        ("truncation", |b, _, f| b.truncate(f, Stateid::ANONYMOUS, 0).err().unwrap_or(Status::Ok)),
    ];
    for minor in 0..=2 {
        for (what, act) in acts {
            let Pair { harness, a, b, root, .. } = pair(minor);
            a.file(&root, "f", b"first");
            let opened = a.open(&OpenRequest::name(&root, "f").deny(3)).unwrap();
            let hold = harness.store.faults().hold_next(FileOp::Write, When::BeforeEffect);
            let late = a.begin_next(write(&opened, b"old"));
            harness.simulation.settle();
            outlast_running(&harness, &b);
            assert_eq!(act(&b, &root, &opened.fh), Status::Delay, "{what}");
            hold.release();
            harness.simulation.settle();
            assert!(late.borrow().is_some());
            assert_eq!(act(&b, &root, &opened.fh), Status::Ok, "{what}");
        }
    }
}

#[test]
fn a_write_that_ends_soon_is_waited_for() {
    for minor in 0..=2 {
        let Pair { harness, a, b, root, .. } = pair(minor);
        a.file(&root, "f", b"first");
        let opened = a.open(&OpenRequest::name(&root, "f").deny(3)).unwrap();
        let hold = harness.store.faults().hold_next(FileOp::Write, When::BeforeEffect);
        let _late = a.begin_next(write(&opened, b"old"));
        harness.simulation.settle();
        outlast_running(&harness, &b);
        let runtime = harness.server().runtime.clone();
        harness.simulation.spawn(Box::pin(async move {
            runtime.sleep(300).await;
            hold.release();
        }));
        let theirs = b.open(&OpenRequest::name(&root, "f").deny(3)).unwrap();
        let (_, data) = b.read(&theirs.fh, theirs.stateid, 0, 3).unwrap();
        assert_eq!(data, b"old"[..]);
    }
}

#[test]
fn a_restarted_client_is_not_overtaken_by_its_own_past() {
    for minor in 0..=2 {
        let Pair { harness, a, root, .. } = pair(minor);
        let opened = a.create("f");
        let hold = harness.store.faults().hold_next(FileOp::Write, When::BeforeEffect);
        let late = a.begin_next(write(&opened, b"old"));
        harness.simulation.settle();
        a.reboot();
        if minor == 0 {
            a.introduce(false);
            assert_eq!(a.open(&OpenRequest::name(&root, "f")).unwrap_err(), Status::Delay);
            hold.release();
            harness.simulation.settle();
        } else {
            let sequence = a.exchange_id().unwrap().sequenceid;
            assert_eq!(a.create_session(sequence, false), Err(Status::Delay));
            assert_eq!(a.create_session(sequence, false), Err(Status::Delay), "not kept");
            hold.release();
            harness.simulation.settle();
            a.create_session(sequence, false).unwrap();
            a.reclaim_complete().unwrap();
        }
        assert!(late.borrow().is_some());
        assert!(a.open(&OpenRequest::name(&root, "f")).is_ok());
    }
}

/// No stateid names the client of a REMOVE or RENAME.
#[test]
fn a_restarted_client_waits_for_the_names_that_it_changed_before() {
    for minor in 1..=2 {
        let Pair { harness, a, root, .. } = pair(minor);
        a.file(&root, "f", b"old");
        let hold = harness.store.faults().hold_next(FileOp::Remove, When::BeforeEffect);
        let late = a.begin_next(Ops::new().at(&root).remove("f"));
        harness.simulation.settle();
        a.reboot();
        // Storage that hangs longer does not keep the host out. Another EXCHANGE_ID
        // does not make the wait longer.
        for _ in 0..RESTART_PATIENCE_SECONDS {
            let sequence = a.exchange_id().unwrap().sequenceid;
            assert_eq!(a.create_session(sequence, false), Err(Status::Delay));
            harness.pass_seconds(1);
        }
        a.introduce(false);
        assert!(late.borrow().is_none());
        hold.release();
        harness.simulation.settle();
        assert!(late.borrow().is_some());
        // Nothing of it runs now.
        a.reboot();
        a.introduce(false);
    }
}

#[test]
fn a_restarted_client_may_make_its_session_inside_of_the_old_one() {
    for minor in 1..=2 {
        let Pair { a, .. } = pair(minor);
        a.reboot();
        let sequence = a.exchange_id().unwrap().sequenceid;
        let args = a.session_args(sequence, false);
        assert_eq!(a.run(Ops::new().op::<CreateSession>(&args)).status, Status::Ok);
    }
}

#[test]
fn a_write_repeated_over_another_connection_is_the_same_write() {
    for minor in 1..=2 {
        let Pair { harness, a, b, root, .. } = pair(minor);
        a.file(&root, "f", b"first");
        let opened = a.open(&OpenRequest::name(&root, "f").deny(3)).unwrap();
        let hold = harness.store.faults().hold_next(FileOp::Write, When::BeforeEffect);
        let _first = a.begin_next(write(&opened, b"old"));
        harness.simulation.settle();
        a.reconnect();
        let slot = a.slots.borrow()[0];
        let again = a.run_as(0, slot, write(&opened, b"old"));
        assert_eq!(again.status, Status::Delay);
        outlast_running(&harness, &b);
        assert_eq!(b.open(&OpenRequest::name(&root, "f")).unwrap_err(), Status::Delay);
        hold.release();
        harness.simulation.settle();
        assert!(b.open(&OpenRequest::name(&root, "f")).is_ok());
    }
}

#[test]
fn a_write_under_a_revoked_delegation_ends_before_the_file_is_given_away() {
    for minor in 0..=2 {
        let harness = Harness::new();
        let (holder, other) = (harness.reachable("holder", minor), harness.client("other", minor));
        let root = other.export();
        other.file(&root, "f", b"first");
        let held = holder.open(&OpenRequest::name(&root, "f")).unwrap();
        holder.answers_callbacks(CallbackBehavior::Silent);
        let hold = harness.store.faults().hold_next(FileOp::Write, When::BeforeEffect);
        let under = Opened { stateid: held.delegation(), ..held };
        let late = holder.begin_next(write(&under, b"old"));
        harness.simulation.settle();
        // It is active and does not return the delegation.
        for _ in 0..LEASE + 3 {
            assert_eq!(other.open(&OpenRequest::name(&root, "f")).unwrap_err(), Status::Delay);
            harness.pass_seconds(1);
            alive(&holder);
        }
        assert_eq!(harness.server().totals(0).delegations, 0, "revoked");
        assert_eq!(other.open(&OpenRequest::name(&root, "f")).unwrap_err(), Status::Delay);
        hold.release();
        harness.simulation.settle();
        assert!(late.borrow().is_some());
        assert!(other.open(&OpenRequest::name(&root, "f")).is_ok());
    }
}

#[test]
fn a_file_closed_with_a_write_under_way_is_given_away_after_it() {
    for minor in 0..=2 {
        let Pair { harness, a, b, root, .. } = pair(minor);
        let opened = a.create("f");
        let hold = harness.store.faults().hold_next(FileOp::Write, When::BeforeEffect);
        let late = a.begin_next(write(&opened, b"old"));
        harness.simulation.settle();
        close_elsewhere(&a, &opened);
        assert_eq!(b.open(&OpenRequest::name(&root, "f").deny(3)).unwrap_err(), Status::Delay);
        hold.release();
        harness.simulation.settle();
        assert!(late.borrow().is_some());
        assert!(b.open(&OpenRequest::name(&root, "f").deny(3)).is_ok());
    }
}

/// CLOSE in another slot, if there are slots.
fn close_elsewhere(a: &Client, opened: &Opened) {
    use zgate_nfs_wire::v4::op::Close;
    use zgate_nfs_wire::v4::op::close::Args;
    let args = Args { seqid: a.seqid(opened.owner), stateid: opened.stateid };
    let ops = Ops::new().at(&opened.fh).op::<Close>(&args);
    if a.minor == 0 {
        a.run(ops).ok();
        return;
    }
    let next = a.slots.borrow()[1] + 1;
    a.run_as(1, next, ops).ok();
}

#[test]
fn a_truncating_open_of_an_expired_client_ends_before_the_file_is_given_away() {
    for minor in 0..=2 {
        let Pair { harness, a, b, root, .. } = pair(minor);
        a.file(&root, "f", b"first");
        let empty = How::Unchecked(attrs(&[4], |e| e.u64(0)));
        let hold = harness.store.faults().hold_next(FileOp::SetAttr, When::BeforeEffect);
        let wish = OpenRequest::name(&root, "f").deny(3).how(empty);
        let late = a.begin_next(Ops::new().at(&root).op::<Open>(&a.open_args(&wish)));
        harness.simulation.settle();
        assert_eq!(hold.waiting(), 1);
        outlast_running(&harness, &b);
        assert_eq!(b.open(&OpenRequest::name(&root, "f")).unwrap_err(), Status::Delay);
        hold.release();
        harness.simulation.settle();
        assert!(late.borrow().is_some());
        let theirs = b.open(&OpenRequest::name(&root, "f")).unwrap();
        b.write(&theirs.fh, theirs.stateid, 0, b"new").unwrap();
        assert_eq!(b.content(&theirs.fh), b"new");
    }
}

#[test]
fn an_open_that_outlives_the_lease_of_its_client_leaves_nothing_behind() {
    for minor in 0..=2 {
        let Pair { harness, a, b, root, .. } = pair(minor);
        a.file(&root, "f", b"first");
        a.file(&root, "g", b"second");
        a.open(&OpenRequest::name(&root, "f").deny(3)).unwrap();
        let wish = OpenRequest::name(&root, "g").deny(3);
        let hold = harness.store.faults().hold_next(FileOp::Open, When::BeforeEffect);
        let late = a.begin_next(Ops::new().at(&root).op::<Open>(&a.open_args(&wish)));
        harness.simulation.settle();
        assert_eq!(hold.waiting(), 1);
        outlast_running(&harness, &b);
        // All state of the first client ends with this conflict.
        b.open(&OpenRequest::name(&root, "f")).unwrap();
        hold.release();
        harness.simulation.settle();
        assert!(late.borrow().is_some());
        // Nobody would ever remove an open that was added after that.
        b.open(&OpenRequest::name(&root, "g")).unwrap();
    }
}

#[test]
fn a_copy_that_goes_on_after_its_answer_ends_before_the_file_is_given_away() {
    let Pair { harness, a, b, root, .. } = pair(2);
    let source = a.create_in(&root, "large");
    a.truncate(&source.fh, source.stateid, 100 << 20).unwrap();
    a.file(&root, "f", b"first");
    let opened = a.open(&OpenRequest::name(&root, "f").deny(3)).unwrap();
    let hold = harness.store.faults().hold_next(FileOp::CopyRange, When::BeforeEffect);
    let args = copy::Args {
        from: Stateid::ANONYMOUS,
        to: opened.stateid,
        from_offset: 0,
        to_offset: 0,
        count: 0,
        consecutive: true,
        synchronous: false,
        servers: Vec::new(),
    };
    let ops = Ops::new().at(&source.fh).save().at(&opened.fh).op::<Copy>(&args);
    assert!(!a.run(ops).ok().get::<Copy>().synchronous);
    harness.pass_seconds(LEASE + 1);
    alive(&b);
    assert_eq!(b.open(&OpenRequest::name(&root, "f")).unwrap_err(), Status::Delay);
    hold.release();
    harness.simulation.settle();
    b.open(&OpenRequest::name(&root, "f")).unwrap();
    assert!(b.number(&opened.fh, 4) < 100 << 20, "the rest of the copy never began");
}
