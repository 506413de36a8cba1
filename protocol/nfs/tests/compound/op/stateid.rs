//! FREE_STATEID and TEST_STATEID (RFC 8881 §18.38, §18.48).

use zgate_test_harness::nfs::{Ops, Fixture, sessions};
use zgate_nfs_wire::v4::op::FreeStateid;
use zgate_nfs_wire::v4::op::free_stateid;
use zgate_nfs_wire::v4::op::TestStateid;
use zgate_nfs_wire::v4::op::test_stateid;
use zgate_nfs_wire::v4::{LockType, Stateid, Status};

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
