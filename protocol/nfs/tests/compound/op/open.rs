//! OPEN, OPEN_CONFIRM, OPEN_DOWNGRADE and OPENATTR (RFC 8881 §18.16-§18.18,
//! RFC 7530 §16.16-§16.19).

use super::BAD_NAMES;
use zgate_test_harness::nfs::{Ops, Fixture, Harness, OpenRequest, attrs, each, every_minor, mode, name, sessions};
use zgate_nfs_wire::v4::op::Getattr;
use zgate_nfs_wire::v4::op::Open;
use zgate_nfs_wire::v4::op::open::{Claim, Delegated, How, self};
use zgate_nfs_wire::v4::op::OpenConfirm;
use zgate_nfs_wire::v4::op::open_confirm;
use zgate_nfs_wire::v4::op::OpenDowngrade;
use zgate_nfs_wire::v4::op::open_downgrade;
use zgate_nfs_wire::v4::op::Openattr;
use zgate_nfs_wire::v4::{Bitmap, Stateid, Status};
use zgate_xdr::{Decode, Decoder};

fn refused(s: &Fixture, wish: OpenRequest) -> Status {
    s.c.open(&wish).unwrap_err()
}

#[test]
fn a_masked_mode_is_for_setattr_only() {
    // RFC 8881 §6.2.5.
    sessions(|s| {
        let masked = || {
            attrs(&[74], |e| {
                e.u32(0o007);
                e.u32(0o070);
            })
        };
        let exclusive = How::ExclusiveWithAttrs([1; 8], masked());
        for how in [How::Unchecked(masked()), How::Guarded(masked()), exclusive] {
            assert_eq!(refused(s, OpenRequest::name(&s.dir, "x").how(how)), Status::Inval);
        }
        assert_eq!(s.c.lookup(&s.dir, "x"), Err(Status::Noent));
        let reply = s.c.run(Ops::new().at(&s.file).getattr(&[75])).ok();
        let values = reply.get::<Getattr>().values.0;
        let offered = Bitmap::decode(&mut Decoder::new(&values)).unwrap();
        assert!(offered.contains(33) && !offered.contains(74), "{offered:?}");
    });
}

#[test]
fn creation_modes() {
    every_minor(|s| {
        let wish = |text: &str, how| OpenRequest::name(&s.dir, text).how(how);
        let before = s.c.number(&s.dir, 3);
        let made = s.c.open(&wish("u", How::Unchecked(mode(0o640)))).unwrap();
        assert_eq!((made.change.before, made.change.after), (before, s.c.number(&s.dir, 3)));
        assert_eq!(made.attrs_set, Bitmap::of(&[33]));
        assert_eq!(s.c.number(&made.fh, 33), 0o640);
        s.c.write(&made.fh, made.stateid, 0, b"data").unwrap();
        let again = s.c.open(&wish("u", How::Unchecked(mode(0o600)))).unwrap();
        assert_eq!(again.fh, made.fh);
        assert_eq!(s.c.number(&made.fh, 33), 0o640, "an existing file keeps its attributes");
        assert_eq!(s.c.content(&made.fh), b"data");
        let empty = attrs(&[4], |e| e.u64(0));
        s.c.open(&wish("u", How::Unchecked(empty))).unwrap();
        assert_eq!(s.c.content(&made.fh), b"", "but is emptied when that is asked");
        assert_eq!(refused(s, wish("u", How::Guarded(mode(0o600)))), Status::Exist);
        assert!(s.c.open(&wish("g", How::Guarded(mode(0o600)))).is_ok());
        let first = s.c.open(&wish("e", How::Exclusive([1; 8]))).unwrap();
        let retry = s.c.open(&wish("e", How::Exclusive([1; 8]))).unwrap();
        assert_eq!(first.fh, retry.fh);
        assert_eq!(refused(s, wish("e", How::Exclusive([2; 8]))), Status::Exist);
    });
    sessions(|s| {
        let wish = |how| OpenRequest::name(&s.dir, "x").how(how);
        let how = How::ExclusiveWithAttrs([1; 8], mode(0o604));
        let made = s.c.open(&wish(how.clone())).unwrap();
        assert!(made.attrs_set.contains(33));
        assert_eq!(s.c.number(&made.fh, 33), 0o604);
        assert_eq!(s.c.open(&wish(how)).unwrap().fh, made.fh);
        let other = How::ExclusiveWithAttrs([2; 8], mode(0o604));
        assert_eq!(refused(s, wish(other)), Status::Exist);
        // RFC 8881 §18.16.3: what suppattr_exclcreat leaves out.
        for time in [48, 54] {
            let times = attrs(&[time], |e| e.u32(0));
            let with_times = How::ExclusiveWithAttrs([3; 8], times);
            let status = refused(s, OpenRequest::name(&s.dir, "y").how(with_times));
            assert_eq!(status, Status::Inval, "{time}");
        }
        assert_eq!(s.c.lookup(&s.dir, "y"), Err(Status::Noent));
    });
    each([0], |s| {
        let how = How::ExclusiveWithAttrs([1; 8], mode(0o604));
        assert_eq!(refused(s, OpenRequest::name(&s.dir, "x").how(how)), Status::Badxdr);
    });
}

#[test]
fn names_and_kinds() {
    every_minor(|s| {
        let wish = |text: &str| OpenRequest::name(&s.root, text);
        let args = s.c.open_args(&wish("file"));
        s.c.check("no handle", Ops::new().op::<Open>(&args), Status::Nofilehandle);
        assert_eq!(refused(s, wish("nothing")), Status::Noent);
        assert_eq!(refused(s, wish("dir")), Status::Isdir);
        assert_eq!(refused(s, wish("link")), Status::Symlink);
        let special = if s.c.minor == 0 { Status::Symlink } else { Status::WrongType };
        assert_eq!(refused(s, wish("fifo")), special);
        assert_eq!(refused(s, OpenRequest::name(&s.file, "x")), Status::Notdir);
        let through = if s.c.minor == 0 { Status::Notdir } else { Status::Symlink };
        assert_eq!(refused(s, OpenRequest::name(&s.link, "x")), through);
        assert_eq!(refused(s, OpenRequest::name(&s.stale, "x")), Status::Stale);
        for (text, status) in BAD_NAMES {
            let bad = wish("").claim(Claim::Null(name(text)));
            assert_eq!(refused(s, bad.clone()), status);
            assert_eq!(refused(s, bad.how(How::Unchecked(mode(0)))), status);
        }
        for text in ["dir", "link", "fifo"] {
            let status = refused(s, wish(text).how(How::Unchecked(mode(0o600))));
            let expected = match text {
                "dir" => Status::Isdir,
                "link" => Status::Symlink,
                _ => special,
            };
            assert!(status == expected || status == Status::Exist, "{text}: {status:?}");
            assert_eq!(refused(s, wish(text).how(How::Guarded(mode(0)))), Status::Exist);
        }
    });
}

#[test]
fn exports_and_rights() {
    every_minor(|s| {
        let new = How::Unchecked(mode(0o600));
        let pseudo = s.c.run(Ops::new().root().getfh()).ok().get::<zgate_nfs_wire::v4::op::Getfh>();
        assert_eq!(refused(s, OpenRequest::name(&pseudo, "export")), Status::Isdir);
        assert_eq!(refused(s, OpenRequest::name(&pseudo, "x")), Status::Noent);
        assert_eq!(refused(s, OpenRequest::name(&pseudo, "x").how(new.clone())), Status::Rofs);
        let ro = s.harness.root_of("/dir/ro");
        assert_eq!(refused(s, OpenRequest::name(&ro, "file")), Status::Rofs);
        assert_eq!(refused(s, OpenRequest::name(&ro, "x").how(new.clone())), Status::Rofs);
        assert!(s.c.open(&OpenRequest::name(&ro, "file").access(1).owner("ro")).is_ok());
        s.c.as_user(1000, || {
            assert_eq!(refused(s, OpenRequest::name(&s.root, "file")), Status::Access);
            assert_eq!(refused(s, OpenRequest::name(&s.dir, "x").how(new.clone())), Status::Access);
            assert!(s.c.open(&OpenRequest::name(&s.root, "file").access(1).owner("u")).is_ok());
        });
    });
}

/// Clients open a program for reading in order to run it.
#[test]
fn execute_permission_is_enough_to_read_a_program() {
    every_minor(|s| {
        let runner = s.harness.reachable("runner", s.c.minor);
        runner.become_user(1000, 1000);
        let wish = |access| OpenRequest::name(&s.root, "file").access(access);
        let set = |bits| s.c.setattr(&s.file, Stateid::ANONYMOUS, mode(bits)).unwrap();
        set(0o711);
        let opened = runner.open(&wish(1)).unwrap();
        assert_eq!(opened.delegated, Delegated::None, "it may not read by other opens");
        assert_eq!(runner.read(&s.file, opened.stateid, 0, 3), Ok((false, "con".into())));
        for access in [2, 3] {
            assert_eq!(runner.open(&wish(access)).unwrap_err(), Status::Access, "{access}");
        }
        let again = runner.open(&wish(1)).unwrap();
        assert_eq!(again.stateid.other, opened.stateid.other);
        assert_eq!(runner.read(&s.file, again.stateid, 0, 3), Ok((false, "con".into())));
        set(0o700);
        assert_eq!(runner.open(&wish(1).owner("late")).unwrap_err(), Status::Access);
    });
}

#[test]
fn share_bits_and_reservations() {
    every_minor(|s| {
        let wish = |access, deny| OpenRequest::name(&s.root, "file").access(access).deny(deny);
        for (access, deny) in [(0, 0), (4, 0), (1, 4), (0x8000_0001, 0)] {
            assert_eq!(refused(s, wish(access, deny)), Status::Inval, "{access:x} {deny}");
        }
        for undefined in [0x601, 0x701, 0xff01, 0x10_0601] {
            assert_eq!(refused(s, wish(undefined, 0)), Status::Inval, "{undefined:x}");
        }
        let first = s.c.open(&wish(1, 2)).unwrap();
        assert_eq!(refused(s, wish(2, 0).owner("b")), Status::ShareDenied);
        assert_eq!(refused(s, wish(1, 1).owner("b")), Status::ShareDenied);
        let second = s.c.open(&wish(1, 2).owner("b")).unwrap();
        s.c.close(&first).unwrap();
        assert_eq!(refused(s, wish(3, 0)), Status::ShareDenied);
        s.c.close(&second).unwrap();
        assert!(s.c.open(&wish(3, 3)).is_ok());
        let unchecked = How::Unchecked(attrs(&[4], |e| e.u64(0)));
        assert_eq!(refused(s, wish(2, 0).owner("b").how(unchecked)), Status::ShareDenied);
        assert_eq!(s.c.number(&s.file, 4), 7, "refused before it was emptied");
    });
}

#[test]
fn emptying_a_file_is_writing_it() {
    every_minor(|s| {
        let other = s.harness.client("other", s.c.minor);
        let wish = |access, deny| OpenRequest::name(&s.root, "file").access(access).deny(deny);
        let unchecked = || How::Unchecked(attrs(&[4], |e| e.u64(0)));
        let denier = other.open(&wish(1, 2)).unwrap();
        assert_eq!(refused(s, wish(1, 0).how(unchecked())), Status::ShareDenied);
        assert_eq!(s.c.number(&s.file, 4), 7);
        other.close(&denier).unwrap();
        let opened = s.c.open(&wish(1, 0).how(unchecked())).unwrap();
        assert_eq!(s.c.number(&s.file, 4), 0);
        // The open itself is for reading: nobody writes.
        assert!(other.open(&wish(1, 2)).is_ok());
        assert_eq!(s.c.write(&s.file, opened.stateid, 0, b"x"), Err(Status::Openmode));
    });
}

#[test]
fn claims() {
    sessions(|s| {
        let by_handle = OpenRequest::name(&s.root, "").claim(Claim::Fh);
        let at = |fh: &zgate_nfs_wire::v4::Fh| OpenRequest { fh: fh.clone(), ..by_handle.clone() };
        let opened = s.c.open(&at(&s.file)).unwrap();
        assert_eq!(opened.fh, s.file);
        assert_eq!(refused(s, at(&s.dir)), Status::Isdir);
        assert_eq!(refused(s, at(&s.link)), Status::Symlink);
        assert_eq!(refused(s, at(&s.fifo)), Status::WrongType);
        assert_eq!(refused(s, at(&s.stale)), Status::Stale);
        let create = at(&s.file).how(How::Unchecked(mode(0)));
        assert_eq!(refused(s, create), Status::Inval, "creation needs a name");
        let previous = at(&s.file).claim(Claim::DelegatePreviousFh);
        assert_eq!(refused(s, previous), Status::Notsupp);
        for stateid in [opened.stateid, Stateid::ANONYMOUS] {
            let wish = at(&s.file).claim(Claim::DelegateCurrentFh(stateid));
            assert_eq!(refused(s, wish), Status::BadStateid, "no delegation");
        }
    });
    // RFC 7531 has three claims by name, and that of a reclaim.
    each([0], |s| {
        let held = Claim::DelegateCurrentFh(Stateid::ANONYMOUS);
        for claim in [Claim::Fh, held, Claim::DelegatePreviousFh] {
            let wish = OpenRequest::name(&s.root, "").claim(claim);
            assert_eq!(refused(s, OpenRequest { fh: s.file.clone(), ..wish }), Status::Badxdr);
        }
    });
    every_minor(|s| {
        let wish = |claim| OpenRequest::name(&s.root, "").claim(claim);
        let previous = wish(Claim::DelegatePrevious(name("file")));
        assert_eq!(refused(s, previous), Status::Notsupp);
        let reclaim = OpenRequest { fh: s.file.clone(), ..wish(Claim::Previous(0)) };
        assert_eq!(refused(s, reclaim), Status::NoGrace);
        let current = wish(Claim::DelegateCurrent(Stateid::ANONYMOUS, name("file")));
        assert_eq!(refused(s, current), Status::BadStateid);
        s.c.check("no such claim", Ops::new().at(&s.root).raw(18, &[9; 60]), Status::Badxdr);
    });
}

/// RFC 7531 has four of them.
#[test]
fn claims_of_later_versions_are_none_of_minor_zero() {
    each([0], |s| {
        let opened = s.open();
        let under = Claim::DelegateCurrentFh(opened.stateid);
        for claim in [Claim::Fh, under, Claim::DelegatePreviousFh] {
            let wish = OpenRequest::name(&s.root, "").claim(claim);
            let wish = OpenRequest { fh: s.file.clone(), ..wish };
            assert_eq!(refused(s, wish), Status::Badxdr);
        }
        s.c.close(&opened).unwrap();
    });
}

#[test]
fn flags_of_the_minor_versions() {
    every_minor(|s| {
        let args = s.c.open_args(&OpenRequest::name(&s.root, "file").owner("fresh"));
        let reply = s.c.run(Ops::new().at(&s.root).op::<Open>(&args).getfh()).ok();
        let flags = reply.get::<Open>().flags;
        assert_ne!(flags & open::RESULT_LOCKTYPE_POSIX, 0);
        assert_eq!(flags & open::RESULT_CONFIRM != 0, s.c.minor == 0);
        assert_eq!(flags & open::RESULT_MAY_NOTIFY_LOCK != 0, s.c.minor > 0);
    });
}

fn confirm(s: &Fixture, stateid: Stateid, seqid: u32) -> Ops {
    Ops::new().at(&s.file).op::<OpenConfirm>(&open_confirm::Args { stateid, seqid })
}

#[test]
fn minor_zero_confirms_new_owners() {
    each([0], |s| {
        let args = s.c.open_args(&OpenRequest::name(&s.root, "file").owner("new"));
        let open = |args: &open::Args| Ops::new().at(&s.root).op::<Open>(args);
        let first = s.c.run(open(&args)).ok();
        assert_eq!(s.c.run(open(&args)).ok().raw, first.raw, "a repeated OPEN");
        let stateid = first.get::<Open>().stateid;
        s.c.check("a number left out", confirm(s, stateid, 7), Status::BadSeqid);
        s.c.check("anonymous", confirm(s, Stateid::ANONYMOUS, 1), Status::BadStateid);
        let bare = Ops::new().op::<OpenConfirm>(&open_confirm::Args { stateid, seqid: 1 });
        s.c.check("no handle", bare, Status::Nofilehandle);
        let confirmed = s.c.run(confirm(s, stateid, 1)).ok();
        assert_eq!(confirmed.get::<OpenConfirm>().stateid.seqid, stateid.seqid + 1);
        assert_eq!(s.c.run(confirm(s, stateid, 1)).ok().raw, confirmed.raw, "repeated");
        let newest = confirmed.get::<OpenConfirm>().stateid;
        s.c.check("confirmed already", confirm(s, newest, 2), Status::BadStateid);
        let out_of_order = open::Args { seqid: 9, ..args.clone() };
        s.c.check("a number left out", open(&out_of_order), Status::BadSeqid);
        let mut unknown = args;
        unknown.owner.clientid.0 ^= 0xff00;
        s.c.check("no such client", open(&unknown), Status::StaleClientid);
    });
}

/// RFC 7530 §9.1.11, §16.18.5.
#[test]
fn what_is_to_be_confirmed_brings_no_delegation() {
    let harness = Harness::new();
    let c = harness.reachable("c", 0);
    let file = harness.client("maker", 0).file(&c.export(), "f", b"x");
    let wish = OpenRequest::name(&c.export(), "f");
    let open = || {
        let ops = Ops::new().at(&wish.fh).op::<Open>(&c.open_args(&wish));
        let reply = c.run(ops).ok();
        c.advance("owner", Status::Ok);
        reply.get::<Open>()
    };
    let first = open();
    assert_ne!(first.flags & open::RESULT_CONFIRM, 0);
    assert_eq!(first.delegated, Delegated::None);
    let args = open_confirm::Args { stateid: first.stateid, seqid: c.seqid("owner") };
    c.check("confirmed", Ops::new().at(&file).op::<OpenConfirm>(&args), Status::Ok);
    c.advance("owner", Status::Ok);
    assert!(matches!(open().delegated, Delegated::Write { recall: false, .. }));
}

#[test]
fn an_unconfirmed_owner_starts_over() {
    each([0], |s| {
        let args = s.c.open_args(&OpenRequest::name(&s.root, "file").owner("new"));
        let open = |seqid| {
            let args = open::Args { seqid, ..args.clone() };
            s.c.run(Ops::new().at(&s.root).op::<Open>(&args)).ok().get::<Open>()
        };
        let first = open(5);
        let second = open(77);
        assert_ne!(first.stateid.other, second.stateid.other);
        assert_ne!(second.flags & open::RESULT_CONFIRM, 0);
        s.c.check("forgotten", confirm(s, first.stateid, 6), Status::BadStateid);
        s.c.check("the new one", confirm(s, second.stateid, 78), Status::Ok);
    });
}

#[test]
fn downgrades() {
    every_minor(|s| {
        let wish = |access, deny| OpenRequest::name(&s.root, "file").access(access).deny(deny);
        let mut opened = s.c.open(&wish(3, 0)).unwrap();
        assert_eq!(s.c.downgrade(&mut opened, 1, 0), Err(Status::Inval), "never opened so");
        s.c.open(&wish(1, 0)).unwrap();
        let before = s.c.open(&wish(2, 0)).unwrap();
        opened.stateid = before.stateid;
        assert_eq!(s.c.downgrade(&mut opened, 0, 0), Err(Status::Inval));
        assert_eq!(s.c.downgrade(&mut opened, 3, 1), Err(Status::Inval));
        assert_eq!(s.c.downgrade(&mut opened, 0x8000_0001, 0), Err(Status::Inval), "no such bit");
        s.c.downgrade(&mut opened, 1, 0).unwrap();
        assert_eq!(opened.stateid.seqid, before.stateid.seqid + 1);
        assert_eq!(s.c.write(&s.file, opened.stateid, 0, b"x"), Err(Status::Openmode));
        assert!(s.c.read(&s.file, opened.stateid, 0, 1).is_ok());
        assert!(s.c.open(&wish(1, 2).owner("b")).is_ok(), "nobody writes any more");
        assert_eq!(s.c.downgrade(&mut opened, 3, 0), Err(Status::Inval), "no way back");
        let args = |stateid| {
            let seqid = s.c.seqid("owner");
            open_downgrade::Args { stateid, seqid, access: 1, deny: 0 }
        };
        let at = || Ops::new().at(&s.file);
        s.c.check("no handle", Ops::new().op::<OpenDowngrade>(&args(opened.stateid)), Status::Nofilehandle);
        s.c.check("anonymous", at().op::<OpenDowngrade>(&args(Stateid::ANONYMOUS)), Status::BadStateid);
        let old = at().op::<OpenDowngrade>(&args(before.stateid));
        s.c.check("old", old, Status::OldStateid);
        s.c.advance("owner", Status::OldStateid);
        let other = Ops::new().at(&s.inner).op::<OpenDowngrade>(&args(opened.stateid));
        s.c.check("another file's", other, Status::BadStateid);
    });
}

/// RFC 8881 §18.18.3: what stays is the union of some of the OPENs, access and denial alike.
#[test]
fn a_denial_ends_with_the_open_that_asked_for_it() {
    every_minor(|s| {
        let wish = |access, deny| OpenRequest::name(&s.root, "file").access(access).deny(deny);
        let mut opened = s.c.open(&wish(1, 2)).unwrap();
        assert_eq!(s.c.downgrade(&mut opened, 1, 0), Err(Status::Inval), "never opened so");
        opened.stateid = s.c.open(&wish(1, 0)).unwrap().stateid;
        s.c.downgrade(&mut opened, 1, 2).unwrap();
        assert_eq!(refused(s, wish(2, 0).owner("b")), Status::ShareDenied);
        s.c.downgrade(&mut opened, 1, 0).unwrap();
        assert_eq!(s.c.downgrade(&mut opened, 1, 2), Err(Status::Inval), "no way back");
        assert!(s.c.open(&wish(2, 0).owner("b")).is_ok(), "nothing is denied any more");
    });
}

#[test]
fn named_attributes_are_not_offered() {
    every_minor(|s| {
        for create in [false, true] {
            s.c.check("none", Ops::new().at(&s.file).op::<Openattr>(&create), Status::Notsupp);
        }
        s.c.check("no handle", Ops::new().op::<Openattr>(&false), Status::Nofilehandle);
    });
}
