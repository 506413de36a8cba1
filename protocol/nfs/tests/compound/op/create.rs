//! CREATE (RFC 8881 §18.4).

use super::BAD_NAMES;
use zgate_memory::{FileOp, MemoryStore};
use zgate_nfs::v4::attrs::acl::Ace;
use zgate_test_harness::nfs::{Fixture, Harness, OpenRequest, Ops, attrs, each, every_minor, mode, name, sessions};
use zgate_nfs_wire::v4::op::Create;
use zgate_nfs_wire::v4::op::create::{Kind, self};
use zgate_nfs_wire::v4::op::open::How;
use zgate_nfs_wire::v4::{Bitmap, Fattr, Status};
use zgate_store::file_store::{NewNode, StoreTraits};
use zgate_store::{FileStore, StoreError};
use zgate_xdr::Encode;

fn make(ops: Ops, text: impl AsRef<[u8]>, node: NewNode, attrs: Fattr) -> Ops {
    ops.op::<Create>(&create::Args { kind: Kind::Node(node), name: name(text), attrs })
}

fn dir(ops: Ops, text: impl AsRef<[u8]>) -> Ops {
    make(ops, text, NewNode::Directory, mode(0o755))
}

#[test]
fn every_kind_is_made() {
    every_minor(|s| {
        for (text, node, kind) in [
            ("d", NewNode::Directory, 2),
            ("b", NewNode::BlockDevice(8, 1), 3),
            ("c", NewNode::CharDevice(1, 3), 4),
            ("l", NewNode::Symlink(b"somewhere/else".to_vec()), 5),
            ("s", NewNode::Socket, 6),
            ("f", NewNode::Fifo, 7),
        ] {
            let before = s.c.number(&s.dir, 3);
            let ops = make(Ops::new().at(&s.dir), text, node, mode(0o640)).getfh();
            let reply = s.c.run(ops).ok();
            let res = reply.get::<Create>();
            let fh = reply.get::<zgate_nfs_wire::v4::op::Getfh>();
            assert_eq!(s.c.number(&fh, 1), kind, "{text}");
            assert_eq!((res.change.before, res.change.after), (before, s.c.number(&s.dir, 3)));
            assert_eq!(res.attrs_set, Bitmap::of(&[33]));
            assert_eq!(s.c.lookup(&s.dir, text), Ok(fh.clone()));
            if kind != 5 {
                assert_eq!(s.c.number(&fh, 33), 0o640, "{text}");
            }
        }
    });
}

#[test]
fn new_objects_have_a_umask_and_no_mode_to_be_masked() {
    let two = |bit, first: u32, second: u32| {
        attrs(&[bit], |e| {
            e.u32(first);
            e.u32(second);
        })
    };
    sessions(|s| {
        let masked = two(74, 0o007, 0o070);
        let ops = make(Ops::new().at(&s.dir), "masked", NewNode::Directory, masked);
        s.c.check("RFC 8881 §6.2.5", ops, Status::Inval);
        assert_eq!(s.c.lookup(&s.dir, "masked"), Err(Status::Noent));
    });
    each([2], |s| {
        let umask = two(81, 0o777, 0o027);
        let ops = make(Ops::new().at(&s.dir), "umask", NewNode::Directory, umask);
        s.c.check("RFC 8275 §5", ops, Status::Ok);
        assert_eq!(s.c.number(&s.c.lookup(&s.dir, "umask").unwrap(), 33), 0o750);
    });
}

#[test]
fn names_and_places() {
    every_minor(|s| {
        s.c.check("no handle", dir(Ops::new(), "x"), Status::Nofilehandle);
        s.c.check("a file", dir(Ops::new().at(&s.file), "x"), Status::Notdir);
        s.c.check("a link", dir(Ops::new().at(&s.link), "x"), Status::Notdir);
        for no_directory in [&s.file, &s.link, &s.fifo] {
            let at = || Ops::new().at(no_directory);
            s.c.check("in front of a bad name", dir(at(), "."), Status::Notdir);
            let unknown = make(at(), "x", NewNode::Fifo, attrs(&[14], |e| e.u32(1)));
            s.c.check("in front of a bad attribute", unknown, Status::Notdir);
        }
        s.c.check("stale", dir(Ops::new().at(&s.stale), "."), Status::Stale);
        s.c.check("exists", dir(Ops::new().at(&s.root), "file"), Status::Exist);
        s.c.check("pseudo", dir(Ops::new().root(), "x"), Status::Rofs);
        let ro = s.harness.root_of("/dir/ro");
        s.c.check("read-only export", dir(Ops::new().at(&ro), "x"), Status::Rofs);
        for (text, status) in BAD_NAMES {
            s.c.check("a bad name", dir(Ops::new().at(&s.root), text), status);
        }
        s.c.as_user(1000, || {
            s.c.check("not mine", dir(Ops::new().at(&s.dir), "x"), Status::Access);
        });
        s.c.remove(&s.dir, "inner").unwrap();
        s.c.remove(&s.root, "dir").unwrap();
        let gone = s.c.run(dir(Ops::new().at(&s.dir), "x")).status;
        assert!(matches!(gone, Status::Stale | Status::Notdir), "{gone:?}");
    });
}

#[test]
fn types_and_attributes() {
    every_minor(|s| {
        for number in [1, 8, 9, 0, 77] {
            let kind = Kind::Other(number);
            let args = create::Args { kind, name: name("x"), attrs: Fattr::default() };
            let ops = Ops::new().at(&s.root).op::<Create>(&args);
            s.c.check("no type to create", ops, Status::Badtype);
        }
        let link = |to: &[u8]| make(Ops::new().at(&s.root), "x", NewNode::Symlink(to.into()), Fattr::default());
        s.c.check("an empty link", link(b""), Status::Inval);
        let with = |attrs| make(Ops::new().at(&s.root), "x", NewNode::Directory, attrs);
        s.c.check("read-only attribute", with(attrs(&[20], |e| e.u64(1))), Status::Inval);
        s.c.check("unknown attribute", with(attrs(&[62], |e| e.u64(1))), Status::Attrnotsupp);
        s.c.check("values missing", with(attrs(&[33], |_| {})), Status::Badxdr);
        s.c.check("values left over", with(attrs(&[33], |e| e.u64(0))), Status::Badxdr);
        s.c.check("no such mode", with(attrs(&[33], |e| e.u32(0o200_000))), Status::Inval);
        s.c.check("no such owner", with(attrs(&[36], |e| e.opaque(b"me@here"))), Status::Badowner);
        s.c.as_user(1000, || {
            let device = make(Ops::new().at(&s.root), "x", NewNode::CharDevice(1, 3), mode(0o600));
            s.c.check("devices are root's", device, Status::Perm);
        });
        assert_eq!(s.c.lookup(&s.root, "x"), Err(Status::Noent), "nothing was made");
    });
}

/// An ACL that lets everyone read.
fn readable() -> Fattr {
    readable_with(0)
}

/// The same by an entry with these flags.
fn readable_with(flags: u32) -> Fattr {
    let everyone = Ace { kind: 0, flags, mask: 0x1, who: b"EVERYONE@"[..].into() };
    attrs(&[12], |e| {
        e.u32(1);
        everyone.encode(e);
    })
}

#[test]
fn what_was_made_is_not_delayed_by_its_acl() {
    const ACL: u32 = 12;
    every_minor(|s| {
        let faults = s.harness.store.faults();
        let create = |text: &str| {
            let ops = make(Ops::new().at(&s.dir), text, NewNode::Directory, readable());
            s.c.run(ops).result().map(|reply| reply.get::<Create>().attrs_set.contains(ACL))
        };
        let open = |text: &str| {
            let wish = OpenRequest::name(&s.dir, text).how(How::Guarded(readable()));
            s.c.open(&wish).map(|opened| opened.attrs_set.contains(ACL))
        };
        faults.fail_next(FileOp::SetAcl, StoreError::OutOfResources);
        assert_eq!(create("soon"), Ok(true), "the next attempt sets it");
        faults.fail_next(FileOp::SetAcl, StoreError::OutOfResources);
        assert_eq!(open("soon too"), Ok(true));
        faults.fail_every(FileOp::SetAcl, StoreError::OutOfResources);
        assert_eq!(create("never"), Ok(false), "it is there, without the ACL");
        assert_eq!(open("never either"), Ok(false));
        faults.heal(FileOp::SetAcl);
    });
}

#[test]
fn without_acls_in_the_file_system_nothing_is_made() {
    for minor in 0..=2 {
        let traits = StoreTraits { acls: false, ..MemoryStore::new().traits() };
        let store = MemoryStore::builder().traits(traits).root_mode(0o777).build();
        let s = Fixture::in_harness(Harness::over(store), minor);
        let ops = make(Ops::new().at(&s.dir), "x", NewNode::Directory, readable());
        s.c.check("CREATE", ops, Status::Attrnotsupp);
        let wish = OpenRequest::name(&s.dir, "x").how(How::Guarded(readable()));
        assert_eq!(s.c.open(&wish).map(|_| ()), Err(Status::Attrnotsupp));
        assert_eq!(s.c.lookup(&s.dir, "x"), Err(Status::Noent));
    }
}

#[test]
fn an_acl_that_an_object_cannot_have_is_refused_before_it_is_made() {
    every_minor(|s| {
        let link = NewNode::Symlink(b"elsewhere".to_vec());
        let ops = make(Ops::new().at(&s.dir), "x", link, readable());
        s.c.check("a link has none", ops, Status::Attrnotsupp);
        let fifo = make(Ops::new().at(&s.dir), "x", NewNode::Fifo, readable_with(0x1));
        s.c.check("nothing inherits from it", fifo, Status::Attrnotsupp);
        let wish = OpenRequest::name(&s.dir, "x").how(How::Guarded(readable_with(0x1)));
        assert_eq!(s.c.open(&wish).map(|_| ()), Err(Status::Attrnotsupp));
        assert_eq!(s.c.lookup(&s.dir, "x"), Err(Status::Noent));
        let dir = make(Ops::new().at(&s.dir), "x", NewNode::Directory, readable_with(0x1));
        s.c.check("children inherit from it", dir, Status::Ok);
    });
}

/// The property `acltype` may change at any time.
#[test]
fn what_was_made_where_there_are_no_acls_is_told_without_its_acl() {
    every_minor(|s| {
        s.harness.store.faults().fail_next(FileOp::SetAcl, StoreError::NotSupported);
        let ops = make(Ops::new().at(&s.dir), "x", NewNode::Directory, readable());
        let reply = s.c.run(ops).ok();
        assert_eq!(reply.get::<Create>().attrs_set, Bitmap::default());
        assert!(s.c.lookup(&s.dir, "x").is_ok());
    });
}
