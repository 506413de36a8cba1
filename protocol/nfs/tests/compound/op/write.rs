//! WRITE, ALLOCATE, DEALLOCATE and WRITE_SAME (RFC 8881 §18.32,
//! RFC 7862 §15.1, §15.4, §15.12).

use zgate_test_harness::nfs::{Ops, Fixture, OpenRequest, each, every_minor};
use zgate_memory::FileOp;
use zgate_nfs_wire::v4::op::Allocate;
use zgate_nfs_wire::v4::op::allocate;
use zgate_nfs_wire::v4::op::Deallocate;
use zgate_nfs_wire::v4::op::deallocate;
use zgate_nfs_wire::v4::op::Write;
use zgate_nfs_wire::v4::op::WriteSame;
use zgate_nfs_wire::v4::op::write_same;
use zgate_nfs_wire::v4::{LockType, StableHow, Stateid, Status};
use zgate_xdr::Opaque;

#[test]
fn every_kind_of_stateid_writes_as_stably_as_asked() {
    every_minor(|s| {
        let opened = s.open();
        let locked = s.c.lock(&opened, "l", LockType::Write, (0, 1)).unwrap();
        for stateid in [Stateid::ANONYMOUS, opened.stateid, locked.stateid] {
            for stable in [StableHow::Unstable, StableHow::DataSync, StableHow::FileSync] {
                let ops = Ops::new().at(&s.file).write(stateid, 3, b"XY", stable);
                let res = s.c.run(ops).ok().get::<Write>();
                assert_eq!(res.count, 2);
                assert!(res.committed as u32 >= stable as u32, "at least as stable");
            }
        }
        assert_eq!(s.c.content(&s.file), b"conXYnt");
        let before = s.c.number(&s.file, 3);
        assert_eq!(s.c.write(&s.file, opened.stateid, 100, b""), Ok(0));
        assert_eq!((s.c.number(&s.file, 3), s.c.number(&s.file, 4)), (before, 7));
        assert_eq!(s.c.write(&s.file, opened.stateid, 9, b"z"), Ok(1));
        assert_eq!(s.c.content(&s.file), b"conXYnt\0\0z");
        assert!(s.c.number(&s.file, 3) > before);
    });
}

/// A ZFS record that a client sends as a whole must reach the store in one
/// piece.
#[test]
fn a_write_reaches_the_store_in_one_piece() {
    every_minor(|s| {
        let opened = s.open();
        let data: Vec<u8> = (0..1u32 << 20).map(|n| (n / 3) as u8).collect();
        let before = s.harness.store.faults().calls(FileOp::Write);
        let ops = Ops::new().at(&s.file).write(opened.stateid, 0, &data, StableHow::Unstable);
        assert_eq!(s.c.run(ops).ok().get::<Write>().count, 1 << 20);
        assert_eq!(s.harness.store.faults().calls(FileOp::Write) - before, 1);
        assert!(s.c.content(&s.file) == data);
    });
}

/// Refusals common to WRITE and similar operations.
fn check_refusals(s: &Fixture, what: &str, op: &dyn Fn(Ops, Stateid, u64) -> Ops) {
    s.c.check(what, op(Ops::new(), Stateid::ANONYMOUS, 0), Status::Nofilehandle);
    s.c.check(what, op(Ops::new().at(&s.stale), Stateid::ANONYMOUS, 0), Status::Stale);
    let at = || Ops::new().at(&s.file);
    s.c.check(what, op(at(), Stateid::ANONYMOUS, u64::MAX), Status::Inval);
    s.c.check(what, op(at(), Stateid::ANONYMOUS, i64::MAX as u64), Status::Fbig);
    s.c.check(what, op(at(), Stateid::INVALID, 0), Status::BadStateid);
    let reader = s.c.open(&OpenRequest::name(&s.root, "file").access(1)).unwrap();
    s.c.check(what, op(at(), reader.stateid, 0), Status::Openmode);
    let inner = || Ops::new().at(&s.inner);
    s.c.check(what, op(inner(), reader.stateid, 0), Status::BadStateid);
    let wish = OpenRequest::name(&s.dir, "inner").owner("denier").deny(2);
    let denier = s.c.open(&wish).unwrap();
    s.c.check(what, op(inner(), Stateid::ANONYMOUS, 0), Status::Locked);
    s.c.check(what, op(inner(), denier.stateid, 0), Status::Ok);
    s.c.close(&denier).unwrap();
    s.c.as_user(1000, || {
        s.c.check(what, op(inner(), Stateid::ANONYMOUS, 0), Status::Access);
    });
    let ro = s.c.lookup(&s.harness.root_of("/dir/ro"), "file").unwrap();
    s.c.check(what, op(Ops::new().at(&ro), Stateid::ANONYMOUS, 0), Status::Rofs);
}

#[test]
fn refusals() {
    every_minor(|s| {
        check_refusals(s, "WRITE", &|ops, stateid, offset| {
            ops.write(stateid, offset, b"xyz", StableHow::Unstable)
        });
        for (fh, expected) in s.no_files() {
            let write = Ops::new().at(fh).write(Stateid::ANONYMOUS, 0, b"x", StableHow::Unstable);
            s.c.check("no file", write, expected[usize::from(s.c.minor > 0)]);
        }
        let write = Ops::new().root().write(Stateid::ANONYMOUS, 0, b"x", StableHow::Unstable);
        s.c.check("a pseudo directory", write, Status::Isdir);
    });
    each([2], |s| {
        check_refusals(s, "ALLOCATE", &|ops, stateid, offset| {
            ops.op::<Allocate>(&allocate::Args { stateid, offset, length: 10 })
        });
    });
    each([2], |s| {
        check_refusals(s, "DEALLOCATE", &|ops, stateid, offset| {
            ops.op::<Deallocate>(&deallocate::Args { stateid, offset, length: 10 })
        });
    });
    // RFC 7862 §15.1.3, §15.4.3: a directory and a link are no exceptions.
    each([2], |s| {
        let (stateid, offset, length) = (Stateid::ANONYMOUS, 0, 10);
        for (fh, _) in s.no_files() {
            let ops = Ops::new().at(fh).op::<Allocate>(&allocate::Args { stateid, offset, length });
            s.c.check("ALLOCATE", ops, Status::WrongType);
            let args = deallocate::Args { stateid, offset, length };
            let ops = Ops::new().at(fh).op::<Deallocate>(&args);
            s.c.check("DEALLOCATE", ops, Status::WrongType);
        }
    });
}

#[test]
fn space_is_made_and_given_up() {
    each([2], |s| {
        let opened = s.open();
        let at = || Ops::new().at(&s.file);
        let stateid = opened.stateid;
        let make = |offset, length| at().op::<Allocate>(&allocate::Args { stateid, offset, length });
        let punch =
            |offset, length| at().op::<Deallocate>(&deallocate::Args { stateid, offset, length });
        s.c.check("beyond the end", make(0, 100), Status::Ok);
        assert_eq!(s.c.number(&s.file, 4), 100);
        assert!(s.c.content(&s.file).starts_with(b"content\0"));
        s.c.check("nothing", make(5, 0), Status::Ok);
        s.c.check("a hole", punch(2, 3), Status::Ok);
        assert!(s.c.content(&s.file).starts_with(b"co\0\0\0nt"));
        s.c.check("beyond the end", punch(50, 1000), Status::Ok);
        assert_eq!(s.c.number(&s.file, 4), 100, "DEALLOCATE leaves the size");
    });
}

#[test]
fn write_same_is_not_offered() {
    each([2], |s| {
        let args = write_same::Args {
            stateid: Stateid::ANONYMOUS,
            stable: StableHow::Unstable,
            offset: 0,
            block_bytes: 8,
            block_count: 1,
            number_offset: 0,
            block_number: 0,
            pattern_offset: 0,
            pattern: Opaque(b"abc".to_vec()),
        };
        s.c.check("no handle", Ops::new().op::<WriteSame>(&args), Status::Nofilehandle);
        s.c.check("optional", Ops::new().at(&s.file).op::<WriteSame>(&args), Status::Notsupp);
    });
}
