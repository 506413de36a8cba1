//! Restarts (RFC 8881 §8.4.3, RFC 7530 §9.6.3.4: the edge conditions): nobody reclaims
//! after a second one what others have had since the first, nor after one a delegation
//! that was revoked before it.

use super::grace::{come_back, gone, outlast_grace, reclaim};
use std::collections::BTreeSet;
use std::rc::Rc;
use zgate_memory::{FileOp, When};
use zgate_nfs::limits::{LEASES_OF_UNHEEDED_REVOCATIONS, RECORD_RETRY_SECONDS};
use zgate_nfs::namespace::ExportId;
use zgate_nfs_wire::v4::Status;
use zgate_nfs_wire::v4::op::FreeStateid;
use zgate_nfs_wire::v4::op::Open;
use zgate_nfs_wire::v4::op::free_stateid;
use zgate_nfs_wire::v4::op::sequence::STATUS_RECALLABLE_STATE_REVOKED;
use zgate_test_harness::nfs::{
    CallbackBehavior, Client, GRACE, Harness, LEASE, OpenRequest, Opened, Ops,
};
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

/// A request for the file `f`.
fn wish(c: &Client) -> OpenRequest {
    OpenRequest::name(&c.export(), "f")
}

/// A client with a write delegation of the file `f`, which another one wants.
fn recalled(minor: u8) -> (Rc<Harness>, Client, Client, Opened) {
    let harness = Harness::new();
    let (holder, other) = (harness.reachable("holder", minor), harness.client("other", minor));
    other.file(&other.export(), "f", b"content");
    let held = holder.open(&wish(&holder)).unwrap();
    holder.answers_callbacks(CallbackBehavior::Silent);
    assert_eq!(other.open(&wish(&other)).unwrap_err(), Status::Delay);
    (harness, holder, other, held)
}

/// A client with a read delegation of the file `f`, which another one has made.
fn holds_for_reading(minor: u8) -> (Rc<Harness>, Client, Client, Opened) {
    let harness = Harness::new();
    let (holder, maker) = (harness.reachable("holder", minor), harness.client("maker", minor));
    maker.file(&maker.export(), "f", b"content");
    let held = holder.open(&wish(&holder).access(1)).unwrap();
    (harness, holder, maker, held)
}

/// A client with write delegations of the files `f` and `g`, whose callbacks are lost.
fn holds_two(minor: u8) -> (Rc<Harness>, Client, Client, [Opened; 2]) {
    let harness = Harness::new();
    let (holder, other) = (harness.reachable("holder", minor), harness.client("other", minor));
    let held = ["f", "g"].map(|name| {
        other.file(&other.export(), name, b"content");
        holder.open(&OpenRequest::name(&holder.export(), name)).unwrap()
    });
    holder.answers_callbacks(CallbackBehavior::Silent);
    (harness, holder, other, held)
}

/// Another client wants a file that is delegated.
fn wanted(other: &Client, name: &str) {
    let refused = other.open(&OpenRequest::name(&other.export(), name)).unwrap_err();
    assert_eq!(refused, Status::Delay, "{name}");
}

/// Time passes in which the holder renews its lease by an open file.
fn stay(harness: &Harness, holder: &Client, held: &Opened, seconds: u64) {
    for _ in 0..seconds {
        harness.pass_seconds(1);
        holder.read(&held.fh, held.stateid, 0, 1).unwrap();
    }
}

/// The holder does not return its delegation, but renews its lease: the server revokes
/// the delegation.
fn keep_it_too_long(harness: &Harness, holder: &Client, held: &Opened) {
    stay(harness, holder, held, 2 * LEASE);
}

/// The holder of a revoked delegation says that it knows.
fn acknowledge(holder: &Client, held: &Opened) {
    let stateid = held.delegation();
    if holder.minor == 0 {
        assert_eq!(holder.delegreturn(&held.fh, stateid), Err(Status::Expired));
    } else {
        let free = Ops::new().op::<FreeStateid>(&free_stateid::Args { stateid });
        holder.check("acknowledged", free, Status::Ok);
    }
}

/// Returns whether SEQUENCE tells the client that a delegation is revoked.
fn is_told(holder: &Client) -> bool {
    let told = holder.run(Ops::new().root()).ok().sequence.unwrap();
    told.status_flags & STATUS_RECALLABLE_STATE_REVOKED != 0
}

/// A client loses a delegation with its export, which comes back. It returns the delegation
/// in between, which the server does not understand: the file handle is stale.
fn loses_its_export(minor: u8) -> (Rc<Harness>, Client, Opened) {
    let harness = Harness::new();
    let holder = harness.reachable("holder", minor);
    harness.client("maker", minor).file(&holder.export(), "f", b"content");
    let held = holder.open(&wish(&holder)).unwrap();
    holder.close(&held).unwrap();
    harness.reload(|_| false);
    assert_eq!(holder.delegreturn(&held.fh, held.delegation()), Err(Status::Stale));
    harness.reload(|_| true);
    (harness, holder, held)
}

/// After a restart the holder reclaims its delegation for reading. It is recalled at once, because
/// the content was replaced, and revoked while the holder only renews its lease.
fn loses_what_it_reclaims(
    harness: &Harness,
    holder: &Client,
    held: &Opened,
    seconds: u64,
) -> Opened {
    harness.restart();
    holder.reconnect();
    holder.introduce_for_reclaim(true);
    holder.answers_callbacks(CallbackBehavior::Silent);
    let exports = BTreeSet::from([ExportId::from_pseudo_path("/export")]);
    harness.server().content_replaced(&exports);
    let again = holder.open(&reclaim(&held.fh, 1).access(1)).unwrap();
    stay(harness, holder, &again, seconds);
    again
}

#[test]
fn who_has_lost_a_delegation_may_not_reclaim_it_after_a_restart() {
    // RFC 8881 §10.2.1, RFC 7530 §10.2.1: the restart comes before the client knows.
    for minor in 0..=2 {
        let (harness, holder, other, held) = recalled(minor);
        keep_it_too_long(&harness, &holder, &held);
        let theirs = other.open(&wish(&other)).unwrap();
        other.write(&theirs.fh, theirs.stateid, 0, b"new").unwrap();
        other.close(&theirs).unwrap();
        let since = holder.create("g");
        harness.restart();
        holder.reconnect();
        holder.introduce_for_reclaim(true);
        for again in [reclaim(&held.fh, 2), reclaim(&held.fh, 0), reclaim(&since.fh, 0)] {
            let refused = holder.open(&again).unwrap_err();
            assert_eq!(refused, Status::NoGrace, "minor version {minor}");
        }
    }
}

#[test]
fn nobody_gets_what_it_holds_besides_before_its_lease_is_over() {
    for minor in 0..=2 {
        let (harness, holder, other, held) = recalled(minor);
        keep_it_too_long(&harness, &holder, &held);
        harness.restart();
        come_back(&other);
        if minor > 0 {
            other.reclaim_complete().unwrap();
        }
        assert_eq!(other.open(&wish(&other)).unwrap_err(), Status::Grace, "minor version {minor}");
        come_back(&holder);
        if minor > 0 {
            holder.reclaim_complete().unwrap();
            assert!(other.open(&wish(&other)).is_ok(), "it has finished");
            let since = holder.create("g");
            harness.restart();
            come_back(&holder);
            assert!(holder.open(&reclaim(&since.fh, 0)).is_ok(), "it knew at the first restart");
        }
    }
}

#[test]
fn who_knows_of_a_lost_delegation_may_reclaim_the_rest() {
    for minor in 1..=2 {
        for returns in [false, true] {
            let (harness, holder, other, held) = recalled(minor);
            keep_it_too_long(&harness, &holder, &held);
            other.open(&wish(&other)).unwrap();
            // The record is written by the next OPEN if it cannot be written at once.
            harness.records.set_broken(true);
            let stateid = held.delegation();
            if returns {
                assert_eq!(holder.delegreturn(&held.fh, stateid), Err(Status::DelegRevoked));
            } else {
                let free = Ops::new().op::<FreeStateid>(&free_stateid::Args { stateid });
                holder.check("acknowledged", free, Status::Ok);
            }
            let second = OpenRequest::name(&holder.export(), "f").owner("second");
            assert_eq!(holder.open(&second).unwrap_err(), Status::Delay);
            harness.records.set_broken(false);
            holder.open(&second).unwrap();
            harness.restart();
            come_back(&holder);
            assert!(holder.open(&reclaim(&held.fh, 0)).is_ok(), "minor version {minor}");
        }
    }
}

#[test]
fn the_acknowledgement_of_a_lost_delegation_writes_the_record() {
    // Minor version 0 has no FREE_STATEID: the late return says that the client knows.
    for minor in 0..=2 {
        let (harness, holder, other, held) = recalled(minor);
        keep_it_too_long(&harness, &holder, &held);
        other.open(&wish(&other)).unwrap();
        acknowledge(&holder, &held);
        harness.restart();
        come_back(&holder);
        assert!(holder.open(&reclaim(&held.fh, 0)).is_ok(), "minor version {minor}");
    }
}

#[test]
fn the_acknowledgement_of_the_last_one_writes_the_record() {
    for minor in 0..=2 {
        let (harness, holder, other, [f, g]) = holds_two(minor);
        wanted(&other, "f");
        wanted(&other, "g");
        keep_it_too_long(&harness, &holder, &f);
        let puts = harness.records.puts();
        acknowledge(&holder, &f);
        assert_eq!(harness.records.puts(), puts, "minor version {minor}");
        acknowledge(&holder, &g);
        assert_eq!(harness.records.puts(), puts + 1, "minor version {minor}");
    }
}

#[test]
fn a_late_return_from_another_host_acknowledges_nothing() {
    let (harness, holder, _, held) = recalled(0);
    keep_it_too_long(&harness, &holder, &held);
    let puts = harness.records.puts();
    let own = holder.address.replace([192, 0, 2, 99].into());
    acknowledge(&holder, &held);
    assert_eq!(harness.records.puts(), puts);
    holder.address.set(own);
    acknowledge(&holder, &held);
    assert_eq!(harness.records.puts(), puts + 1);
}

#[test]
fn a_record_that_storage_refuses_at_the_acknowledgement_is_written_when_it_can_be() {
    for minor in 0..=2 {
        let (harness, holder, _, held) = recalled(minor);
        keep_it_too_long(&harness, &holder, &held);
        harness.records.set_broken(true);
        acknowledge(&holder, &held);
        stay(&harness, &holder, &held, RECORD_RETRY_SECONDS + 1);
        harness.records.set_broken(false);
        let puts = harness.records.puts();
        stay(&harness, &holder, &held, 3 * RECORD_RETRY_SECONDS);
        assert_eq!(harness.records.puts(), puts + 1, "minor version {minor}: once");
        holder.open(&wish(&holder).owner("second")).unwrap();
        assert_eq!(harness.records.puts(), puts + 1, "minor version {minor}: it is there");
        harness.restart();
        come_back(&holder);
        assert!(holder.open(&reclaim(&held.fh, 0)).is_ok(), "minor version {minor}");
    }
}

#[test]
fn a_second_loss_takes_the_place_of_a_record_that_could_not_be_written_yet() {
    for minor in 0..=2 {
        let (harness, holder, other, [f, _]) = holds_two(minor);
        wanted(&other, "f");
        keep_it_too_long(&harness, &holder, &f);
        harness.records.set_broken(true);
        acknowledge(&holder, &f);
        wanted(&other, "g");
        keep_it_too_long(&harness, &holder, &f);
        harness.records.set_broken(false);
        stay(&harness, &holder, &f, RECORD_RETRY_SECONDS + 1);
        harness.restart();
        come_back(&holder);
        let refused = holder.open(&reclaim(&f.fh, 0)).unwrap_err();
        assert_eq!(refused, Status::NoGrace, "minor version {minor}");
    }
}

#[test]
fn an_acknowledgement_does_not_say_that_all_is_reclaimed() {
    // Grace has ended before the client had finished: others may have got the rest.
    for minor in 1..=2 {
        let (harness, holder, _, held) = holds_for_reading(minor);
        let seconds = LEASE + GRACE + 5;
        let again = loses_what_it_reclaims(&harness, &holder, &held, seconds);
        acknowledge(&holder, &again);
        harness.restart();
        come_back(&holder);
        let refused = holder.open(&reclaim(&held.fh, 0)).unwrap_err();
        assert_eq!(refused, Status::NoGrace, "minor version {minor}");
    }
}

#[test]
fn who_was_shut_out_may_not_reclaim_after_a_restart_that_lets_it_in_again() {
    for (minor, closes) in [(0, false), (0, true), (1, false), (1, true), (2, false), (2, true)] {
        let harness = Harness::new();
        let (holder, other) = (harness.reachable("holder", minor), harness.stranger("other", 2));
        other.address.set([192, 0, 2, 77].into());
        other.introduce(false);
        other.file(&other.export(), "f", b"content");
        let held = holder.open(&wish(&holder)).unwrap();
        if closes {
            // The delegation alone is left.
            holder.close(&held).unwrap();
        }
        harness.admit_only(&[other.address.get().into()]);
        let theirs = other.open(&wish(&other)).unwrap();
        other.write(&theirs.fh, theirs.stateid, 0, b"new").unwrap();
        other.close(&theirs).unwrap();
        harness.restart();
        come_back(&holder);
        let kind = if closes { 2 } else { 0 };
        let refused = holder.open(&reclaim(&held.fh, kind)).unwrap_err();
        assert_eq!(refused, Status::NoGrace, "minor version {minor}, closes: {closes}");
    }
}

#[test]
fn a_client_is_told_that_a_delegation_went_with_its_export() {
    for (minor, knows) in [(1, false), (1, true), (2, false), (2, true)] {
        let (harness, holder, held) = loses_its_export(minor);
        assert!(is_told(&holder), "minor version {minor}");
        if knows {
            acknowledge(&holder, &held);
            assert!(!is_told(&holder), "minor version {minor}");
        }
        harness.restart();
        come_back(&holder);
        let refused = holder.open(&reclaim(&held.fh, 2)).err();
        assert_eq!(refused, (!knows).then_some(Status::NoGrace), "minor version {minor}");
    }
}

#[test]
fn who_was_told_for_long_of_a_delegation_that_went_with_its_export_may_reclaim() {
    // A Linux client that has nothing to free would test its delegations for ever.
    for minor in 1..=2 {
        let (harness, holder, held) = loses_its_export(minor);
        for _ in 0..(LEASES_OF_UNHEEDED_REVOCATIONS + 1) * LEASE {
            harness.pass_seconds(1);
            holder.run(Ops::new().root()).ok();
        }
        assert!(!is_told(&holder), "minor version {minor}");
        harness.restart();
        come_back(&holder);
        assert!(holder.open(&reclaim(&held.fh, 2)).is_ok(), "minor version {minor}");
    }
}

#[test]
fn who_never_acknowledges_is_told_for_some_leases_and_may_not_reclaim() {
    for minor in 1..=2 {
        let (harness, holder, _, held) = recalled(minor);
        keep_it_too_long(&harness, &holder, &held);
        stay(&harness, &holder, &held, (LEASES_OF_UNHEEDED_REVOCATIONS - 2) * LEASE);
        assert!(is_told(&holder), "minor version {minor}");
        stay(&harness, &holder, &held, 3 * LEASE);
        assert!(!is_told(&holder), "minor version {minor}");
        harness.restart();
        come_back(&holder);
        let refused = holder.open(&reclaim(&held.fh, 0)).unwrap_err();
        assert_eq!(refused, Status::NoGrace, "minor version {minor}");
    }
}

#[test]
fn who_does_not_know_of_a_lost_delegation_may_finish_its_reclaims() {
    for minor in 1..=2 {
        let (harness, holder, _, held) = holds_for_reading(minor);
        let again = loses_what_it_reclaims(&harness, &holder, &held, LEASE + 2);
        holder.reclaim_complete().unwrap();
        acknowledge(&holder, &again);
        harness.restart();
        come_back(&holder);
        let reclaimed = holder.open(&reclaim(&held.fh, 0).access(1));
        assert!(reclaimed.is_ok(), "minor version {minor}");
    }
}

#[test]
fn who_does_not_know_of_a_lost_delegation_is_waited_for_though_grace_ended_without_it() {
    for minor in 1..=2 {
        let (harness, holder, other, held) = holds_for_reading(minor);
        loses_what_it_reclaims(&harness, &holder, &held, LEASE + GRACE + 5);
        assert_eq!(harness.records.names(), [b"holder".to_vec()], "minor version {minor}");
        holder.reclaim_complete().unwrap();
        let since = holder.create("g");
        harness.restart();
        come_back(&other);
        other.reclaim_complete().unwrap();
        let theirs = OpenRequest::name(&other.export(), "g");
        assert_eq!(other.open(&theirs).unwrap_err(), Status::Grace, "minor version {minor}");
        come_back(&holder);
        assert_eq!(holder.open(&reclaim(&since.fh, 0)).unwrap_err(), Status::NoGrace);
    }
}

#[test]
fn a_lost_delegation_is_nobody_elses_before_that_is_on_stable_storage() {
    for minor in 0..=2 {
        let (harness, holder, other, held) = recalled(minor);
        harness.records.hold();
        keep_it_too_long(&harness, &holder, &held);
        assert_eq!(harness.records.waiting(), 1, "minor version {minor}");
        assert_eq!(other.open(&wish(&other)).unwrap_err(), Status::Delay);
        harness.records.lose_what_waits();
        harness.restart();
        come_back(&holder);
        assert!(holder.open(&reclaim(&held.fh, 0)).is_ok(), "nobody had it meanwhile");
    }
}

#[test]
fn who_expires_while_its_record_is_marked_has_none() {
    for minor in 0..=2 {
        let (harness, holder, other, held) = recalled(minor);
        holder.create("g");
        harness.records.hold();
        keep_it_too_long(&harness, &holder, &held);
        harness.pass_seconds(LEASE + 1);
        let alone = OpenRequest::name(&other.export(), "g").deny(3);
        assert_eq!(other.open(&alone).unwrap_err(), Status::Delay, "minor version {minor}");
        harness.records.release();
        assert_eq!(harness.records.names(), [b"other".to_vec()]);
        other.open(&alone).unwrap();
    }
}
