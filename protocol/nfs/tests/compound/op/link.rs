//! LINK (RFC 8881 §18.9).

use super::BAD_NAMES;
use zgate_test_harness::nfs::{Ops, every_minor};
use zgate_nfs_wire::v4::op::Link;
use zgate_nfs_wire::v4::Status;

#[test]
fn a_file_gets_a_second_name() {
    every_minor(|s| {
        let (dir, file) = (s.c.number(&s.dir, 3), s.c.number(&s.file, 3));
        let reply = s.c.run(Ops::new().at(&s.file).save().at(&s.dir).link("again")).ok();
        let change = reply.get::<Link>();
        assert_eq!((change.before, change.after), (dir, s.c.number(&s.dir, 3)));
        assert_eq!(s.c.lookup(&s.dir, "again"), Ok(s.file.clone()));
        assert_eq!(s.c.number(&s.file, 35), 2);
        assert!(s.c.number(&s.file, 3) > file, "the object changed too");
        s.c.check("a link to a link", Ops::new().at(&s.link).save().at(&s.dir).link("l"), Status::Ok);
        s.c.remove(&s.root, "file").unwrap();
        assert_eq!(s.c.number(&s.file, 35), 1);
    });
}

#[test]
fn errors() {
    every_minor(|s| {
        let from = |fh| Ops::new().at(fh).save();
        s.c.check("no handle", Ops::new().link("x"), Status::Nofilehandle);
        s.c.check("none saved", Ops::new().at(&s.dir).link("x"), Status::Nofilehandle);
        s.c.check("a directory", from(&s.dir).at(&s.root).link("x"), Status::Isdir);
        s.c.check("into a file", from(&s.file).at(&s.inner).link("x"), Status::Notdir);
        s.c.check("into a link", from(&s.file).at(&s.link).link("x"), Status::Notdir);
        s.c.check("exists", from(&s.file).at(&s.dir).link("inner"), Status::Exist);
        s.c.check("stale source", from(&s.stale).at(&s.dir).link("x"), Status::Stale);
        for (text, status) in BAD_NAMES {
            s.c.check("a bad name", from(&s.file).at(&s.dir).link(text), status);
        }
        let second = s.harness.root_of("/dir/second");
        s.c.check("across exports", from(&s.file).at(&second).link("x"), Status::Xdev);
        let ro = s.harness.root_of("/dir/ro");
        s.c.check("read-only", from(&s.file).at(&ro).link("x"), Status::Rofs);
        s.c.check("pseudo target", from(&s.file).root().link("x"), Status::Rofs);
        s.c.check("pseudo source", Ops::new().root().save().at(&s.dir).link("x"), Status::Isdir);
        s.c.as_user(1000, || {
            s.c.check("not mine", from(&s.file).at(&s.dir).link("x"), Status::Access);
        });
    });
}
