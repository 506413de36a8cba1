//! CLOSE (RFC 8881 §18.2, RFC 7530 §16.2).

use zgate_test_harness::nfs::{Ops, Fixture, OpenRequest, each, every_minor};
use zgate_nfs_wire::v4::Fh;
use zgate_nfs_wire::v4::op::Close;
use zgate_nfs_wire::v4::op::close;
use zgate_nfs_wire::v4::{LockType, Stateid, Status};

fn close(s: &Fixture, fh: &Fh, stateid: Stateid) -> Ops {
    let seqid = s.c.seqid("owner");
    Ops::new().at(fh).op::<Close>(&close::Args { seqid, stateid })
}

#[test]
fn closing_ends_the_stateid_and_its_locks() {
    every_minor(|s| {
        let opened = s.open();
        s.c.lock(&opened, "locker", LockType::Write, (0, 10)).unwrap();
        let after = s.c.close(&opened).unwrap();
        if s.c.minor > 0 {
            assert_eq!(after, Stateid::INVALID, "RFC 8881 §18.2.4");
        }
        assert_eq!(s.c.lockt(&s.file, "other", LockType::Write, (0, 10)), Ok(()));
        assert_eq!(s.c.read(&s.file, opened.stateid, 0, 1).unwrap_err(), Status::BadStateid);
        s.c.check("closed twice", close(s, &s.file, opened.stateid), Status::BadStateid);
    });
}

#[test]
fn stateids_that_are_none() {
    every_minor(|s| {
        let opened = s.open();
        let bare = Ops::new().op::<Close>(&close::Args { seqid: 0, stateid: opened.stateid });
        s.c.check("no handle", bare, Status::Nofilehandle);
        for (what, stateid) in [
            ("anonymous", Stateid::ANONYMOUS),
            ("bypass", Stateid::READ_BYPASS),
            ("invalid", Stateid::INVALID),
        ] {
            s.c.check(what, close(s, &s.file, stateid), Status::BadStateid);
        }
        let future = Stateid { seqid: opened.stateid.seqid + 5, ..opened.stateid };
        s.c.check("a version to come", close(s, &s.file, future), Status::BadStateid);
        let mut other = opened.stateid.other;
        other[11] ^= 0x55;
        let unknown = Stateid { other, ..opened.stateid };
        s.c.check("unknown", close(s, &s.file, unknown), Status::BadStateid);
        s.c.check("another file's", close(s, &s.inner, opened.stateid), Status::BadStateid);
        s.c.check("a pseudo directory", close_at_root(s, opened.stateid), Status::BadStateid);
        other[0] ^= 0x55;
        let expected = if s.c.minor == 0 { Status::StaleStateid } else { Status::BadStateid };
        let stale = Stateid { other, ..opened.stateid };
        s.c.check("of another start", close(s, &s.file, stale), expected);
        let locked = s.c.lock(&opened, "locker", LockType::Read, (0, 1)).unwrap();
        let seqid = s.c.seqid("locker");
        let args = close::Args { seqid, stateid: locked.stateid };
        s.c.check("a lock's", Ops::new().at(&s.file).op::<Close>(&args), Status::BadStateid);
        assert!(s.c.close(&opened).is_ok());
    });
}

fn close_at_root(s: &Fixture, stateid: Stateid) -> Ops {
    let seqid = s.c.seqid("owner");
    Ops::new().root().op::<Close>(&close::Args { seqid, stateid })
}

#[test]
fn an_old_version_is_old() {
    every_minor(|s| {
        let first = s.c.open(&OpenRequest::name(&s.root, "file").access(1)).unwrap();
        let second = s.open();
        assert_eq!(second.stateid.other, first.stateid.other);
        s.c.check("old", close(s, &s.file, first.stateid), Status::OldStateid);
        if s.c.minor == 0 {
            s.c.advance("owner", Status::OldStateid);
        } else {
            // Version 0 means the newest one (RFC 8881 §8.2.2).
            let newest = Stateid { seqid: 0, ..second.stateid };
            s.c.check("newest", close(s, &s.file, newest), Status::Ok);
        }
    });
}

#[test]
fn the_current_stateid_is_closed() {
    each(1..=2, |s| {
        let wish = OpenRequest::name(&s.root, "file");
        let ops = Ops::new()
            .at(&s.root)
            .op::<zgate_nfs_wire::v4::op::Open>(&s.c.open_args(&wish))
            .op::<Close>(&close::Args { seqid: 0, stateid: Stateid::CURRENT });
        s.c.check_last("current stateid", ops, Status::Ok);
        let none = Ops::new()
            .at(&s.file)
            .op::<Close>(&close::Args { seqid: 0, stateid: Stateid::CURRENT });
        s.c.check("no current stateid", none, Status::BadStateid);
    });
}

#[test]
fn minor_zero_numbers_its_closes() {
    each([0], |s| {
        let opened = s.open();
        let seqid = s.c.seqid("owner");
        let with = |seqid| {
            Ops::new().at(&s.file).op::<Close>(&close::Args { seqid, stateid: opened.stateid })
        };
        s.c.check("a number ahead", with(seqid + 1), Status::BadSeqid);
        let first = s.c.run(with(seqid)).ok();
        let again = s.c.run(with(seqid)).ok();
        assert_eq!(first.raw, again.raw, "a repeated CLOSE gets the same answer");
    });
}

#[test]
fn another_operation_under_the_last_number_is_no_retry() {
    each([0], |s| {
        let opened = s.open();
        let seqid = s.c.seqid("owner");
        let ops = || Ops::new().at(&s.file).op::<Close>(&close::Args { seqid, stateid: opened.stateid });
        assert_eq!(s.c.bare(ops()).status, Status::Ok);
        let args = s.c.open_args(&OpenRequest::name(&s.root, "file"));
        let open = Ops::new().at(&s.root).op::<zgate_nfs_wire::v4::op::Open>(&args);
        assert_eq!(s.c.bare(open).status, Status::BadSeqid, "it could not read CLOSE's answer");
        assert_eq!(s.c.bare(ops()).status, Status::Ok, "a retry");
    });
}
