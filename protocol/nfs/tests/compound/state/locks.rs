//! Byte-range locks between clients, and the notification of free locks.

use zgate_nfs_wire::v4::callback::CallbackOp;
use zgate_nfs_wire::v4::{LockType, Status};
use zgate_test_harness::nfs::{Client, Harness, LEASE, OpenRequest};

const ALL: u64 = u64::MAX;

fn two(minor: u8) -> (std::rc::Rc<Harness>, Client, Client) {
    let harness = Harness::new();
    let (a, b) = (harness.client("a", minor), harness.reachable("b", minor));
    a.file(&a.export(), "f", b"0123456789");
    (harness, a, b)
}

#[test]
fn equal_owner_names_of_two_clients_are_two_owners() {
    for minor in 0..=2 {
        let (_rig, a, b) = two(minor);
        let root = a.export();
        let (x, y) = (
            a.open(&OpenRequest::name(&root, "f")).unwrap(),
            b.open(&OpenRequest::name(&root, "f")).unwrap(),
        );
        a.lock(&x, "same", LockType::Write, (0, 5)).unwrap();
        assert_eq!(b.lock(&y, "same", LockType::Read, (4, 1)).unwrap_err(), Status::Denied);
        let mut theirs = b.lock(&y, "same", LockType::Write, (5, ALL)).unwrap();
        assert_eq!(b.lock_more(&mut theirs, LockType::Write, (0, ALL)), Err(Status::Denied));
    }
}

#[test]
fn a_waiter_hears_that_the_lock_is_free() {
    for minor in 1..=2 {
        let (harness, a, b) = two(minor);
        let root = a.export();
        let (x, y) = (
            a.open(&OpenRequest::name(&root, "f")).unwrap(),
            b.open(&OpenRequest::name(&root, "f")).unwrap(),
        );
        let mut held = a.lock(&x, "holder", LockType::Write, (0, 10)).unwrap();
        assert_eq!(b.lock(&y, "waiter", LockType::WriteWait, (2, 3)).unwrap_err(), Status::Denied);
        a.unlock(&mut held, (0, 3)).unwrap();
        assert_eq!(b.callbacks(), [], "half of it is still held");
        a.unlock(&mut held, (3, 2)).unwrap();
        let owner = b.owner("waiter");
        assert_eq!(b.callbacks(), [CallbackOp::NotifyLock { fh: x.fh.clone(), owner }]);
        a.unlock(&mut held, (5, 5)).unwrap();
        assert_eq!(b.callbacks().len(), 1, "once");
        b.lock(&y, "waiter", LockType::WriteWait, (2, 3)).unwrap();
        drop(harness);
    }
}

#[test]
fn a_waiter_that_could_not_ask_again_is_still_told() {
    for minor in 1..=2 {
        let (harness, a, b) = two(minor);
        let root = a.export();
        let (x, y) = (
            a.open(&OpenRequest::name(&root, "f")).unwrap(),
            b.open(&OpenRequest::name(&root, "f")).unwrap(),
        );
        let mut held = a.lock(&x, "holder", LockType::Write, (0, 10)).unwrap();
        b.lock(&y, "waiter", LockType::WriteWait, (2, 3)).unwrap_err();
        // Longer than the server remembers who asks no more.
        harness.hold_seconds(150);
        harness.pass_seconds(1);
        a.unlock(&mut held, (0, 10)).unwrap();
        assert_eq!(b.callbacks().len(), 1);
    }
}

#[test]
fn a_waiter_hears_of_a_close_and_of_a_client_that_expired() {
    let (harness, a, b) = two(1);
    let root = a.export();
    let (x, y) = (
        a.open(&OpenRequest::name(&root, "f")).unwrap(),
        b.open(&OpenRequest::name(&root, "f")).unwrap(),
    );
    a.lock(&x, "holder", LockType::Write, (0, 10)).unwrap();
    b.lock(&y, "waiter", LockType::ReadWait, (2, 3)).unwrap_err();
    a.close(&x).unwrap();
    assert_eq!(b.callbacks().len(), 1);
    let x = a.open(&OpenRequest::name(&root, "f")).unwrap();
    a.lock(&x, "holder", LockType::Write, (0, 10)).unwrap();
    b.lock(&y, "waiter", LockType::ReadWait, (2, 3)).unwrap_err();
    harness.pass_seconds(LEASE - 1);
    b.run(zgate_test_harness::nfs::Ops::new().root());
    harness.pass_seconds(LEASE - 1);
    // The holder is silent for more than a lease: a retry is sufficient.
    assert!(b.lock(&y, "waiter", LockType::ReadWait, (2, 3)).is_ok());
    assert_eq!(a.run(zgate_test_harness::nfs::Ops::new().root()).status, Status::Badsession);
}

#[test]
fn a_lock_that_does_not_wait_is_not_told() {
    let (_rig, a, b) = two(2);
    let root = a.export();
    let (x, y) = (
        a.open(&OpenRequest::name(&root, "f")).unwrap(),
        b.open(&OpenRequest::name(&root, "f")).unwrap(),
    );
    let mut held = a.lock(&x, "holder", LockType::Write, (0, 10)).unwrap();
    b.lock(&y, "waiter", LockType::Write, (2, 3)).unwrap_err();
    a.unlock(&mut held, (0, ALL)).unwrap();
    assert_eq!(b.callbacks(), []);
}

#[test]
fn owners_that_hold_nothing_are_forgotten() {
    // Clients create a lock owner for each process: unless removed, they would
    // use up the limit of one client.
    for minor in 0..=2 {
        let harness = Harness::new();
        let c = harness.client("c", minor);
        let owners = || harness.server().clients(harness.simulation.clock().seconds())[0].owners;
        for name in ["one", "two", "three"] {
            let opened = c.create("f");
            let mut held = c.lock(&opened, name, LockType::Write, (0, 1)).unwrap();
            c.unlock(&mut held, (0, 1)).unwrap();
            c.close(&opened).unwrap();
        }
        assert_eq!(owners() == 0, minor > 0, "minor version {minor}: {}", owners());
        harness.pass_seconds(2 * LEASE + 1);
        assert_eq!(owners(), 0, "minor version {minor}");
    }
}

#[test]
fn unlocking_makes_no_more_ranges_than_there_may_be() {
    let harness = Harness::new();
    let c = harness.client("c", 2);
    let opened = c.create("f");
    let mut held = c.lock(&opened, "l", LockType::Write, (0, ALL)).unwrap();
    let refused = (0..zgate_nfs::limits::MAX_RANGES_PER_FILE as u64 + 1)
        .find_map(|at| c.unlock(&mut held, (2 * at + 1, 1)).err());
    assert_eq!(refused, Some(Status::Delay));
    c.unlock(&mut held, (0, ALL)).unwrap();
}
