//! Expiry of leases, and courtesy (RFC 8881 §8.4.2.4, RFC 7530 §9.6.3).

use std::rc::Rc;
use zgate_memory::{FileOp, Hold, When};
use zgate_nfs::limits::{LEASES_OF_A_RUNNING_REQUEST, MAX_STATES_PER_SLICE};
use zgate_nfs_wire::v4::op::Open;
use zgate_nfs_wire::v4::op::Renew;
use zgate_nfs_wire::v4::op::renew;
use zgate_nfs_wire::v4::{Fh, LockType, StableHow, Stateid, Status};
use zgate_test_harness::nfs::{Client, Harness, LEASE, OpenRequest, Opened, Ops, Pending};
use zgate_xdr::{Decode, Decoder};

fn alive(c: &Client) -> Status {
    if c.minor > 0 {
        return c.run(Ops::new().root()).status;
    }
    c.run(Ops::new().op::<Renew>(&renew::Args { clientid: c.id.get() })).status
}

#[test]
fn a_silent_client_keeps_its_state_until_somebody_needs_it() {
    for minor in 0..=2 {
        let harness = Harness::new();
        let (a, b) = (harness.client("a", minor), harness.client("b", minor));
        let root = a.export();
        let opened = a.create("f");
        a.lock(&opened, "l", LockType::Write, (0, 5)).unwrap();
        harness.pass_seconds(5 * LEASE);
        assert_eq!(alive(&a), Status::Ok, "nobody asked for anything of it");
        assert_eq!(a.write(&opened.fh, opened.stateid, 0, b"x"), Ok(1));
        harness.pass_seconds(LEASE + 1);
        // No conflict: an open that denies nothing.
        alive(&b);
        let beside = b.open(&OpenRequest::name(&root, "f")).unwrap();
        assert_eq!(alive(&a), Status::Ok);
        harness.pass_seconds(LEASE + 1);
        alive(&b);
        b.lock(&beside, "l", LockType::Write, (3, 1)).unwrap();
        if minor == 0 {
            assert_eq!(alive(&a), Status::Expired);
            assert_eq!(a.write(&opened.fh, opened.stateid, 0, b"x"), Err(Status::Expired));
        } else {
            assert_eq!(alive(&a), Status::Badsession);
        }
        assert_eq!(b.lockt(&opened.fh, "other", LockType::Write, (0, 3)), Ok(()));
    }
}

#[test]
fn every_kind_of_conflict_ends_courtesy() {
    for minor in 0..=2 {
        type Act = fn(&Client, &zgate_nfs_wire::v4::Fh, &zgate_nfs_wire::v4::Fh) -> Status;
        let acts: [(&str, Act); 5] = [
            ("OPEN", |b, root, _| {
                b.open(&OpenRequest::name(root, "f")).err().unwrap_or(Status::Ok)
            }),
            ("READ", |b, _, f| b.run(Ops::new().at(f).read(Stateid::ANONYMOUS, 0, 1)).status),
            ("WRITE", |b, _, f| {
                b.write(f, Stateid::ANONYMOUS, 0, b"x").err().unwrap_or(Status::Ok)
            }),
            ("truncation", |b, _, f| {
                b.truncate(f, Stateid::ANONYMOUS, 0).err().unwrap_or(Status::Ok)
            }),
            ("LOCKT", |b, _, f| {
                b.lockt(f, "t", LockType::Write, (0, 9)).err().unwrap_or(Status::Ok)
            }),
        ];
        for (what, act) in acts {
            let harness = Harness::new();
            let (a, b) = (harness.client("a", minor), harness.client("b", minor));
            let root = a.export();
            a.file(&root, "f", b"x");
            let opened = a.open(&OpenRequest::name(&root, "f").deny(3)).unwrap();
            a.lock(&opened, "l", LockType::Write, (0, 5)).unwrap();
            assert_ne!(act(&b, &root, &opened.fh), Status::Ok, "{what} too early");
            harness.pass_seconds(LEASE + 1);
            alive(&b);
            assert_eq!(act(&b, &root, &opened.fh), Status::Ok, "{what}");
            assert_ne!(alive(&a), Status::Ok, "{what}");
        }
    }
}

#[test]
fn courtesy_does_not_last_for_ever() {
    for minor in 0..=2 {
        let harness = Harness::new();
        let a = harness.client("a", minor);
        a.create("f");
        let now = harness.simulation.clock().seconds();
        harness.server().tick(now + 25 * 3600);
        assert_ne!(alive(&a), Status::Ok);
        assert!(harness.records.names().is_empty(), "nothing to reclaim for it either");
    }
}

#[test]
fn whatever_a_client_does_renews_its_lease() {
    for minor in 0..=2 {
        let harness = Harness::new();
        let (a, b) = (harness.client("a", minor), harness.client("b", minor));
        let opened = a.create("f");
        let mut held = a.lock(&opened, "l", LockType::Write, (0, 5)).unwrap();
        let theirs = b.open(&OpenRequest::name(&a.export(), "f")).unwrap();
        for round in 0..9 {
            harness.pass_seconds(LEASE - 1);
            match round % 3 {
                0 => assert!(a.read(&opened.fh, opened.stateid, 0, 1).is_ok()),
                1 => a.lock_more(&mut held, LockType::Write, (0, 5)).unwrap(),
                _ => assert_eq!(alive(&a), Status::Ok),
            }
            alive(&b);
            let refused = b.lock(&theirs, "l", LockType::Read, (0, 1));
            assert_eq!(refused.unwrap_err(), Status::Denied, "round {round}");
        }
    }
}

/// A client whose WRITE storage holds, with a lock on another file that a second
/// client asks for.
struct Stalled {
    harness: Rc<Harness>,
    b: Client,
    theirs: Opened,
    hold: Hold<FileOp>,
    late: Pending,
}

impl Stalled {
    fn new(minor: u8) -> Self {
        let harness = Harness::new();
        let (a, b) = (harness.client("a", minor), harness.client("b", minor));
        let (locked, written) = (a.create("locked"), a.create("written"));
        a.lock(&locked, "l", LockType::Write, (0, 9)).unwrap();
        let theirs = b.open(&OpenRequest::name(&a.export(), "locked")).unwrap();
        let hold = harness.store.faults().hold_next(FileOp::Write, When::BeforeEffect);
        let write = Ops::new().at(&written.fh).write(written.stateid, 0, b"x", StableHow::FileSync);
        let late = a.begin_next(write);
        harness.simulation.settle();
        assert_eq!(hold.waiting(), 1);
        Self { harness, b, theirs, hold, late }
    }

    /// Answer to the second client after so many seconds.
    fn asked_after(&self, seconds: u64) -> Status {
        self.harness.pass_seconds(seconds);
        alive(&self.b);
        let asked = self.b.lock(&self.theirs, "l", LockType::Write, (0, 9));
        asked.err().unwrap_or(Status::Ok)
    }
}

/// With requests in all its slots a client cannot renew its lease (RFC 8881 §8.3).
#[test]
fn a_lease_lasts_while_a_request_runs_and_begins_anew_with_its_answer() {
    for minor in 0..=2 {
        let stalled = Stalled::new(minor);
        assert_eq!(stalled.asked_after(LEASE + 1), Status::Denied, "minor version {minor}");
        let Stalled { harness, b, theirs, hold, late } = stalled;
        hold.release();
        harness.simulation.settle();
        assert!(late.borrow().is_some());
        harness.pass_seconds(LEASE - 1);
        alive(&b);
        let refused = b.lock(&theirs, "l", LockType::Write, (0, 9));
        assert_eq!(refused.unwrap_err(), Status::Denied, "minor version {minor}");
        harness.pass_seconds(2);
        b.lock(&theirs, "l", LockType::Write, (0, 9)).unwrap();
    }
}

#[test]
fn a_request_that_never_ends_does_not_keep_a_lease_for_ever() {
    for minor in 0..=2 {
        let stalled = Stalled::new(minor);
        for _ in 0..LEASES_OF_A_RUNNING_REQUEST {
            assert_eq!(stalled.asked_after(LEASE), Status::Denied, "minor version {minor}");
        }
        assert_eq!(stalled.asked_after(1), Status::Ok, "minor version {minor}");
        assert!(stalled.late.borrow().is_none());
        assert_eq!(stalled.hold.waiting(), 1);
    }
}

/// It holds nothing: its session must be there when the request ends.
#[test]
fn a_client_without_state_is_not_forgotten_while_its_request_runs() {
    for minor in 1..=2 {
        let harness = Harness::new();
        let a = harness.client("a", minor);
        let hold = harness.store.faults().hold_next(FileOp::GetAttr, When::BeforeEffect);
        let late = a.begin_next(Ops::new().at(&a.export()).getattr(&[4]));
        harness.simulation.settle();
        assert_eq!(hold.waiting(), 1);
        harness.pass_seconds((LEASES_OF_A_RUNNING_REQUEST - 1) * LEASE);
        hold.release();
        harness.simulation.settle();
        assert!(late.borrow().is_some());
        assert_eq!(alive(&a), Status::Ok);
    }
}

#[test]
fn an_expired_client_starts_anew() {
    for minor in 0..=2 {
        let harness = Harness::new();
        let (a, b) = (harness.client("a", minor), harness.client("b", minor));
        let root = a.export();
        a.file(&root, "f", b"x");
        a.open(&OpenRequest::name(&root, "f").deny(3)).unwrap();
        harness.pass_seconds(LEASE + 1);
        alive(&b);
        let opened = b.open(&OpenRequest::name(&root, "f")).unwrap();
        b.close(&opened).unwrap();
        a.introduce(false);
        assert!(a.open(&OpenRequest::name(&root, "f").deny(3)).is_ok());
    }
}

#[test]
fn exports_that_go_take_their_state_with_them() {
    for minor in 0..=2 {
        let harness = Harness::new();
        let (a, b) = (harness.client("a", minor), harness.client("b", 2));
        let root = a.export();
        a.file(&root, "f", b"content");
        let opened = a.open(&OpenRequest::name(&root, "f").deny(2)).unwrap();
        let refused = b.open(&OpenRequest::name(&root, "f"));
        assert_eq!(refused.unwrap_err(), Status::ShareDenied);
        harness.reload(|_| false);
        assert_eq!(a.read(&opened.fh, opened.stateid, 0, 7).unwrap_err(), Status::Stale);
        harness.reload(|_| true);
        assert_eq!(a.read(&opened.fh, opened.stateid, 0, 7).unwrap_err(), Status::BadStateid);
        b.open(&OpenRequest::name(&root, "f")).unwrap();
    }
}

/// Clients on two hosts, and the export's root, in which the first one has made the file `f`.
fn two_hosts(minor: u8) -> (Rc<Harness>, Client, Client, Fh) {
    let harness = Harness::new();
    let (a, b) = (harness.stranger("a", minor), harness.client("b", 2));
    a.address.set([192, 0, 2, 77].into());
    a.introduce(false);
    let root = a.export();
    a.file(&root, "f", b"content");
    (harness, a, b, root)
}

/// An OPEN that waits for storage while its export goes, or its host loses it, leaves nothing
/// behind: nobody could close it.
#[test]
fn an_open_that_outlasts_its_export_is_not_entered() {
    let changes: [fn(&Harness, &Client); 2] = [
        |harness, _| harness.reload(|_| false),
        |harness, b| harness.admit_only(&[b.address.get().into()]),
    ];
    for (minor, change) in (0..=2).flat_map(|minor| changes.map(|change| (minor, change))) {
        let (harness, a, b, root) = two_hosts(minor);
        let wish = OpenRequest::name(&root, "f").deny(2);
        let hold = harness.store.faults().hold_next(FileOp::Open, When::AfterEffect);
        let late = a.begin_next(Ops::new().at(&root).op::<Open>(&a.open_args(&wish)));
        harness.simulation.settle();
        assert_eq!(hold.waiting(), 1);
        change(&harness, &b);
        hold.release();
        harness.simulation.settle();
        let raw = late.borrow().clone().unwrap();
        assert_eq!(Status::decode(&mut Decoder::new(&raw)).unwrap(), Status::Delay);
        harness.reload(|_| true);
        b.open(&OpenRequest::name(&root, "f")).unwrap();
    }
}

#[test]
fn exports_that_move_to_another_directory_lose_their_state() {
    for minor in 0..=2 {
        let harness = Harness::new();
        let (a, b) = (harness.client("a", minor), harness.client("b", 2));
        let root = a.export();
        a.file(&root, "f", b"content");
        let opened = a.open(&OpenRequest::name(&root, "f").deny(2)).unwrap();
        harness.move_export("/dir/second");
        let refused = b.open(&OpenRequest::name(&root, "f"));
        assert_eq!(refused.unwrap_err(), Status::ShareDenied, "another export has moved");
        harness.move_export("/export");
        harness.reload(|_| true);
        assert_eq!(a.read(&opened.fh, opened.stateid, 0, 7).unwrap_err(), Status::BadStateid);
        b.open(&OpenRequest::name(&root, "f")).unwrap();
    }
}

#[test]
fn exports_that_cannot_be_opened_for_a_while_keep_their_state() {
    for minor in 0..=2 {
        let harness = Harness::new();
        let (a, b) = (harness.client("a", minor), harness.client("b", 2));
        let root = a.export();
        a.file(&root, "f", b"content");
        let opened = a.open(&OpenRequest::name(&root, "f").deny(2)).unwrap();
        harness.exports_away(|path| path == "/export");
        assert_eq!(a.read(&opened.fh, opened.stateid, 0, 7).unwrap_err(), Status::Delay);
        harness.reload(|_| true);
        let refused = b.open(&OpenRequest::name(&root, "f"));
        assert_eq!(refused.unwrap_err(), Status::ShareDenied);
        assert_eq!(&a.read(&opened.fh, opened.stateid, 0, 7).unwrap().1[..], b"content");
        a.close(&opened).unwrap();
        let of_b = b.open(&OpenRequest::name(&root, "f")).unwrap();
        b.close(&of_b).unwrap();
        // A configuration without it ends what it has, present or not.
        let opened = a.open(&OpenRequest::name(&root, "f").deny(2)).unwrap();
        harness.exports_away(|path| path == "/export");
        harness.reload(|_| false);
        harness.reload(|_| true);
        let end = a.read(&opened.fh, opened.stateid, 0, 7);
        assert_eq!(end.unwrap_err(), Status::BadStateid);
    }
}

#[test]
fn a_host_that_loses_an_export_loses_its_state_there() {
    for minor in 0..=2 {
        let (harness, a, b, root) = two_hosts(minor);
        let opened = a.open(&OpenRequest::name(&root, "f").deny(2)).unwrap();
        let refused = b.open(&OpenRequest::name(&root, "f"));
        assert_eq!(refused.unwrap_err(), Status::ShareDenied);
        let kept = b.create("kept");
        let of_b = b.address.get();
        harness.admit_only(&[of_b.into()]);
        assert!(a.read(&opened.fh, opened.stateid, 0, 7).is_err(), "its requests are refused");
        // Although a goes on renewing its lease.
        b.open(&OpenRequest::name(&root, "f")).unwrap();
        assert_eq!(b.write(&kept.fh, kept.stateid, 0, b"x"), Ok(1), "others keep theirs");
        harness.admit_only(&[]);
        assert_eq!(a.read(&opened.fh, opened.stateid, 0, 7).unwrap_err(), Status::BadStateid);
    }
}

#[test]
fn what_an_expired_client_had_waits_for_its_record_also_where_it_is_shut_out() {
    // Minor version 0: the bare record of the client stays, and its state goes in slices.
    const FILES: usize = MAX_STATES_PER_SLICE + 8;
    let harness = Harness::new();
    let gone = harness.stranger("gone", 0);
    gone.address.set([192, 0, 2, 77].into());
    gone.introduce(false);
    let names = (0..FILES).map(|n| format!("f{n}"));
    let mut made: Vec<_> = names.map(|name| (gone.create(&name).stateid.other, name)).collect();
    // In this order they go.
    made.sort();
    harness.pass_seconds(LEASE + 1);
    let here = harness.client("here", 0);
    here.create("own");
    harness.records.hold();
    let alone = |(_, name): &([u8; 12], String)| {
        here.open(&OpenRequest::name(&here.export(), name).deny(3)).map(drop)
    };
    assert_eq!(alone(&made[0]), Err(Status::Delay));
    harness.admit_only(&[here.address.get().into()]);
    assert_eq!(alone(&made[FILES - 1]), Err(Status::Delay));
    harness.records.release();
    assert_eq!(alone(&made[FILES - 1]), Ok(()));
}
