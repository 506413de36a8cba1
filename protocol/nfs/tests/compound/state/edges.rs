//! Two restarts (RFC 8881 §8.4.3, RFC 7530 §9.6.3.4: the edge conditions): nobody
//! reclaims after the second one what others have had since the first.

use super::grace::{come_back, gone, outlast_grace, reclaim};
use zgate_memory::{FileOp, When};
use zgate_nfs_wire::v4::Status;
use zgate_nfs_wire::v4::op::Open;
use zgate_test_harness::nfs::{GRACE, OpenRequest, Ops};
use zgate_xdr::{Decode, Decoder};

#[test]
fn a_second_restart_in_grace_does_not_let_in_who_did_not_come() {
    // RFC 8881 §8.4.3: an edge condition. A client that lost its locks during
    // one run of the server may not reclaim them in the next.
    for minor in 1..=2 {
        let (harness, [(a, fa), (b, fb)]) = gone(minor);
        come_back(&a);
        a.open(&reclaim(&fa, 0)).unwrap();
        a.reclaim_complete().unwrap();
        harness.pass_seconds(GRACE + 5);
        harness.restart();
        come_back(&b);
        assert_eq!(b.open(&reclaim(&fb, 0)).unwrap_err(), Status::NoGrace);
        come_back(&a);
        assert!(a.open(&reclaim(&fa, 0)).is_ok());
    }
}

#[test]
fn who_had_not_finished_at_the_end_of_grace_may_not_reclaim_after_the_next_restart() {
    // RFC 8881 §8.4.3: the second edge condition. The server does not know what the
    // client had not reclaimed yet, and others have got since.
    for minor in 1..=2 {
        let (harness, [(a, fa), _]) = gone(minor);
        come_back(&a);
        outlast_grace(&harness, &a);
        assert!(harness.records.names().is_empty(), "minor version {minor}");
        let other = harness.client("other", minor);
        let theirs = other.open(&OpenRequest::name(&other.export(), "a")).unwrap();
        other.write(&theirs.fh, theirs.stateid, 0, b"new").unwrap();
        other.close(&theirs).unwrap();
        harness.restart();
        come_back(&a);
        assert_eq!(a.open(&reclaim(&fa, 0)).unwrap_err(), Status::NoGrace);
    }
}

#[test]
fn who_reclaimed_nothing_until_the_end_of_grace_may_not_after_the_next_restart() {
    // RFC 7530 §9.6.3.4: the same edge condition in minor version 0, which has no
    // RECLAIM_COMPLETE.
    let (harness, [(a, fa), _]) = gone(0);
    come_back(&a);
    outlast_grace(&harness, &a);
    assert!(harness.records.names().is_empty());
    let other = harness.client("other", 0);
    let theirs = other.open(&OpenRequest::name(&other.export(), "a")).unwrap();
    other.write(&theirs.fh, theirs.stateid, 0, b"new").unwrap();
    other.close(&theirs).unwrap();
    harness.restart();
    come_back(&a);
    assert_eq!(a.open(&reclaim(&fa, 0)).unwrap_err(), Status::NoGrace);
}

#[test]
fn who_comes_back_after_grace_may_not_reclaim_after_a_restart_that_comes_at_once() {
    // It has not heard yet that it can reclaim nothing.
    for minor in 0..=2 {
        let (harness, [(a, fa), (b, _)]) = gone(minor);
        come_back(&b);
        outlast_grace(&harness, &b);
        let other = harness.client("other", minor);
        let theirs = other.open(&OpenRequest::name(&other.export(), "a")).unwrap();
        other.write(&theirs.fh, theirs.stateid, 0, b"new").unwrap();
        other.close(&theirs).unwrap();
        come_back(&a);
        assert_eq!(harness.records.names(), [b"other".to_vec()], "minor version {minor}");
        harness.restart();
        come_back(&a);
        assert_eq!(a.open(&reclaim(&fa, 0)).unwrap_err(), Status::NoGrace);
    }
}

#[test]
fn the_first_open_after_grace_writes_the_record_of_who_reclaimed_nothing() {
    let (harness, [(a, fa), _]) = gone(0);
    come_back(&a);
    outlast_grace(&harness, &a);
    let wish = OpenRequest::name(&a.export(), "a");
    harness.records.set_broken(true);
    assert_eq!(a.open(&wish).unwrap_err(), Status::Delay, "nothing that a restart would take");
    assert_eq!(harness.server().totals(0).opens, 0);
    harness.records.set_broken(false);
    a.open(&wish).unwrap();
    assert_eq!(harness.records.names(), [b"a".to_vec()]);
    let puts = harness.records.puts();
    a.open(&OpenRequest::name(&a.export(), "b")).unwrap();
    assert_eq!(harness.records.puts(), puts, "once");
    harness.restart();
    come_back(&a);
    assert!(a.open(&reclaim(&fa, 0)).is_ok());
}

#[test]
fn a_first_reclaim_that_outlasts_grace_leaves_no_open_without_a_record() {
    let (harness, [(a, fa), (b, _)]) = gone(0);
    come_back(&a);
    b.reconnect();
    b.introduce(false);
    let hold = harness.store.faults().hold_next(FileOp::Open, When::BeforeEffect);
    let late = a.begin_next(Ops::new().at(&fa).op::<Open>(&a.open_args(&reclaim(&fa, 0))));
    harness.simulation.settle();
    assert_eq!(hold.waiting(), 1);
    // Grace is closing: the records cannot be removed yet.
    harness.records.hold();
    harness.pass_seconds(GRACE + 15);
    assert!(harness.records.waiting() > 0);
    hold.release();
    harness.simulation.settle();
    let raw = late.borrow().clone().unwrap();
    assert_eq!(Status::decode(&mut Decoder::new(&raw)).unwrap(), Status::NoGrace);
    assert_eq!(harness.server().totals(0).opens, 0);
    harness.records.release();
    assert!(harness.records.names().is_empty());
}
