//! VERIFY and NVERIFY (RFC 8881 §18.31, §18.15).

use zgate_test_harness::nfs::{Ops, attrs, every_minor};
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
