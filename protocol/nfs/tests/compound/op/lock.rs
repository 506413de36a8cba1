//! LOCK, LOCKT, LOCKU and RELEASE_LOCKOWNER (RFC 8881 §18.10-§18.12,
//! RFC 7530 §16.37).

use zgate_nfs::limits::MAX_STATES_PER_SLICE;
use zgate_test_harness::nfs::{Ops, Fixture, OpenRequest, each, every_minor};
use zgate_nfs_wire::v4::op::Lock;
use zgate_nfs_wire::v4::op::lock::{Denied, Locker, self};
use zgate_nfs_wire::v4::op::Lockt;
use zgate_nfs_wire::v4::op::lockt;
use zgate_nfs_wire::v4::op::Locku;
use zgate_nfs_wire::v4::op::locku;
use zgate_nfs_wire::v4::op::ReleaseLockowner;
use zgate_nfs_wire::v4::op::release_lockowner;
use zgate_nfs_wire::v4::{LockType, Stateid, Status};
use std::cell::Cell;

const ALL: u64 = u64::MAX;

#[test]
fn locks_exclude_other_owners_and_say_by_what() {
    every_minor(|s| {
        let opened = s.open();
        let mut held = s.c.lock(&opened, "a", LockType::Write, (10, 10)).unwrap();
        for range in [(0, 11), (19, 1), (10, 10), (0, ALL), (15, ALL)] {
            assert_eq!(s.c.lock(&opened, "b", LockType::Read, range).unwrap_err(), Status::Denied);
            assert_eq!(s.c.lockt(&s.file, "b", LockType::Read, range), Err(Status::Denied));
            assert_eq!(s.c.lockt(&s.file, "a", LockType::Write, range), Ok(()));
        }
        for range in [(0, 10), (20, 5), (20, ALL)] {
            assert_eq!(s.c.lockt(&s.file, "b", LockType::Write, range), Ok(()));
        }
        let args = lockt::Args { kind: LockType::Read, offset: 0, length: ALL, owner: s.c.owner("b") };
        let reply = s.c.run(Ops::new().at(&s.file).op::<Lockt>(&args));
        let expected =
            Denied { offset: 10, length: 10, kind: LockType::Write, owner: s.c.owner("a") };
        assert_eq!(reply.failure::<Denied>(), expected);
        let before = held.stateid;
        s.c.lock_more(&mut held, LockType::Read, (10, 10)).unwrap();
        assert_eq!(held.stateid.seqid, before.seqid + 1, "each change is a new version");
        assert_eq!(s.c.lockt(&s.file, "b", LockType::Read, (0, ALL)), Ok(()), "downgraded");
        s.c.unlock(&mut held, (12, 3)).unwrap();
        assert_eq!(s.c.lockt(&s.file, "b", LockType::Write, (12, 3)), Ok(()));
        assert_eq!(s.c.lockt(&s.file, "b", LockType::Write, (11, 2)), Err(Status::Denied));
        assert_eq!(s.c.lockt(&s.file, "b", LockType::Write, (14, 2)), Err(Status::Denied));
        s.c.unlock(&mut held, (0, ALL)).unwrap();
        assert_eq!(s.c.lockt(&s.file, "b", LockType::Write, (0, ALL)), Ok(()));
    });
}

#[test]
fn ranges() {
    every_minor(|s| {
        let opened = s.open();
        let mut held = s.c.lock(&opened, "a", LockType::Read, (0, 1)).unwrap();
        for range in [(0, 0), (1, ALL - 1), (ALL, 2), (ALL - 5, 7)] {
            let legal = range == (1, ALL - 1);
            let expected = if legal { Ok(()) } else { Err(Status::Inval) };
            assert_eq!(s.c.lock_more(&mut held, LockType::Read, range), expected, "{range:?}");
            let expected = if legal { Ok(()) } else { Err(Status::Inval) };
            assert_eq!(s.c.lockt(&s.file, "a", LockType::Read, range), expected, "{range:?}");
            if !legal {
                assert_eq!(s.c.unlock(&mut held, range), Err(Status::Inval), "{range:?}");
            }
        }
        assert_eq!(s.c.lock_more(&mut held, LockType::Write, (ALL - 1, 1)), Ok(()));
        assert_eq!(s.c.unlock(&mut held, (3, ALL)), Ok(()));
    });
}

/// It is a byte like the others (RFC 8881 §18.10.3).
#[test]
fn the_last_byte() {
    every_minor(|s| {
        let opened = s.open();
        s.c.lock(&opened, "a", LockType::Write, (ALL, ALL)).unwrap();
        for range in [(ALL, ALL), (ALL - 1, ALL), (0, ALL)] {
            let asked = s.c.lockt(&s.file, "b", LockType::Write, range);
            assert_eq!(asked, Err(Status::Denied), "{range:?}");
        }
        assert_eq!(s.c.lockt(&s.file, "b", LockType::Write, (ALL - 1, 1)), Ok(()));
    });
}

#[test]
fn kinds_of_objects_and_opens() {
    every_minor(|s| {
        let opened = s.open();
        let test = |ops: Ops| {
            let args = lockt::Args { kind: LockType::Read, offset: 0, length: 1, owner: s.c.owner("a") };
            ops.op::<Lockt>(&args)
        };
        s.check_regular_only("LOCKT", test);
        let calls = Cell::new(0);
        let lock = |ops: Ops| {
            // The answer to the call before has advanced the number of the open's owner, but
            // the first one: that has no file handle.
            if calls.replace(calls.get() + 1) > 1 {
                s.c.advance(opened.owner, Status::Inval);
            }
            ops.op::<Lock>(&s.c.lock_args(&opened, "a", LockType::Read, (0, 1)))
        };
        s.check_regular_only("LOCK", lock);
        s.c.check("pseudo", lock(Ops::new().root()), Status::Isdir);
        s.c.check("no such type", Ops::new().at(&s.file).raw(13, &[0; 40]), Status::Badxdr);
        let wish = OpenRequest::name(&s.root, "file").owner("reader").access(1);
        let reader = s.c.open(&wish).unwrap();
        let refused = s.c.lock(&reader, "a", LockType::Write, (0, 1));
        assert_eq!(refused.unwrap_err(), Status::Openmode);
        let wish = OpenRequest::name(&s.root, "file").owner("writer").access(2);
        let writer = s.c.open(&wish).unwrap();
        let refused = s.c.lock(&writer, "a", LockType::Read, (0, 1));
        assert_eq!(refused.unwrap_err(), Status::Openmode);
        assert!(s.c.lock(&writer, "a", LockType::WriteWait, (0, 1)).is_ok());
    });
}

fn more(s: &Fixture, stateid: Stateid) -> Ops {
    let locker = Locker::Existing { stateid, seqid: s.c.seqid("a") };
    let args = lock::Args { kind: LockType::Read, reclaim: false, offset: 0, length: 1, locker };
    Ops::new().at(&s.file).op::<Lock>(&args)
}

fn unlock(s: &Fixture, stateid: Stateid) -> Ops {
    let seqid = s.c.seqid("a");
    let args = locku::Args { kind: LockType::Read, seqid, stateid, offset: 0, length: 1 };
    Ops::new().at(&s.file).op::<Locku>(&args)
}

#[test]
fn stateids_that_do_not_lock() {
    every_minor(|s| {
        let opened = s.open();
        let held = s.c.lock(&opened, "a", LockType::Read, (0, 1)).unwrap();
        for op in [more, unlock] {
            for bad in [Stateid::ANONYMOUS, Stateid::READ_BYPASS, Stateid::INVALID] {
                s.c.check("special", op(s, bad), Status::BadStateid);
            }
            let ahead = Stateid { seqid: held.stateid.seqid + 1, ..held.stateid };
            s.c.check("a version to come", op(s, ahead), Status::BadStateid);
        }
        // An open's stateid cannot unlock; minor version 0 first checks the
        // sequence number of the open owner.
        if s.c.minor > 0 {
            s.c.check("an open's", unlock(s, opened.stateid), Status::BadStateid);
            s.c.check("an open's", more(s, opened.stateid), Status::BadStateid);
        }
        let new = |stateid| {
            let fake = zgate_test_harness::nfs::Opened { stateid, ..opened.clone() };
            let args = s.c.lock_args(&fake, "fresh", LockType::Read, (5, 1));
            Ops::new().at(&s.file).op::<Lock>(&args)
        };
        s.c.check("first lock by nothing", new(Stateid::ANONYMOUS), Status::BadStateid);
        let inner = s.c.open(&OpenRequest::name(&s.dir, "inner").owner("i")).unwrap();
        let args = s.c.lock_args(&inner, "fresh", LockType::Read, (5, 1));
        let ops = Ops::new().at(&s.file).op::<Lock>(&args);
        s.c.check("another file's open", ops, Status::BadStateid);
        let bare = Ops::new().op::<Locku>(&locku::Args {
            kind: LockType::Read,
            seqid: 0,
            stateid: held.stateid,
            offset: 0,
            length: 1,
        });
        s.c.check("no handle", bare, Status::Nofilehandle);
    });
}

#[test]
fn reclaims_outside_grace() {
    every_minor(|s| {
        let opened = s.open();
        let args = lock::Args {
            reclaim: true,
            ..s.c.lock_args(&opened, "a", LockType::Read, (0, 1))
        };
        s.c.check("no grace", Ops::new().at(&s.file).op::<Lock>(&args), Status::NoGrace);
    });
}

#[test]
fn minor_zero_numbers_and_replays() {
    each([0], |s| {
        let opened = s.open();
        let args = s.c.lock_args(&opened, "a", LockType::Write, (0, 4));
        let ops = || Ops::new().at(&s.file).op::<Lock>(&args);
        let first = s.c.run(ops()).ok();
        assert_eq!(s.c.run(ops()).ok().raw, first.raw, "a repeated LOCK");
        s.c.advance("owner", Status::Ok);
        s.c.advance("a", Status::Ok);
        let stateid = first.get::<Lock>().stateid;
        let again = || unlock(s, stateid);
        let done = s.c.run(again()).ok();
        assert_eq!(s.c.run(again()).ok().raw, done.raw, "a repeated LOCKU");
        s.c.advance("a", Status::Ok);
        s.c.advance("a", Status::Ok);
        s.c.check("a number left out", unlock(s, stateid), Status::BadSeqid);
        s.c.check("an unknown client", {
            let mut owner = s.c.owner("a");
            owner.clientid.0 ^= 99;
            let args = lockt::Args { kind: LockType::Read, offset: 0, length: 1, owner };
            Ops::new().at(&s.file).op::<Lockt>(&args)
        }, Status::StaleClientid);
    });
}

/// RFC 7530 §9.1.7: every error advances the number but for a few that are named there.
#[test]
fn minor_zero_counts_what_is_no_file() {
    each([0], |s| {
        let opened = s.open();
        let held = s.c.lock(&opened, "a", LockType::Write, (0, 1)).unwrap();
        for (fh, expected) in [(&s.stale, Status::Stale), (&s.dir, Status::Isdir)] {
            let args = s.c.lock_args(&opened, "b", LockType::Read, (5, 1));
            let first = || Ops::new().at(fh).op::<Lock>(&args);
            s.c.check("of a new owner", first(), expected);
            s.c.check("repeated", first(), expected);
            s.c.advance("owner", expected);
            let locker = Locker::Existing { stateid: held.stateid, seqid: s.c.seqid("a") };
            let args = lock::Args { kind: LockType::Read, reclaim: false, offset: 5, length: 1, locker };
            s.c.check("of a known one", Ops::new().at(fh).op::<Lock>(&args), expected);
            s.c.advance("a", expected);
        }
        let mut held = held;
        assert_eq!(s.c.lock_more(&mut held, LockType::Write, (5, 1)), Ok(()));
        assert!(s.c.lock(&opened, "b", LockType::Write, (9, 1)).is_ok());
    });
}

/// RFC 7530 §9.1.7: the refusal of its first lock of a file has used the number of the lock owner
/// as well as that of the open owner.
#[test]
fn minor_zero_counts_a_refused_first_lock_for_both_owners() {
    each([0], |s| {
        let opened = s.open();
        s.c.lock(&opened, "a", LockType::Write, (0, 1)).unwrap();
        let wish = OpenRequest::name(&s.dir, "inner");
        let inner = s.c.open(&wish).unwrap();
        let other = s.c.open(&wish.clone().owner("other")).unwrap();
        s.c.lock(&other, "b", LockType::Write, (0, 1)).unwrap();
        let args = s.c.lock_args(&inner, "a", LockType::Write, (0, 1));
        let first = || Ops::new().at(&s.inner).op::<Lock>(&args);
        s.c.check("held by b", first(), Status::Denied);
        s.c.check("repeated", first(), Status::Denied);
        s.c.advance("owner", Status::Denied);
        let again = s.c.lock_args(&inner, "a", LockType::Write, (5, 1));
        let again = Ops::new().at(&s.inner).op::<Lock>(&again);
        s.c.check("the number is used", again, Status::BadSeqid);
        s.c.advance("a", Status::Denied);
        assert!(s.c.lock(&inner, "a", LockType::Write, (5, 1)).is_ok());
    });
}

#[test]
fn lock_owners_are_released_when_they_hold_nothing() {
    each([0], |s| {
        let release = |owner| {
            let args = release_lockowner::Args { owner };
            Ops::new().op::<ReleaseLockowner>(&args)
        };
        s.c.check("unknown owner", release(s.c.owner("nobody")), Status::Ok);
        let mut stranger = s.c.owner("a");
        stranger.clientid.0 ^= 99;
        s.c.check("unknown client", release(stranger), Status::StaleClientid);
        let opened = s.open();
        let mut held = s.c.lock(&opened, "a", LockType::Read, (0, 1)).unwrap();
        s.c.check("holds a lock", release(s.c.owner("a")), Status::LocksHeld);
        s.c.unlock(&mut held, (0, ALL)).unwrap();
        s.c.check("holds nothing", release(s.c.owner("a")), Status::Ok);
        s.c.owners.borrow_mut().remove("a");
        s.c.check("released", unlock(s, held.stateid), Status::BadStateid);
        assert!(s.c.lock(&opened, "a", LockType::Read, (0, 1)).is_ok(), "starts anew");
    });
}

/// It takes a slice of them at a time, and others are served in between.
#[test]
fn a_lock_owner_of_many_files_is_released_in_slices() {
    each([0], |s| {
        let mut held: Vec<_> = (0..=MAX_STATES_PER_SLICE)
            .map(|n| {
                let opened = s.c.create(&format!("many{n}"));
                s.c.lock(&opened, "a", LockType::Write, (0, 1)).unwrap()
            })
            .collect();
        let args = release_lockowner::Args { owner: s.c.owner("a") };
        let release = || Ops::new().op::<ReleaseLockowner>(&args);
        for locked in &mut held[1..] {
            s.c.unlock(locked, (0, 1)).unwrap();
        }
        s.c.check("one is held", release(), Status::LocksHeld);
        for locked in &mut held {
            assert_eq!(s.c.unlock(locked, (0, 1)), Ok(()), "nothing was released");
        }
        let pending = s.c.begin_bare(release());
        s.harness.simulation.settle();
        assert_eq!(*pending.borrow(), None, "not in one step");
        s.harness.pass_seconds(1);
        assert_eq!(pending.borrow().as_deref().map(|reply| &reply[..4]), Some(&[0; 4][..]));
        s.c.owners.borrow_mut().remove("a");
        for locked in [&held[0], &held[MAX_STATES_PER_SLICE]] {
            s.c.check("released", unlock(s, locked.stateid), Status::BadStateid);
        }
    });
}

/// RFC 8881 §8.2.1: locks of one owner under different opens of a file have a stateid for each.
#[test]
fn a_lock_owner_has_a_stateid_for_each_open() {
    every_minor(|s| {
        let wish = OpenRequest::name(&s.root, "file");
        let reader = s.c.open(&wish.clone().owner("reader").access(1)).unwrap();
        let writer = s.c.open(&wish.owner("writer")).unwrap();
        let read = s.c.lock(&reader, "a", LockType::Read, (0, 1)).unwrap();
        let mut written = s.c.lock(&writer, "a", LockType::Write, (0, 5)).unwrap();
        assert_ne!(read.stateid.other, written.stateid.other);
        let again = s.c.lock(&writer, "a", LockType::Read, (20, 1)).unwrap();
        assert_eq!(again.stateid.other, written.stateid.other);
        written.stateid = again.stateid;
        // By the rights of its own open.
        assert_eq!(s.c.lock_more(&mut written, LockType::Write, (5, 5)), Ok(()));
        assert_eq!(s.c.write(&s.file, written.stateid, 0, b"x"), Ok(1));
        assert_eq!(s.c.write(&s.file, read.stateid, 0, b"x"), Err(Status::Openmode));
        // It does not end with the other open.
        s.c.close(&reader).unwrap();
        assert_eq!(s.c.lockt(&s.file, "b", LockType::Read, (0, 10)), Err(Status::Denied));
        assert_eq!(s.c.unlock(&mut written, (1, 9)), Ok(()));
        assert_eq!(s.c.lockt(&s.file, "b", LockType::Write, (1, 9)), Ok(()));
        s.c.close(&writer).unwrap();
        assert_eq!(s.c.lockt(&s.file, "b", LockType::Write, (0, ALL)), Ok(()));
    });
}
