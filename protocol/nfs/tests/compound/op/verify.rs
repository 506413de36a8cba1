//! VERIFY and NVERIFY (RFC 8881 §18.31, §18.15).

use zgate_test_harness::nfs::{Ops, attrs, every_minor};
use zgate_nfs_wire::v4::op::Getattr;
use zgate_nfs_wire::v4::op::Nverify;
use zgate_nfs_wire::v4::op::Verify;
use zgate_nfs_wire::v4::{Fattr, Status};

#[test]
fn equal_and_different() {
    every_minor(|s| {
        let same = attrs(&[1, 4], |e| {
            e.u32(1);
            e.u64(7);
        });
        let other = attrs(&[4], |e| e.u64(8));
        let at = || Ops::new().at(&s.file);
        s.c.check_last("the same", at().op::<Verify>(&same).getfh(), Status::Ok);
        s.c.check("the same", at().op::<Nverify>(&same), Status::Same);
        s.c.check("other", at().op::<Verify>(&other), Status::NotSame);
        s.c.check_last("other", at().op::<Nverify>(&other).getfh(), Status::Ok);
    });
}

#[test]
fn errors() {
    every_minor(|s| {
        let both = |what: &str, ops: &dyn Fn() -> Ops, fattr: &Fattr, status| {
            s.c.check(what, ops().op::<Verify>(fattr), status);
            s.c.check(what, ops().op::<Nverify>(fattr), status);
        };
        let at = || Ops::new().at(&s.file);
        let size = attrs(&[4], |e| e.u64(7));
        both("no handle", &Ops::new, &size, Status::Nofilehandle);
        both("stale", &|| Ops::new().at(&s.stale), &size, Status::Stale);
        both("can only be set", &at, &attrs(&[48], |e| e.u32(0)), Status::Inval);
        both("rdattr_error", &at, &attrs(&[11], |e| e.u32(0)), Status::Inval);
        both("unknown", &at, &attrs(&[200], |e| e.u32(0)), Status::Attrnotsupp);
    });
}

/// RFC 8881 §6.2.4: it is an error, not only another mode.
#[test]
fn a_mode_has_twelve_bits() {
    every_minor(|s| {
        let at = || Ops::new().at(&s.file);
        let others = vec![0, 1, 3, 4, 5, 8, 10, 19, 20, 27, 30];
        let values = s.c.run(at().getattr(&others)).ok().get::<Getattr>().values.0;
        for (mut bits, before) in [(Vec::new(), Vec::new()), (others, values)] {
            bits.push(33);
            let with = |mode: u32| {
                attrs(&bits, |e| {
                    e.raw(&before);
                    e.u32(mode);
                })
            };
            for mode in [0o10_000, 0o100_644, u32::MAX] {
                s.c.check("no mode", at().op::<Verify>(&with(mode)), Status::Inval);
                s.c.check("no mode", at().op::<Nverify>(&with(mode)), Status::Inval);
            }
            s.c.check("another mode", at().op::<Verify>(&with(0o7777)), Status::NotSame);
            s.c.check("another mode", at().op::<Nverify>(&with(0o7777)), Status::Ok);
        }
    });
}
