//! FREE_STATEID, TEST_STATEID and the current stateid (RFC 8881 §18.38, §18.48, §8.2.3).

use zgate_test_harness::nfs::{OpenRequest, Ops, Fixture, sessions};
use zgate_memory::{FileOp, When};
use zgate_nfs_wire::v4::op::{Close, Open, close};
use zgate_nfs_wire::v4::op::FreeStateid;
use zgate_nfs_wire::v4::op::free_stateid;
use zgate_nfs_wire::v4::op::TestStateid;
use zgate_nfs_wire::v4::op::test_stateid;
use zgate_nfs_wire::v4::{LockType, StableHow, Stateid, Status};

fn test(s: &Fixture, stateids: &[Stateid]) -> Vec<Status> {
    let args = test_stateid::Args { stateids: stateids.to_vec() };
    s.c.run(Ops::new().op::<TestStateid>(&args)).ok().get::<TestStateid>().statuses
}

fn free(stateid: Stateid) -> Ops {
    Ops::new().op::<FreeStateid>(&free_stateid::Args { stateid })
}

#[test]
fn each_stateid_gets_its_verdict() {
    sessions(|s| {
        let opened = s.open();
        let locked = s.c.lock(&opened, "l", LockType::Read, (0, 1)).unwrap();
        let other = s.harness.client("other", s.c.minor);
        let theirs = other.open(&zgate_test_harness::nfs::OpenRequest::name(&s.root, "file")).unwrap();
        let ahead = Stateid { seqid: opened.stateid.seqid + 1, ..opened.stateid };
        let newest = Stateid { seqid: 0, ..opened.stateid };
        let mut unknown = opened.stateid;
        unknown.other[11] ^= 0x70;
        let asked = [
            opened.stateid,
            locked.stateid,
            newest,
            ahead,
            unknown,
            Stateid::ANONYMOUS,
            Stateid::CURRENT,
            theirs.stateid,
        ];
        let bad = Status::BadStateid;
        let expected = [Status::Ok, Status::Ok, Status::Ok, bad, bad, bad, bad, bad];
        assert_eq!(test(s, &asked), expected);
        assert_eq!(test(s, &[]), []);
        let second = s.open();
        assert_eq!(test(s, &[opened.stateid, second.stateid]), [Status::OldStateid, Status::Ok]);
        let mut long = 4097_u32.to_be_bytes().to_vec();
        long.resize(4 + 16 * 4097, 0);
        s.c.check("too many", Ops::new().raw(55, &long), Status::Badxdr);
    });
}

/// RFC 8881 §8.2.3: another request may make a newer version while the COMPOUND runs.
#[test]
fn the_current_stateid_is_its_newest_version_but_to_close() {
    sessions(|s| {
        let wish = OpenRequest::name(&s.root, "file");
        let open = || Ops::new().at(&s.root).op::<Open>(&s.c.open_args(&wish));
        let write = || open().write(Stateid::CURRENT, 0, b"x", StableHow::Unstable);
        let close = close::Args { seqid: 0, stateid: Stateid::CURRENT };
        for (ops, expected) in [
            (write().read(Stateid::CURRENT, 0, 1), Status::Ok),
            (write().op::<Close>(&close), Status::OldStateid),
        ] {
            let hold = s.harness.store.faults().hold_next(FileOp::Write, When::BeforeEffect);
            let next = s.c.slots.borrow()[0] + 1;
            let pending = s.c.begin(0, next, ops);
            s.harness.simulation.settle();
            let other = s.c.slots.borrow()[1] + 1;
            s.c.run_as(1, other, open()).ok();
            hold.release();
            s.harness.simulation.settle();
            let raw = pending.borrow_mut().take().unwrap();
            assert_eq!(raw[..4], (expected as u32).to_be_bytes());
            s.c.slots.borrow_mut()[0] = next;
        }
    });
}

#[test]
fn only_what_holds_nothing_is_freed() {
    sessions(|s| {
        let opened = s.open();
        let mut locked = s.c.lock(&opened, "l", LockType::Read, (0, 1)).unwrap();
        s.c.check("an open", free(opened.stateid), Status::LocksHeld);
        s.c.check("a held lock", free(locked.stateid), Status::LocksHeld);
        let before = locked.stateid;
        s.c.unlock(&mut locked, (0, u64::MAX)).unwrap();
        s.c.check("old", free(before), Status::OldStateid);
        s.c.check("unlocked", free(locked.stateid), Status::Ok);
        s.c.check("twice", free(locked.stateid), Status::BadStateid);
        assert_eq!(test(s, &[locked.stateid]), [Status::BadStateid]);
        for special in [Stateid::ANONYMOUS, Stateid::READ_BYPASS, Stateid::INVALID] {
            s.c.check("special", free(special), Status::BadStateid);
        }
        let other = s.harness.client("other", s.c.minor);
        other.check("another client's", free(opened.stateid), Status::BadStateid);
        assert!(s.c.lock(&opened, "l", LockType::Read, (0, 1)).is_ok(), "the owner starts anew");
    });
}
