//! REMOVE (RFC 8881 §18.25).

use super::BAD_NAMES;
use zgate_test_harness::nfs::{Ops, every_minor};
use zgate_nfs_wire::v4::{Stateid, Status};

// Remove is sent through `Ops::remove`.

#[test]
fn names_go_and_open_files_stay() {
    every_minor(|s| {
        let opened = s.open();
        let before = s.c.number(&s.root, 3);
        let change = s.c.remove(&s.root, "file").unwrap();
        assert_eq!((change.before, change.after), (before, s.c.number(&s.root, 3)));
        assert!(change.after > change.before);
        assert_eq!(s.c.lookup(&s.root, "file"), Err(Status::Noent));
        // Like a local file system, although OPEN does not promise it.
        assert_eq!(s.c.write(&s.file, opened.stateid, 0, b"CON"), Ok(3));
        assert_eq!(&s.c.read(&s.file, opened.stateid, 0, 9).unwrap().1[..], b"CONtent");
        s.c.close(&opened).unwrap();
        assert_eq!(s.c.read(&s.file, Stateid::ANONYMOUS, 0, 9).unwrap_err(), Status::Stale);
        for text in ["link", "fifo"] {
            assert!(s.c.remove(&s.root, text).is_ok(), "{text}");
        }
        s.c.remove(&s.dir, "inner").unwrap();
        assert!(s.c.remove(&s.root, "dir").is_ok());
    });
}

#[test]
fn errors() {
    every_minor(|s| {
        s.c.check("no handle", Ops::new().remove("x"), Status::Nofilehandle);
        s.c.check("no such name", Ops::new().at(&s.root).remove("x"), Status::Noent);
        s.c.check("not empty", Ops::new().at(&s.root).remove("dir"), Status::Notempty);
        s.c.check("in a file", Ops::new().at(&s.file).remove("x"), Status::Notdir);
        s.c.check("in a link", Ops::new().at(&s.link).remove("x"), Status::Notdir);
        s.c.check("stale", Ops::new().at(&s.stale).remove("x"), Status::Stale);
        s.c.check("pseudo", Ops::new().root().remove("export"), Status::Rofs);
        let ro = s.harness.root_of("/dir/ro");
        s.c.check("read-only export", Ops::new().at(&ro).remove("file"), Status::Rofs);
        for (text, status) in BAD_NAMES {
            s.c.check("a bad name", Ops::new().at(&s.root).remove(text), status);
        }
        s.c.as_user(1000, || {
            s.c.check("not mine", Ops::new().at(&s.dir).remove("inner"), Status::Access);
        });
    });
}
