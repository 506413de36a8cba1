//! File handles of an export that does not admit the flavour of the call: who says so,
//! and that nothing is done with them (RFC 8881 §2.6.3.1.1).

use zgate_nfs::namespace::{ClientRule, Flavor};
use zgate_nfs_wire::v4::op::open::{Claim, How};
use zgate_nfs_wire::v4::op::{Clone as CloneOp, Copy, Getfh, Lookupp, Open, clone, copy};
use zgate_nfs_wire::v4::{Fattr, Fh, Stateid, Status};
use zgate_test_harness::nfs::{Fixture, OpenRequest, Ops, each, every_minor, sessions};

/// All exports accept only AUTH_NONE from now on; the client goes on with AUTH_SYS.
fn close(s: &Fixture) {
    let flavors = [Flavor::None].into_iter().collect();
    s.harness.admit_by(&ClientRule { flavors, ..ClientRule::open_to_all() });
}

fn open(s: &Fixture, fh: &Fh, claim: Claim, how: How) -> Ops {
    let wish = OpenRequest::name(fh, "").claim(claim).how(how);
    Ops::new().at(fh).op::<Open>(&s.c.open_args(&wish))
}

fn by_name(s: &Fixture, text: &str, how: How) -> Ops {
    open(s, &s.root, Claim::Null(text.as_bytes().into()), how)
}

/// Checks that the operation with this number, from 1 on, says that the flavour is wrong.
#[track_caller]
fn check_refused_by(s: &Fixture, number: usize, what: &str, ops: Ops) {
    let reply = s.c.run(ops);
    let told = (reply.status, reply.answers.len());
    assert_eq!(told, (Status::Wrongsec, number), "{what} (minor version {})", s.c.minor);
}

/// A name that is there is told from one that is not by none of them.
#[test]
fn what_leads_elsewhere_refuses_itself() {
    sessions(|s| {
        close(s);
        let create = || How::Unchecked(Fattr::default());
        for text in ["file", "dir", "absent"] {
            check_refused_by(s, 2, "LOOKUP", Ops::new().at(&s.root).lookup(text));
            check_refused_by(s, 2, "LOOKUP", Ops::new().at(&s.root).lookup(text).getfh());
            check_refused_by(s, 2, "OPEN", by_name(s, text, How::NoCreate));
            check_refused_by(s, 2, "OPEN", by_name(s, text, create()));
            let held = Claim::DelegateCurrent(Stateid::ANONYMOUS, text.as_bytes().into());
            check_refused_by(s, 2, "OPEN", open(s, &s.root, held, How::NoCreate));
        }
        check_refused_by(s, 2, "in no directory", Ops::new().at(&s.file).lookup("x"));
        check_refused_by(s, 2, "stale", Ops::new().at(&s.stale).lookup("x"));
        check_refused_by(s, 2, "within", Ops::new().at(&s.dir).op::<Lookupp>(&()));
        check_refused_by(s, 3, "saved", Ops::new().at(&s.root).save().lookup("file"));
        check_refused_by(s, 2, "by name", Ops::new().root().lookup("export").getfh());
        s.harness.admit_by(&ClientRule::open_to_all());
        s.c.check("nothing was made", Ops::new().at(&s.root).lookup("absent"), Status::Noent);
    });
}

#[test]
fn what_uses_the_handle_finds_it_refused() {
    every_minor(|s| {
        close(s);
        let at = || Ops::new().at(&s.file);
        check_refused_by(s, 1, "GETATTR", at().getattr(&[1]));
        check_refused_by(s, 1, "GETFH", at().getfh());
        check_refused_by(s, 1, "READ", at().read(Stateid::ANONYMOUS, 0, 9));
        check_refused_by(s, 1, "REMOVE", Ops::new().at(&s.root).remove("file"));
        check_refused_by(s, 1, "SAVEFH", at().save().getattr(&[1]));
        check_refused_by(s, 1, "reclaim", open(s, &s.file, Claim::Previous(0), How::NoCreate));
        check_refused_by(s, 1, "not to be decoded", Ops::new().at(&s.root).raw(18, &[0; 8]));
        check_refused_by(s, 1, "no operation", at().raw(9999, &[]));
    });
    sessions(|s| {
        close(s);
        check_refused_by(s, 1, "OPEN", open(s, &s.file, Claim::Fh, How::NoCreate));
        let held = Claim::DelegateCurrentFh(Stateid::ANONYMOUS);
        check_refused_by(s, 1, "OPEN", open(s, &s.file, held, How::NoCreate));
    });
}

/// Minor version 0 has PUTFH refuse it in these cases, too (RFC 7530 §16.31.5).
#[test]
fn what_does_not_use_the_handle_lets_it_be() {
    every_minor(|s| {
        close(s);
        let at = || Ops::new().at(&s.root);
        let to_be_left: [(&str, &dyn Fn() -> Ops); 5] = [
            ("at the end", &at),
            ("saved", &|| at().save()),
            ("another one", &|| at().root().getfh()),
            ("two others", &|| at().at(&s.file).save().root().getattr(&[1])),
            ("up", &|| at().op::<Lookupp>(&()).getattr(&[1])),
        ];
        for (what, ops) in to_be_left {
            if s.c.minor == 0 {
                check_refused_by(s, 1, what, ops());
            } else {
                s.c.check(what, ops(), Status::Ok);
            }
        }
    });
    sessions(|s| {
        close(s);
        let root = s.c.run(Ops::new().root().getfh()).ok().get::<Getfh>();
        let up = || Ops::new().at(&s.root).op::<Lookupp>(&());
        assert_eq!(s.c.run(up().getfh()).ok().get::<Getfh>(), root);
        check_refused_by(s, 3, "back", up().lookup("export"));
    });
}

/// A saved handle stays refused.
#[test]
fn a_saved_handle_is_not_used() {
    sessions(|s| {
        let weak = s.harness.root_of("/weak");
        let saved = || Ops::new().at(&weak).save();
        s.c.check_last("RENAME", saved().at(&s.root).rename("a", "b"), Status::Xdev);
        s.c.check_last("LINK", saved().at(&s.root).link("b"), Status::Xdev);
        check_refused_by(s, 4, "RESTOREFH", saved().at(&s.root).restore().getattr(&[1]));
        check_refused_by(s, 4, "RESTOREFH", saved().root().restore().getfh());
        check_refused_by(s, 5, "LOOKUP", saved().root().restore().lookup("file"));
        check_refused_by(s, 3, "RENAME", saved().at(&weak).rename("a", "b"));
        check_refused_by(s, 3, "LINK", saved().at(&weak).link("b"));
        check_refused_by(s, 3, "RENAME", Ops::new().at(&s.root).save().at(&weak).rename("a", "b"));
        // A later SAVEFH replaces it.
        let again = saved().at(&s.file).save().root().restore().getfh();
        assert_eq!(s.c.run(again).ok().get::<Getfh>(), s.file);
        let other = Ops::new().at(&s.file).save().at(&weak).save().at(&s.root).link("b");
        s.c.check_last("LINK", other, Status::Xdev);
        close(s);
        let within = || Ops::new().at(&s.root).save().at(&s.root);
        check_refused_by(s, 3, "RENAME", within().rename("file", "b"));
        check_refused_by(s, 3, "LINK", Ops::new().at(&s.file).save().at(&s.root).link("b"));
    });
    each([2], |s| {
        let saved = || Ops::new().at(&s.harness.root_of("/weak")).save().at(&s.file);
        let (from, to) = (Stateid::ANONYMOUS, Stateid::ANONYMOUS);
        let args = copy::Args {
            from,
            to,
            from_offset: 0,
            to_offset: 0,
            count: 0,
            consecutive: true,
            synchronous: true,
            servers: Vec::new(),
        };
        s.c.check_last("COPY", saved().op::<Copy>(&args), Status::Xdev);
        let args = clone::Args { from, to, from_offset: 0, to_offset: 0, count: 0 };
        s.c.check_last("CLONE", saved().op::<CloneOp>(&args), Status::Xdev);
    });
}
