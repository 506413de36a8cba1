//! SETATTR (RFC 8881 §18.30) and ACLs (§6).

use zgate_memory::FileOp;
use zgate_store::StoreError;
use zgate_test_harness::nfs::{Ops, Fixture, OpenRequest, attrs, each, every_minor, mode};
use zgate_nfs_wire::v4::Fh;
use zgate_nfs::v4::attrs::acl::Ace;
use zgate_nfs_wire::v4::op::Getattr;
use zgate_nfs_wire::v4::op::Setattr;
use zgate_nfs_wire::v4::op::setattr;
use zgate_nfs_wire::v4::{Bitmap, Fattr, Stateid, Status};
use zgate_xdr::{Decoder, Encode};

const ANY: Stateid = Stateid::ANONYMOUS;

fn set(ops: Ops, stateid: Stateid, attrs: Fattr) -> Ops {
    ops.op::<Setattr>(&setattr::Args { stateid, attrs })
}

fn size(bytes: u64) -> Fattr {
    attrs(&[4], |e| e.u64(bytes))
}

#[test]
fn what_may_be_set_is_set() {
    every_minor(|s| {
        let before = s.c.number(&s.file, 3);
        let many = attrs(&[33, 36, 37, 48, 54], |e| {
            e.u32(0o4751);
            e.opaque(b"1000");
            e.opaque(b"1001@somewhere");
            e.u32(0);
            e.u32(1);
            e.u64(-5_i64 as u64);
            e.u32(999_999_999);
        });
        let done = s.c.setattr(&s.file, ANY, many).unwrap();
        assert_eq!(done, Bitmap::of(&[33, 36, 37, 48, 54]));
        let now = s.c.run(Ops::new().at(&s.file).getattr(&[36, 37, 53])).ok().get::<Getattr>();
        let mut e = zgate_xdr::Encoder::new();
        e.opaque(b"1000");
        e.opaque(b"1001");
        e.u64(-5_i64 as u64);
        e.u32(999_999_999);
        assert_eq!(now.values.0, e.finish().flatten().unwrap());
        assert!(s.c.number(&s.file, 3) > before);
        s.c.truncate(&s.file, ANY, 3).unwrap();
        s.c.truncate(&s.file, ANY, 5).unwrap();
        assert_eq!(s.c.content(&s.file), b"con\0\0");
        s.c.check("nothing", set(Ops::new().at(&s.file), ANY, Fattr::default()), Status::Ok);
    });
    each([2], |s| {
        s.c.setattr(&s.file, ANY, mode(0o640)).unwrap();
        let masked = attrs(&[74], |e| {
            e.u32(0o007);
            e.u32(0o070);
        });
        s.c.setattr(&s.file, ANY, masked).unwrap();
        assert_eq!(s.c.number(&s.file, 33), 0o600);
        let umask = attrs(&[81], |e| {
            e.u32(0o666);
            e.u32(0o022);
        });
        assert_eq!(s.c.setattr(&s.file, ANY, umask), Err(Status::Inval), "RFC 8275 §5");
        assert_eq!(s.c.number(&s.file, 33), 0o600);
        let both = attrs(&[33, 74], |e| (0..3).for_each(|_| e.u32(0)));
        s.c.check("mode twice", set(Ops::new().at(&s.file), ANY, both), Status::Inval);
    });
}

#[test]
fn values_and_attributes() {
    every_minor(|s| {
        let at = |fattr| set(Ops::new().at(&s.file), ANY, fattr);
        s.c.check("read-only", at(attrs(&[1], |e| e.u32(1))), Status::Inval);
        s.c.check("read-only", at(attrs(&[3, 33], |e| e.u64(1))), Status::Inval);
        s.c.check("unknown", at(attrs(&[14], |e| e.u32(1))), Status::Attrnotsupp);
        s.c.check("no such mode", at(mode(0o10_000)), Status::Inval);
        s.c.check("no such owner", at(attrs(&[36], |e| e.opaque(b"joe"))), Status::Badowner);
        s.c.check("cut short", at(attrs(&[4], |e| e.u32(1))), Status::Badxdr);
        s.c.check("left over", at(attrs(&[4], |e| (0..3).for_each(|_| e.u32(1)))), Status::Badxdr);
        s.c.check("how to set a time", at(attrs(&[48], |e| e.u32(2))), Status::Badxdr);
        let late = attrs(&[48], |e| {
            e.u32(1);
            e.u64(0);
            e.u32(1_000_000_000);
        });
        s.c.check("nanoseconds", at(late), Status::Inval);
        let reply = s.c.run(at(mode(0o10_000)));
        assert_eq!(reply.failure::<Bitmap>(), Bitmap::default(), "a failure carries a bitmap");
        for bit in [74, 81] {
            let since = if bit == 74 { 1 } else { 2 };
            let fattr = attrs(&[bit], |e| (0..2).for_each(|_| e.u32(0)));
            let expected = match bit {
                _ if s.c.minor < since => Status::Attrnotsupp,
                74 => Status::Ok,
                _ => Status::Inval,
            };
            s.c.check("of a later minor version", at(fattr), expected);
        }
    });
}

#[test]
fn places_and_rights() {
    every_minor(|s| {
        s.c.check("no handle", set(Ops::new(), ANY, mode(0)), Status::Nofilehandle);
        s.c.check("stale", set(Ops::new().at(&s.stale), ANY, mode(0)), Status::Stale);
        s.c.check("pseudo", set(Ops::new().root(), ANY, mode(0)), Status::Rofs);
        let ro = s.c.lookup(&s.harness.root_of("/dir/ro"), "file").unwrap();
        s.c.check("read-only export", set(Ops::new().at(&ro), ANY, mode(0)), Status::Rofs);
        s.c.check("size of a directory", set(Ops::new().at(&s.dir), ANY, size(1)), Status::Isdir);
        s.c.check("size of a link", set(Ops::new().at(&s.link), ANY, size(1)), Status::Inval);
        s.c.check("too large", set(Ops::new().at(&s.file), ANY, size(u64::MAX)), Status::Fbig);
        s.c.as_user(1000, || {
            s.c.check("not mine", set(Ops::new().at(&s.file), ANY, mode(0)), Status::Perm);
            s.c.check("not mine", set(Ops::new().at(&s.file), ANY, size(0)), Status::Access);
        });
    });
}

#[test]
fn the_stateid_counts_when_the_size_changes() {
    every_minor(|s| {
        let reader = s.c.open(&OpenRequest::name(&s.root, "file").access(1)).unwrap();
        let at = |stateid, fattr| set(Ops::new().at(&s.file), stateid, fattr);
        s.c.check("read only", at(reader.stateid, size(1)), Status::Openmode);
        s.c.check("no size", at(reader.stateid, mode(0o600)), Status::Ok);
        s.c.check("bad", at(Stateid::INVALID, size(1)), Status::BadStateid);
        let wish = OpenRequest::name(&s.dir, "inner").owner("denier").deny(2);
        let denier = s.c.open(&wish).unwrap();
        let inner = |stateid| set(Ops::new().at(&s.inner), stateid, size(1));
        s.c.check("denied", inner(ANY), Status::Locked);
        s.c.check("another file's", inner(reader.stateid), Status::BadStateid);
        s.c.check("its own", inner(denier.stateid), Status::Ok);
        assert_eq!(s.c.number(&s.inner, 4), 1);
    });
}

fn ace(kind: u32, flags: u32, mask: u32, who: &[u8]) -> Ace {
    Ace { kind, flags, mask, who: who.into() }
}

fn acl(aces: &[Ace]) -> Fattr {
    attrs(&[12], |e| {
        e.u32(aces.len() as u32);
        aces.iter().for_each(|ace| ace.encode(e));
    })
}

fn read_acl(s: &Fixture, fh: &Fh) -> Vec<Ace> {
    let reply = s.c.run(Ops::new().at(fh).getattr(&[12])).ok();
    Decoder::new(&reply.get::<Getattr>().values.0).array(100).unwrap()
}

#[test]
fn acls_come_back_and_hold() {
    every_minor(|s| {
        let aces = [
            ace(0, 0, 0x3, b"OWNER@"),
            ace(0, 0, 0x1, b"1234"),
            ace(0, 0x40, 0x1, b"GROUP@"),
        ];
        s.c.setattr(&s.file, ANY, acl(&aces)).unwrap();
        let back = read_acl(s, &s.file);
        assert!(back.iter().any(|ace| ace.who.0 == b"1234" && ace.kind == 0 && ace.mask & 1 == 1));
        s.c.setattr(&s.file, ANY, acl(&back)).unwrap();
        assert_eq!(read_acl(s, &s.file), back, "what was read can be written");
        let read = |uid| s.c.as_user(uid, || s.c.read(&s.file, ANY, 0, 1).map(|_| ()));
        assert_eq!(read(1234), Ok(()));
        assert_eq!(read(1235), Err(Status::Access));
    });
}

#[test]
fn an_acl_of_a_directory_needs_more_for_w() {
    every_minor(|s| {
        // Write and append; with the deletion of what is in a directory.
        let everyone = |mask| acl(&[ace(0, 0, mask, b"EVERYONE@")]);
        let other = |fh| s.c.number(fh, 33) & 7;
        for (fh, mask, bits) in [
            (&s.file, 0x3, 4),
            (&s.file, 0x7, 6),
            (&s.dir, 0x7, 4),
            (&s.dir, 0x47, 6),
        ] {
            s.c.setattr(fh, ANY, everyone(mask)).unwrap();
            assert_eq!(other(fh), bits, "{mask:x}");
            let back = read_acl(s, fh);
            s.c.setattr(fh, ANY, acl(&back)).unwrap();
            assert_eq!(read_acl(s, fh), back, "what was read can be written");
        }
        let once = acl(&[ace(0, 0x4 | 0x2, 0x1, b"EVERYONE@")]);
        let set = set(Ops::new().at(&s.dir), ANY, once);
        s.c.check("inherited by one level", set, Status::Attrnotsupp);
    });
}

#[test]
fn acls_that_are_none() {
    every_minor(|s| {
        let at = |fattr| set(Ops::new().at(&s.file), ANY, fattr);
        let nobody = acl(&[ace(0, 0, 1, b"nobody-knows@here")]);
        s.c.check("no such principal", at(nobody), Status::Badowner);
        let audit = s.c.run(at(acl(&[ace(2, 0, 1, b"OWNER@")]))).status;
        assert!(matches!(audit, Status::Attrnotsupp | Status::Inval), "{audit:?}");
        let endless = attrs(&[12], |e| e.u32(u32::MAX));
        s.c.check("endless", at(endless), Status::Badxdr);
    });
}

#[test]
fn the_attributes_set_are_told_with_every_failure() {
    // RFC 8881 §18.30.2: attrsset is present with every status, also if SETATTR
    // was refused before it was run.
    each([0, 1, 2], |s| {
        let reply = s.c.run(Ops::new().at(&s.file).raw(34, &[0; 4]));
        assert_eq!(reply.status, Status::Badxdr);
        assert_eq!(reply.failure::<Bitmap>(), Bitmap::default());
    });
}

/// RFC 8881 §18.30.3: a SETATTR that fails may have set something.
#[test]
fn what_was_set_before_a_failure_is_told() {
    every_minor(|s| {
        let everyone = ace(0, 0, 0x1, b"EVERYONE@");
        let acl_and_mode = attrs(&[12, 33], |e| {
            e.u32(1);
            everyone.encode(e);
            e.u32(0o604);
        });
        s.harness.store.faults().fail_next(FileOp::SetAcl, StoreError::NoSpace);
        let reply = s.c.run(set(Ops::new().at(&s.file), ANY, acl_and_mode));
        assert_eq!(reply.status, Status::Nospc);
        assert_eq!(reply.failure::<Bitmap>(), Bitmap::of(&[33]));
        assert_eq!(s.c.number(&s.file, 33), 0o604);
        s.harness.store.faults().fail_next(FileOp::SetAttr, StoreError::NoSpace);
        let reply = s.c.run(set(Ops::new().at(&s.file), ANY, mode(0o600)));
        assert_eq!(reply.failure::<Bitmap>(), Bitmap::default());
    });
}

/// RFC 8881 §6.2.1.4.1.
#[test]
fn an_acl_that_an_object_cannot_have_sets_nothing() {
    every_minor(|s| {
        s.c.setattr(&s.file, ANY, mode(0o640)).unwrap();
        let acl_and_mode = |flags| {
            attrs(&[12, 33], |e| {
                e.u32(1);
                ace(0, flags, 0x1, b"EVERYONE@").encode(e);
                e.u32(0o604);
            })
        };
        for (fh, flags) in [(&s.file, 0x1), (&s.file, 0x2), (&s.file, 0x8), (&s.link, 0)] {
            let reply = s.c.run(set(Ops::new().at(fh), ANY, acl_and_mode(flags)));
            assert_eq!(reply.status, Status::Attrnotsupp, "{flags:x}");
            assert_eq!(reply.failure::<Bitmap>(), Bitmap::default(), "{flags:x}");
        }
        assert_eq!(s.c.number(&s.file, 33), 0o640);
    });
}
