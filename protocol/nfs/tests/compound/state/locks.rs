//! Byte-range locks between clients, and the word that one is free.

use crate::rig::{Client, Heard, LEASE, Rig, Wish};
use zgate_nfs::v4::wire::{LockType, Status};

const ALL: u64 = u64::MAX;

fn two(minor: u8) -> (std::rc::Rc<Rig>, Client, Client) {
    let rig = Rig::new();
    let (a, b) = (rig.client("a", minor), rig.reachable("b", minor));
    a.file(&a.export(), "f", b"0123456789");
    (rig, a, b)
}

#[test]
fn equal_owner_names_of_two_clients_are_two_owners() {
    for minor in 0..=2 {
        let (_rig, a, b) = two(minor);
        let root = a.export();
        let (x, y) =
            (a.open(&Wish::name(&root, "f")).unwrap(), b.open(&Wish::name(&root, "f")).unwrap());
        a.lock(&x, "same", LockType::Write, (0, 5)).unwrap();
        assert_eq!(b.lock(&y, "same", LockType::Read, (4, 1)).unwrap_err(), Status::Denied);
        let mut theirs = b.lock(&y, "same", LockType::Write, (5, ALL)).unwrap();
        assert_eq!(b.lock_more(&mut theirs, LockType::Write, (0, ALL)), Err(Status::Denied));
    }
}

#[test]
fn a_waiter_hears_that_the_lock_is_free() {
    for minor in 1..=2 {
        let (rig, a, b) = two(minor);
        let root = a.export();
        let (x, y) =
            (a.open(&Wish::name(&root, "f")).unwrap(), b.open(&Wish::name(&root, "f")).unwrap());
        let mut held = a.lock(&x, "holder", LockType::Write, (0, 10)).unwrap();
        assert_eq!(b.lock(&y, "waiter", LockType::WriteWait, (2, 3)).unwrap_err(), Status::Denied);
        a.unlock(&mut held, (0, 3)).unwrap();
        assert_eq!(b.heard(), [], "half of it is still held");
        a.unlock(&mut held, (3, 2)).unwrap();
        let owner = b.owner("waiter");
        assert_eq!(b.heard(), [Heard::NotifyLock { fh: x.fh.clone(), owner }]);
        a.unlock(&mut held, (5, 5)).unwrap();
        assert_eq!(b.heard().len(), 1, "once");
        b.lock(&y, "waiter", LockType::WriteWait, (2, 3)).unwrap();
        drop(rig);
    }
}

#[test]
fn a_waiter_hears_of_a_close_and_of_a_client_that_expired() {
    let (rig, a, b) = two(1);
    let root = a.export();
    let (x, y) =
        (a.open(&Wish::name(&root, "f")).unwrap(), b.open(&Wish::name(&root, "f")).unwrap());
    a.lock(&x, "holder", LockType::Write, (0, 10)).unwrap();
    b.lock(&y, "waiter", LockType::ReadWait, (2, 3)).unwrap_err();
    a.close(&x).unwrap();
    assert_eq!(b.heard().len(), 1);
    let x = a.open(&Wish::name(&root, "f")).unwrap();
    a.lock(&x, "holder", LockType::Write, (0, 10)).unwrap();
    b.lock(&y, "waiter", LockType::ReadWait, (2, 3)).unwrap_err();
    rig.pass_seconds(LEASE - 1);
    b.run(crate::rig::Ops::new().root());
    rig.pass_seconds(LEASE - 1);
    // The holder is silent for more than a lease: trying is enough.
    assert!(b.lock(&y, "waiter", LockType::ReadWait, (2, 3)).is_ok());
    assert_eq!(a.run(crate::rig::Ops::new().root()).status, Status::Badsession);
}

#[test]
fn a_lock_that_does_not_wait_is_not_told() {
    let (_rig, a, b) = two(2);
    let root = a.export();
    let (x, y) =
        (a.open(&Wish::name(&root, "f")).unwrap(), b.open(&Wish::name(&root, "f")).unwrap());
    let mut held = a.lock(&x, "holder", LockType::Write, (0, 10)).unwrap();
    b.lock(&y, "waiter", LockType::Write, (2, 3)).unwrap_err();
    a.unlock(&mut held, (0, ALL)).unwrap();
    assert_eq!(b.heard(), []);
}

#[test]
fn owners_that_hold_nothing_are_forgotten() {
    // Clients make a lock owner for each process: without an end they would
    // use up what one client may have.
    for minor in 0..=2 {
        let rig = Rig::new();
        let c = rig.client("c", minor);
        let owners = || rig.server().clients(rig.world.clock().seconds())[0].owners;
        for name in ["one", "two", "three"] {
            let opened = c.create("f");
            let mut held = c.lock(&opened, name, LockType::Write, (0, 1)).unwrap();
            c.unlock(&mut held, (0, 1)).unwrap();
            c.close(&opened).unwrap();
        }
        assert_eq!(owners() == 0, minor > 0, "minor version {minor}: {}", owners());
        rig.pass_seconds(2 * LEASE + 1);
        assert_eq!(owners(), 0, "minor version {minor}");
    }
}

#[test]
fn unlocking_makes_no_more_ranges_than_there_may_be() {
    let rig = Rig::new();
    let c = rig.client("c", 2);
    let opened = c.create("f");
    let mut held = c.lock(&opened, "l", LockType::Write, (0, ALL)).unwrap();
    let refused = (0..zgate_nfs::limits::MAX_RANGES_PER_FILE as u64 + 1)
        .find_map(|at| c.unlock(&mut held, (2 * at + 1, 1)).err());
    assert_eq!(refused, Some(Status::Delay));
    c.unlock(&mut held, (0, ALL)).unwrap();
}
