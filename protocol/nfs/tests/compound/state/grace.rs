//! A restarted server: grace, reclaims, and the end of grace (RFC 8881 §8.4.2,
//! RFC 7530 §9.6.2).

use std::rc::Rc;
use zgate_memory::{FileOp, When};
use zgate_nfs::limits::RECORD_WAIT_MILLISECONDS;
use zgate_nfs::runtime::Protection;
use zgate_nfs_wire::v4::Fh;
use zgate_nfs_wire::v4::op::Lock;
use zgate_nfs_wire::v4::op::Open;
use zgate_nfs_wire::v4::op::ReclaimComplete;
use zgate_nfs_wire::v4::op::Sequence;
use zgate_nfs_wire::v4::op::lock;
use zgate_nfs_wire::v4::op::open::{Claim, Delegated, RESULT_CONFIRM};
use zgate_nfs_wire::v4::op::reclaim_complete;
use zgate_nfs_wire::v4::{LockType, Stateid, Status};
use zgate_rpc::gss::Service;
use zgate_rpc::{AuthSys, Credential};
use zgate_test_harness::nfs::{
    Client, GRACE, Harness, LEASE, OpenRequest, Opened, Ops, Reply, by_kerberos,
};
use zgate_xdr::{Decode, Decoder};

pub(super) fn reclaim(fh: &Fh, delegation: u32) -> OpenRequest {
    let wish = OpenRequest::name(fh, "").claim(Claim::Previous(delegation));
    OpenRequest { fh: fh.clone(), ..wish }
}

/// Two clients with an open file each, and a stopped server.
pub(super) fn gone(minor: u8) -> (Rc<Harness>, [(Client, Fh); 2]) {
    let harness = Harness::new();
    let clients = ["a", "b"].map(|name| {
        let c = harness.client(name, minor);
        let fh = c.create(name).fh;
        (c, fh)
    });
    harness.restart();
    (harness, clients)
}

/// A client with a write delegation, and a stopped server.
fn gone_with_delegation(minor: u8) -> (Rc<Harness>, Client, Opened) {
    let harness = Harness::new();
    let c = harness.reachable("c", minor);
    harness.client("maker", minor).file(&c.export(), "f", b"x");
    let held = c.open(&OpenRequest::name(&c.export(), "f")).unwrap();
    assert!(matches!(held.delegated, Delegated::Write { .. }), "{:?}", held.delegated);
    harness.restart();
    (harness, c, held)
}

pub(super) fn come_back(c: &Client) {
    c.reconnect();
    c.introduce_for_reclaim(false);
}

/// Grace ends; a client keeps its lease meanwhile.
pub(super) fn outlast_grace(harness: &Harness, c: &Client) {
    for _ in 0..GRACE + 5 {
        harness.pass_seconds(1);
        c.run(Ops::new().root());
    }
}

/// Registers a client by this credential, without RECLAIM_COMPLETE; its files are
/// its user's, as before.
fn come_as(c: &Client, credential: &Credential) -> Result<(), Status> {
    let user = c.credential.replace(credential.clone());
    let made = if c.minor == 0 {
        c.set_clientid(false).and_then(|made| c.confirm_clientid(&made))
    } else {
        c.exchange_id().and_then(|made| c.create_session(made.sequenceid, false)).map(drop)
    };
    c.credential.replace(user);
    made
}

/// A client that has registered by this credential, with an open file, and a
/// stopped server.
fn gone_as(minor: u8, credential: &Credential) -> (Rc<Harness>, Client, Fh) {
    let harness = Harness::new();
    let c = harness.stranger("a", minor);
    come_as(&c, credential).unwrap();
    if minor > 0 {
        c.reclaim_complete().unwrap();
    }
    let fh = c.create("a").fh;
    harness.restart();
    c.reconnect();
    (harness, c, fh)
}

#[test]
fn ids_of_the_old_server_are_stale() {
    for minor in 0..=2 {
        let harness = Harness::new();
        let c = harness.client("c", minor);
        let opened = c.create("f");
        harness.restart();
        c.reconnect();
        if minor == 0 {
            use zgate_nfs_wire::v4::op::Renew;
            use zgate_nfs_wire::v4::op::renew::Args;
            let args = Args { clientid: c.id.get() };
            c.check("client id", Ops::new().op::<Renew>(&args), Status::StaleClientid);
            let read = c.read(&opened.fh, opened.stateid, 0, 1);
            assert_eq!(read.unwrap_err(), Status::StaleStateid);
        } else {
            c.check("session", Ops::new().root(), Status::Badsession);
            let sequence = c.create_session(1, false);
            assert_eq!(sequence.unwrap_err(), Status::StaleClientid);
        }
    }
}

#[test]
fn what_was_held_is_taken_back_and_nothing_else() {
    for minor in 0..=2 {
        let (harness, [(a, fa), (b, fb)]) = gone(minor);
        come_back(&a);
        let root = a.export();
        assert_eq!(a.open(&OpenRequest::name(&root, "b")).unwrap_err(), Status::Grace);
        let anonymous = a.read(&fb, Stateid::ANONYMOUS, 0, 1);
        assert_eq!(anonymous.unwrap_err(), Status::Grace);
        let opened = a.open(&reclaim(&fa, 0)).unwrap();
        assert_eq!(opened.delegated, Delegated::None);
        assert_eq!(a.write(&fa, opened.stateid, 0, b"mine"), Ok(4));
        let args =
            lock::Args { reclaim: true, ..a.lock_args(&opened, "l", LockType::Write, (0, 4)) };
        let reply = a.run(Ops::new().at(&fa).op::<Lock>(&args)).ok();
        a.advance("owner", Status::Ok);
        a.advance("l", Status::Ok);
        let mut held = zgate_test_harness::nfs::Locked {
            fh: fa.clone(),
            stateid: reply.get::<Lock>().stateid,
            owner: "l",
        };
        assert_eq!(a.lock_more(&mut held, LockType::Read, (9, 1)), Err(Status::Grace));
        assert_eq!(a.lockt(&fa, "x", LockType::Read, (9, 1)), Err(Status::Grace));
        // A client unknown to the old server cannot reclaim.
        let new = harness.stranger("new", minor);
        new.introduce_for_reclaim(false);
        assert_eq!(new.open(&reclaim(&fb, 0)).unwrap_err(), Status::NoGrace);
        come_back(&b);
        assert!(b.open(&reclaim(&fb, 0)).is_ok());
        if minor > 0 {
            a.reclaim_complete().unwrap();
            assert_eq!(
                a.open(&reclaim(&fa, 0)).unwrap_err(),
                Status::NoGrace,
                "it said it was done"
            );
            assert_eq!(a.open(&OpenRequest::name(&root, "b")).unwrap_err(), Status::Grace);
            b.reclaim_complete().unwrap();
            assert!(
                a.open(&OpenRequest::name(&root, "b")).is_ok(),
                "all are back: grace ends early"
            );
        } else {
            harness.pass_seconds(GRACE + 5);
            assert!(a.open(&OpenRequest::name(&root, "b")).is_ok());
        }
        let c = harness.client("late", minor);
        let theirs = c.open(&OpenRequest::name(&root, "a")).unwrap();
        let refused = c.lock(&theirs, "l", LockType::Read, (0, 1));
        assert_eq!(refused.unwrap_err(), Status::Denied, "the reclaimed lock holds");
    }
}

#[test]
fn grace_ends_in_time_and_forgets_who_stayed_away() {
    for minor in 0..=2 {
        let (harness, [(a, fa), (b, fb)]) = gone(minor);
        come_back(&a);
        a.open(&reclaim(&fa, 0)).unwrap();
        if minor > 0 {
            a.reclaim_complete().unwrap();
        }
        for _ in 0..GRACE + 1 {
            harness.pass_seconds(1);
            a.run(Ops::new().root());
        }
        assert!(a.open(&OpenRequest::name(&a.export(), "b")).is_ok());
        if minor > 0 {
            assert!(!harness.records.names().contains(&b"b".to_vec()));
        }
        come_back(&b);
        assert_eq!(b.open(&reclaim(&fb, 0)).unwrap_err(), Status::NoGrace);
    }
}

#[test]
fn grace_lasts_longer_by_a_time_in_which_nothing_was_served() {
    for minor in 0..=2 {
        let (harness, [(a, fa), (b, fb)]) = gone(minor);
        come_back(&a);
        harness.hold_seconds(GRACE + 5);
        harness.pass_seconds(1);
        assert!(a.open(&reclaim(&fa, 0)).is_ok());
        come_back(&b);
        assert!(b.open(&reclaim(&fb, 0)).is_ok(), "minor version {minor}");
    }
}

#[test]
fn delegations_are_reclaimed() {
    for minor in 1..=2 {
        let harness = Harness::new();
        let c = harness.reachable("c", minor);
        harness.client("maker", minor).file(&c.export(), "f", b"x");
        let held = c.open(&OpenRequest::name(&c.export(), "f").access(1)).unwrap();
        assert!(matches!(held.delegated, Delegated::Read { .. }));
        harness.restart();
        c.reconnect();
        c.introduce_for_reclaim(true);
        let back = c.open(&reclaim(&held.fh, 1).access(1)).unwrap();
        assert!(matches!(back.delegated, Delegated::Read { .. }), "{:?}", back.delegated);
    }
}

/// RFC 7530 §10.2.1, RFC 8881 §10.2.1: callbacks are not depended upon yet.
#[test]
fn who_cannot_be_called_takes_a_delegation_back_to_return_it() {
    for minor in 0..=2 {
        let (_rig, c, held) = gone_with_delegation(minor);
        come_back(&c);
        let back = c.open(&reclaim(&held.fh, 2)).unwrap();
        let is_recalled = matches!(back.delegated, Delegated::Write { recall: true, .. });
        assert!(is_recalled, "{:?} (minor version {minor})", back.delegated);
        assert_eq!(c.write(&held.fh, back.delegation(), 0, b"y"), Ok(1));
        c.delegreturn(&held.fh, back.delegation()).unwrap();
    }
}

#[test]
fn an_open_whose_reclaim_outlasts_grace_is_not_taken_back() {
    for minor in 0..=2 {
        let (harness, [(a, fa), _]) = gone(minor);
        come_back(&a);
        let hold = harness.store.faults().hold_next(FileOp::Open, When::BeforeEffect);
        let args = a.open_args(&reclaim(&fa, 0).deny(3));
        let late = a.begin_next(Ops::new().at(&fa).op::<Open>(&args));
        harness.simulation.settle();
        assert_eq!(hold.waiting(), 1);
        harness.pass_seconds(GRACE + 5);
        let other = harness.client("other", minor);
        let theirs = other.open(&OpenRequest::name(&other.export(), "a")).unwrap();
        other.write(&theirs.fh, theirs.stateid, 0, b"new").unwrap();
        other.close(&theirs).unwrap();
        hold.release();
        harness.simulation.settle();
        let raw = late.borrow().clone().unwrap();
        let status = Status::decode(&mut Decoder::new(&raw)).unwrap();
        assert_eq!(status, Status::NoGrace, "another client has changed the file");
    }
}

#[test]
fn a_delegation_whose_reclaim_outlasts_grace_is_not_taken_back() {
    for minor in 1..=2 {
        let (harness, c, held) = gone_with_delegation(minor);
        c.reconnect();
        c.introduce_for_reclaim(true);
        let faults = harness.store.faults();
        let opening = faults.hold_next(FileOp::Open, When::BeforeEffect);
        let delegating = faults.hold_next(FileOp::Open, When::BeforeEffect);
        let ops = || Ops::new().at(&held.fh).op::<Open>(&c.open_args(&reclaim(&held.fh, 2)));
        let late = c.begin_next(ops());
        harness.simulation.settle();
        opening.release();
        harness.simulation.settle();
        assert_eq!(delegating.waiting(), 1, "the open has been taken back");
        harness.pass_seconds(GRACE + 5);
        let other = harness.client("other", minor);
        let theirs = other.open(&OpenRequest::name(&other.export(), "f").access(1)).unwrap();
        assert!(other.read(&theirs.fh, theirs.stateid, 0, 1).is_ok());
        other.close(&theirs).unwrap();
        delegating.release();
        harness.simulation.settle();
        let raw = late.borrow().clone().unwrap();
        let asked = ops().after(Ops::new().op::<Sequence>(&c.sequence_args(0, 1)));
        let reply = Reply::parse(raw, &asked.encode(b"", u32::from(minor)).1).ok();
        let given = reply.get::<Open>().delegated;
        assert_eq!(given, Delegated::None, "another client has read what the holder had changed");
    }
}

#[test]
fn shares_are_reclaimed_with_their_denials() {
    for minor in 0..=2 {
        let (_rig, [(a, fa), (b, _)]) = gone(minor);
        come_back(&a);
        come_back(&b);
        a.open(&reclaim(&fa, 0).deny(3)).unwrap();
        assert_eq!(b.open(&reclaim(&fa, 0)).unwrap_err(), Status::ReclaimConflict);
    }
}

#[test]
fn a_lock_is_taken_back_by_one_client_before_it_gets_others() {
    for minor in 0..=2 {
        let (harness, [(a, fa), (b, _)]) = gone(minor);
        come_back(&a);
        come_back(&b);
        let [by_a, by_b] = [&a, &b].map(|c| c.open(&reclaim(&fa, 0)).unwrap());
        let take_back = |c: &Client, opened, expected| {
            let args =
                lock::Args { reclaim: true, ..c.lock_args(opened, "l", LockType::Write, (0, 4)) };
            c.check("reclaim", Ops::new().at(&fa).op::<Lock>(&args), expected);
            c.advance("owner", expected);
        };
        take_back(&a, &by_a, Status::Ok);
        take_back(&b, &by_b, Status::ReclaimConflict);
        outlast_grace(&harness, &b);
        let other = || b.lock(&by_b, "other", LockType::Write, (9, 1)).map(drop);
        if minor > 0 {
            assert_eq!(other(), Err(Status::Grace), "its reclaims are not complete");
            b.reclaim_complete().unwrap();
        }
        assert_eq!(other(), Ok(()));
    }
}

#[test]
fn nobody_to_wait_for_is_no_grace() {
    for minor in 0..=2 {
        let harness = Harness::new();
        harness.restart();
        let c = harness.client("c", minor);
        c.create("f");
        harness.restart_with_grace(0);
        let d = harness.client("d", minor);
        assert!(d.open(&OpenRequest::name(&d.export(), "f")).is_ok());
    }
}

#[test]
fn a_reclaim_asks_for_no_confirmation() {
    let (_rig, [(a, fa), _]) = gone(0);
    come_back(&a);
    let args = a.open_args(&reclaim(&fa, 0));
    let reply = a.run(Ops::new().at(&fa).op::<Open>(&args)).result().unwrap();
    assert_eq!(reply.get::<Open>().flags & RESULT_CONFIRM, 0);
}

#[test]
fn who_came_back_may_reclaim_after_the_next_restart_too() {
    // Minor version 0 cannot report the end of its reclaims: it is sufficient that
    // the client has reclaimed something. A client of a later one may be slow to
    // report it.
    for minor in 0..=2 {
        let (harness, [(a, fa), (b, fb)]) = gone(minor);
        come_back(&a);
        a.open(&reclaim(&fa, 0)).unwrap();
        outlast_grace(&harness, &a);
        if minor > 0 {
            a.reclaim_complete().unwrap();
        }
        assert_eq!(harness.records.names(), [b"a".to_vec()], "minor version {minor}");
        harness.restart();
        come_back(&a);
        assert!(a.open(&reclaim(&fa, 0)).is_ok(), "minor version {minor}");
        come_back(&b);
        assert_eq!(b.open(&reclaim(&fb, 0)).unwrap_err(), Status::NoGrace);
    }
}

#[test]
fn who_finishes_after_grace_waits_for_its_record() {
    for minor in 1..=2 {
        let (harness, [(a, _), _]) = gone(minor);
        come_back(&a);
        outlast_grace(&harness, &a);
        harness.records.set_broken(true);
        assert_eq!(a.reclaim_complete().unwrap_err(), Status::Delay);
        assert_eq!(
            a.open(&OpenRequest::name(&a.export(), "a")).unwrap_err(),
            Status::Grace,
            "nothing that a restart would take from it"
        );
        harness.records.set_broken(false);
        a.reclaim_complete().unwrap();
        assert_eq!(harness.records.names(), [b"a".to_vec()]);
        a.open(&OpenRequest::name(&a.export(), "a")).unwrap();
        assert_eq!(a.reclaim_complete().unwrap_err(), Status::CompleteAlready);
    }
}

#[test]
fn who_finishes_while_grace_ends_asks_again_and_gets_its_record() {
    for minor in 1..=2 {
        let (harness, [(a, fa), _]) = gone(minor);
        come_back(&a);
        a.open(&reclaim(&fa, 0)).unwrap();
        outlast_grace(&harness, &a);
        // RECLAIM_COMPLETE had looked at the record before.
        let now_seconds = harness.simulation.clock().seconds();
        let ended = harness.server().state.complete_reclaims(a.id.get(), now_seconds);
        assert_eq!((ended, harness.records.names()), (Err(Status::Delay), Vec::new()));
        a.reclaim_complete().unwrap();
        assert_eq!(harness.records.names(), [b"a".to_vec()]);
        harness.restart();
        come_back(&a);
        assert!(a.open(&reclaim(&fa, 0)).is_ok(), "minor version {minor}");
    }
}

#[test]
fn a_record_that_is_written_while_its_client_expires_does_not_stay() {
    for minor in 1..=2 {
        let (harness, [(a, fa), (b, _)]) = gone(minor);
        come_back(&a);
        a.open(&reclaim(&fa, 0).deny(3)).unwrap();
        outlast_grace(&harness, &a);
        b.reconnect();
        b.introduce(false);
        harness.records.hold();
        let args = reclaim_complete::Args { one_fs: false };
        let late = a.begin_next(Ops::new().op::<ReclaimComplete>(&args));
        for _ in 0..RECORD_WAIT_MILLISECONDS / 1000 + LEASE + 2 {
            harness.pass_seconds(1);
            b.run(Ops::new().root()).ok();
        }
        let raw = late.borrow().clone().unwrap();
        assert_eq!(Status::decode(&mut Decoder::new(&raw)).unwrap(), Status::Delay);
        assert_eq!(harness.records.waiting(), 1, "the disk hangs");
        let wish = OpenRequest::name(&b.export(), "a");
        assert_eq!(b.open(&wish).unwrap_err(), Status::Delay, "the record of the other is there");
        harness.records.release();
        b.open(&wish).unwrap();
        assert_eq!(harness.records.names(), [b"b".to_vec()], "minor version {minor}");
        harness.restart();
        come_back(&a);
        assert_eq!(a.open(&reclaim(&fa, 0)).unwrap_err(), Status::NoGrace);
    }
}

#[test]
fn names_stay_as_they_are_until_grace_ends() {
    for minor in 0..=2 {
        let (harness, [(a, fa), _]) = gone(minor);
        come_back(&a);
        let root = a.export();
        let rename = || Ops::new().at(&root).save().at(&root).rename("a", "b");
        let link = || Ops::new().at(&fa).save().at(&root).link("c");
        assert_eq!(a.remove(&root, "b").unwrap_err(), Status::Grace);
        a.check("RENAME", rename(), Status::Grace);
        a.check("LINK", link(), Status::Grace);
        harness.pass_seconds(GRACE + 5);
        a.reconnect();
        a.introduce_for_reclaim(false);
        a.check("LINK", link(), Status::Ok);
        a.check("RENAME", rename(), Status::Ok);
    }
}

/// Seconds between the reclaims of two clients on a slow machine.
const SLOW_SECONDS: u64 = 5;

#[test]
fn many_clients_that_reclaim_slowly_are_all_let_in() {
    for minor in 0..=2 {
        let harness = Harness::new();
        let clients: Vec<_> = (0..16)
            .map(|number| {
                let c = harness.client(&format!("c{number}"), minor);
                let fh = c.create(&format!("f{number}")).fh;
                (c, fh)
            })
            .collect();
        harness.restart();
        let mut passed = 0;
        for (c, fh) in &clients {
            come_back(c);
            c.open(&reclaim(fh, 0)).unwrap();
            if minor > 0 {
                c.reclaim_complete().unwrap();
            }
            harness.pass_seconds(SLOW_SECONDS);
            passed += SLOW_SECONDS;
        }
        assert!(passed > 2 * GRACE && passed < 3 * GRACE);
        harness.pass_seconds(3 * GRACE - passed);
        let c = harness.client("late", minor);
        assert!(c.open(&OpenRequest::name(&c.export(), "f1")).is_ok(), "grace ends all the same");
    }
}

#[test]
fn grace_ends_at_last_however_busily_clients_reclaim() {
    for minor in 0..=2 {
        let (harness, [(a, fa), (b, _)]) = gone(minor);
        come_back(&a);
        for second in 0..3 * GRACE {
            assert!(a.open(&reclaim(&fa, 0)).is_ok(), "{second}");
            harness.pass_seconds(1);
        }
        assert_eq!(a.open(&reclaim(&fa, 0)).unwrap_err(), Status::NoGrace);
        come_back(&b);
        if minor > 0 {
            b.reclaim_complete().unwrap();
        }
        b.create("later");
        assert!(!harness.records.names().is_empty(), "a new record of who came too late");
    }
}

#[test]
fn a_stranger_that_asks_to_reclaim_does_not_prolong_grace() {
    for minor in 0..=2 {
        let (harness, [(_, fa), _]) = gone(minor);
        let stranger = harness.stranger("stranger", minor);
        stranger.introduce_for_reclaim(false);
        for _ in 0..GRACE {
            assert_eq!(stranger.open(&reclaim(&fa, 0)).unwrap_err(), Status::NoGrace);
            harness.pass_seconds(1);
        }
        if minor > 0 {
            stranger.reclaim_complete().unwrap();
        }
        assert!(stranger.open(&OpenRequest::name(&stranger.export(), "a")).is_ok());
    }
}

#[test]
fn a_name_is_kept_for_its_principal_in_grace() {
    let machine = by_kerberos("host/a@R", Service::Integrity);
    let others = [
        Credential::None,
        Credential::Sys(AuthSys::default()),
        by_kerberos("host/b@R", Service::Integrity),
    ];
    for minor in 0..=2 {
        let (harness, a, fh) = gone_as(minor, &machine);
        let stranger = harness.stranger("a", minor);
        for other in &others {
            assert_eq!(come_as(&stranger, other), Err(Status::Delay), "{other:?}");
        }
        come_as(&a, &machine).unwrap();
        // It is back, and holds nothing yet.
        for other in &others {
            assert_eq!(come_as(&stranger, other), Err(Status::Delay), "{other:?}");
        }
        assert!(a.open(&reclaim(&fh, 0)).is_ok(), "minor version {minor}");
        assert_eq!(harness.records.names(), [b"a".to_vec()]);
    }
}

#[test]
fn a_client_whose_principal_has_changed_waits_for_the_end_of_grace_only() {
    let renamed = by_kerberos("nfs/a@R", Service::Integrity);
    for minor in 0..=2 {
        let (harness, a, fh) = gone_as(minor, &by_kerberos("host/a@R", Service::Integrity));
        assert_eq!(come_as(&a, &renamed), Err(Status::Delay));
        harness.pass_seconds(GRACE + 1);
        assert_eq!(come_as(&a, &renamed), Ok(()), "minor version {minor}");
        assert_eq!(a.open(&reclaim(&fh, 0)).unwrap_err(), Status::NoGrace);
        // Now the record is its own.
        if minor > 0 {
            a.reclaim_complete().unwrap();
        }
        a.open(&OpenRequest::name(&a.export(), "a")).unwrap();
        assert_eq!(harness.records.names(), [b"a".to_vec()]);
        harness.restart();
        a.reconnect();
        assert_eq!(come_as(&a, &renamed), Ok(()), "minor version {minor}");
    }
}

#[test]
fn a_name_is_kept_in_grace_for_who_shows_as_much_over_tls() {
    let user = Credential::Sys(AuthSys::default());
    for minor in 0..=2 {
        let harness = Harness::new();
        let a = harness.stranger("a", minor);
        a.protection.set(Protection::MutualTls);
        a.introduce(false);
        let fh = a.create("a").fh;
        harness.restart();
        let stranger = harness.stranger("a", minor);
        stranger.verifier.set(2);
        for weaker in [Protection::Plain, Protection::Tls] {
            stranger.protection.set(weaker);
            assert_eq!(come_as(&stranger, &user), Err(Status::Delay), "{weaker:?}");
        }
        come_back(&a);
        assert!(a.open(&reclaim(&fh, 0)).is_ok(), "minor version {minor}");
    }
}

#[test]
fn who_registered_without_kerberos_may_come_back_with_it() {
    for minor in 0..=2 {
        let (_rig, a, fh) = gone_as(minor, &Credential::Sys(AuthSys::default()));
        come_as(&a, &by_kerberos("host/a@R", Service::Integrity)).unwrap();
        assert!(a.open(&reclaim(&fh, 0)).is_ok(), "minor version {minor}");
    }
}
