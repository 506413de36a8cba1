//! ACCESS (RFC 8881 §18.1, RFC 8276 §8.4.1).

use zgate_test_harness::nfs::{Ops, Fixture, every_minor};
use zgate_nfs_wire::v4::Fh;
use zgate_nfs_wire::v4::op::Access;
use zgate_nfs_wire::v4::op::access;
use zgate_nfs_wire::v4::Status;

fn ask(s: &Fixture, fh: &Fh, bits: u32) -> (u32, u32) {
    let ops = Ops::new().at(fh).op::<Access>(&access::Args { access: bits });
    let res = s.c.run(ops).ok().get::<Access>();
    (res.supported, res.access)
}

#[test]
fn rights_depend_on_kind_caller_and_export() {
    every_minor(|s| {
        let (file, dir) = (0x01 | 0x04 | 0x08 | 0x20, 0x1f);
        assert_eq!(ask(s, &s.file, 0x3f).0, file);
        assert_eq!(ask(s, &s.dir, 0x3f), (dir, dir));
        // Root has all rights except execution of a file without any execute
        // bit.
        assert_eq!(ask(s, &s.file, 0x3f).1, file & !0x20);
        s.c.as_user(1000, || {
            assert_eq!(ask(s, &s.file, 0x3f).1, 0x01);
            assert_eq!(ask(s, &s.dir, 0x3f).1, 0x03);
            // Only the requested rights are answered.
            assert_eq!(ask(s, &s.file, 0x04), (0x04, 0));
        });
        let ro = s.c.lookup(&s.harness.root_of("/dir/ro"), "file").unwrap();
        assert_eq!(ask(s, &ro, 0x0d), (0x0d, 0x01));
        let pseudo = s.c.run(Ops::new().root().op::<Access>(&access::Args { access: 0x1f })).ok();
        assert_eq!(pseudo.get::<Access>(), access::Res { supported: 0x1f, access: 0x03 });
    });
}

#[test]
fn errors() {
    every_minor(|s| {
        let all = |ops: Ops, bits| ops.op::<Access>(&access::Args { access: bits });
        s.c.check("no handle", all(Ops::new(), 1), Status::Nofilehandle);
        s.c.check("stale", all(Ops::new().at(&s.stale), 1), Status::Stale);
        s.c.check("unknown bit", all(Ops::new().at(&s.file), 0x200), Status::Inval);
        let xattrs = if s.c.minor == 2 { Status::Ok } else { Status::Inval };
        s.c.check("xattr bits are of minor version 2", all(Ops::new().at(&s.file), 0x1c0), xattrs);
    });
}
