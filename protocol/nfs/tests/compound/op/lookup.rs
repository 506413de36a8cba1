//! LOOKUP and LOOKUPP (RFC 8881 §18.13, §18.14).

use super::BAD_NAMES;
use zgate_test_harness::nfs::{Ops, every_minor, mode};
use zgate_nfs_wire::v4::attr::MODE;
use zgate_nfs_wire::v4::op::setattr;
use zgate_nfs_wire::v4::op::{Getattr, Getfh, Lookupp, Setattr};
use zgate_nfs_wire::v4::{Stateid, Status};

// Lookup is run through `Ops::lookup`.

#[test]
fn down_and_up() {
    every_minor(|s| {
        let ops = Ops::new().root().lookup("export").lookup("dir").lookup("inner").getfh();
        assert_eq!(s.c.run(ops).ok().get::<Getfh>(), s.inner);
        let up = s.c.run(Ops::new().at(&s.dir).op::<Lookupp>(&()).getfh()).ok();
        assert_eq!(up.get::<Getfh>(), s.root);
    });
}

/// GETATTR behind LOOKUP may use what LOOKUP has read, but not if an operation
/// between them changed it.
#[test]
fn attributes_behind_a_lookup_are_the_present_ones() {
    every_minor(|s| {
        let mode_of = |ops: Ops| {
            let reply = s.c.run(ops.getfh().getattr(&[MODE])).ok();
            let attrs = reply.get::<Getattr>().values.0;
            (reply.get::<Getfh>(), u32::from_be_bytes(attrs[..4].try_into().unwrap()))
        };
        let dir = || Ops::new().root().lookup("export").lookup("dir");
        assert_eq!(mode_of(dir()).0, s.dir);
        s.c.setattr(&s.dir, Stateid::ANONYMOUS, mode(0o710)).unwrap();
        assert_eq!(mode_of(dir()), (s.dir.clone(), 0o710));
        let changed = dir().op::<Setattr>(&setattr::Args {
            stateid: Stateid::ANONYMOUS,
            attrs: mode(0o755),
        });
        assert_eq!(mode_of(changed), (s.dir.clone(), 0o755));
        assert_eq!(mode_of(dir().lookup("inner").at(&s.dir)), (s.dir.clone(), 0o755));
    });
}

#[test]
fn lookup_errors() {
    every_minor(|s| {
        s.c.check("no handle", Ops::new().lookup("x"), Status::Nofilehandle);
        s.c.check("no such name", Ops::new().at(&s.root).lookup("x"), Status::Noent);
        s.c.check("in a file", Ops::new().at(&s.file).lookup("x"), Status::Notdir);
        s.c.check("in a fifo", Ops::new().at(&s.fifo).lookup("x"), Status::Notdir);
        s.c.check("in a link", Ops::new().at(&s.link).lookup("x"), Status::Symlink);
        s.c.check("stale", Ops::new().at(&s.stale).lookup("x"), Status::Stale);
        for (text, status) in BAD_NAMES {
            s.c.check("a bad name", Ops::new().at(&s.root).lookup(text), status);
            s.c.check("a bad pseudo name", Ops::new().root().lookup(text), status);
        }
        s.c.check("longer than decoded", Ops::new().at(&s.root).lookup([b'x'; 4097]), Status::Badxdr);
        s.c.setattr(&s.dir, Stateid::ANONYMOUS, mode(0o600)).unwrap();
        s.c.as_user(1000, || {
            s.c.check("no right to search", Ops::new().at(&s.dir).lookup("inner"), Status::Access);
        });
    });
}

#[test]
fn lookupp_errors() {
    every_minor(|s| {
        let up = |ops: Ops| ops.op::<Lookupp>(&());
        s.c.check("no handle", up(Ops::new()), Status::Nofilehandle);
        s.c.check("a file", up(Ops::new().at(&s.file)), Status::Notdir);
        let link = if s.c.minor == 0 { Status::Notdir } else { Status::Symlink };
        s.c.check("a link", up(Ops::new().at(&s.link)), link);
        s.c.check("the root of all", up(Ops::new().root()), Status::Noent);
        s.c.check("stale", up(Ops::new().at(&s.stale)), Status::Stale);
    });
}
