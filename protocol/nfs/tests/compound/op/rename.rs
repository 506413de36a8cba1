//! RENAME (RFC 8881 §18.26).

use super::BAD_NAMES;
use zgate_test_harness::nfs::{Ops, Fixture, every_minor};
use zgate_nfs_wire::v4::Fh;
use zgate_nfs_wire::v4::op::Rename;
use zgate_nfs_wire::v4::Status;

fn mv(from: &Fh, old: &str, to: &Fh, new: &str) -> Ops {
    Ops::new().at(from).save().at(to).rename(old, new)
}

#[test]
fn both_directories_change() {
    every_minor(|s| {
        let before = (s.c.number(&s.root, 3), s.c.number(&s.dir, 3));
        let res = s.c.run(mv(&s.root, "file", &s.dir, "moved")).ok().get::<Rename>();
        assert_eq!((res.source.before, res.target.before), before);
        let after = (s.c.number(&s.root, 3), s.c.number(&s.dir, 3));
        assert_eq!((res.source.after, res.target.after), after);
        assert!(after.0 > before.0 && after.1 > before.1);
        assert_eq!(s.c.lookup(&s.dir, "moved"), Ok(s.file.clone()));
        assert_eq!(s.c.lookup(&s.root, "file"), Err(Status::Noent));
    });
}

#[test]
fn what_may_replace_what() {
    every_minor(|s: &Fixture| {
        s.c.file(&s.root, "file2", b"2");
        s.c.mkdir(&s.root, "empty");
        s.c.mkdir(&s.root, "empty2");
        s.c.check("file over file", mv(&s.root, "file2", &s.root, "file"), Status::Ok);
        s.c.check("gone by being replaced", Ops::new().at(&s.file).getattr(&[1]), Status::Stale);
        s.c.check("link over file", mv(&s.root, "link", &s.root, "file"), Status::Ok);
        s.c.check("dir over empty dir", mv(&s.root, "empty2", &s.root, "empty"), Status::Ok);
        s.c.check("dir over full dir", mv(&s.root, "empty", &s.root, "dir"), Status::Exist);
        s.c.check("dir over file", mv(&s.root, "dir", &s.root, "file"), Status::Exist);
        s.c.check("file over dir", mv(&s.root, "file", &s.root, "empty"), Status::Exist);
        s.c.check("onto itself", mv(&s.root, "file", &s.root, "file"), Status::Ok);
        s.c.check("into itself", mv(&s.root, "dir", &s.dir, "x"), Status::Inval);
        assert!(s.c.lookup(&s.root, "file").is_ok() && s.c.lookup(&s.root, "dir").is_ok());
    });
}

#[test]
fn two_names_of_one_file_stay() {
    every_minor(|s| {
        s.c.run(Ops::new().at(&s.file).save().at(&s.root).link("second")).ok();
        let before = s.c.number(&s.root, 3);
        let res = s.c.run(mv(&s.root, "file", &s.root, "second")).ok().get::<Rename>();
        // RFC 8881 §18.26.3: for two names of the same file nothing is done.
        assert_eq!((res.source.before, res.source.after), (before, before));
        assert!(s.c.lookup(&s.root, "file").is_ok() && s.c.lookup(&s.root, "second").is_ok());
    });
}

#[test]
fn errors() {
    every_minor(|s| {
        s.c.check("no handle", Ops::new().rename("a", "b"), Status::Nofilehandle);
        s.c.check("none saved", Ops::new().at(&s.root).rename("a", "b"), Status::Nofilehandle);
        s.c.check("no such name", mv(&s.root, "x", &s.root, "y"), Status::Noent);
        s.c.check("from a file", mv(&s.file, "x", &s.root, "y"), Status::Notdir);
        s.c.check("from a link", mv(&s.link, "x", &s.root, "y"), Status::Notdir);
        s.c.check("into a link", mv(&s.root, "dir", &s.link, "y"), Status::Notdir);
        s.c.check("into a file", mv(&s.root, "dir", &s.file, "y"), Status::Notdir);
        s.c.check("stale source", mv(&s.stale, "x", &s.root, "y"), Status::Stale);
        s.c.check("stale target", mv(&s.root, "file", &s.stale, "y"), Status::Stale);
        for (text, status) in BAD_NAMES {
            let ops = || Ops::new().at(&s.root).save().at(&s.root);
            s.c.check("a bad old name", ops().rename(text, "y"), status);
            s.c.check("a bad new name", ops().rename("file", text), status);
        }
        let (second, ro) = (s.harness.root_of("/dir/second"), s.harness.root_of("/dir/ro"));
        s.c.check("across exports", mv(&s.root, "file", &second, "x"), Status::Xdev);
        s.c.check("read-only export", mv(&ro, "file", &ro, "x"), Status::Rofs);
        s.c.check("pseudo", Ops::new().root().save().root().rename("export", "x"), Status::Rofs);
        s.c.as_user(1000, || {
            s.c.check("not mine", mv(&s.dir, "inner", &s.root, "x"), Status::Access);
        });
    });
}
