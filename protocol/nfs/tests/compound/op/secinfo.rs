//! SECINFO and SECINFO_NO_NAME (RFC 8881 §18.29, §18.45).

use super::BAD_NAMES;
use zgate_test_harness::nfs::{Ops, every_minor, name, sessions};
use zgate_nfs_wire::v4::op::Secinfo;
use zgate_nfs_wire::v4::op::SecinfoNoName;
use zgate_nfs_wire::v4::op::secinfo_no_name::Style;
use zgate_nfs_wire::v4::Status;

const NONE: u32 = 0;
const SYS: u32 = 1;

fn ask(ops: Ops, text: impl AsRef<[u8]>) -> Ops {
    ops.op::<Secinfo>(&name(text))
}

#[test]
fn flavours_of_objects_and_exports() {
    every_minor(|s| {
        let flavors = |ops| s.c.run(ops).ok().get::<Secinfo>().flavors;
        assert_eq!(flavors(ask(Ops::new().at(&s.root), "file")), [SYS, NONE]);
        assert_eq!(flavors(ask(Ops::new().root(), "dir")), [SYS, NONE]);
        assert_eq!(flavors(ask(Ops::new().root(), "export")), [SYS, NONE]);
        // Called with the wrong flavour: this is the purpose of the operation.
        assert_eq!(flavors(ask(Ops::new().root(), "weak")), [NONE]);
        let after = ask(Ops::new().at(&s.root), "file").getfh();
        // RFC 8881 §2.6.3.1.1.8: the current file handle is consumed.
        let expected = if s.c.minor == 0 { Status::Ok } else { Status::Nofilehandle };
        s.c.check("what is left", after, expected);
    });
}

#[test]
fn errors() {
    every_minor(|s| {
        s.c.check("no handle", ask(Ops::new(), "x"), Status::Nofilehandle);
        s.c.check("no such name", ask(Ops::new().at(&s.root), "x"), Status::Noent);
        s.c.check("for others", ask(Ops::new().root(), "closed"), Status::Noent);
        s.c.check("in a file", ask(Ops::new().at(&s.file), "x"), Status::Notdir);
        s.c.check("stale", ask(Ops::new().at(&s.stale), "x"), Status::Stale);
        for (text, status) in BAD_NAMES {
            s.c.check("a bad name", ask(Ops::new().at(&s.root), text), status);
        }
    });
}

#[test]
fn without_a_name() {
    sessions(|s| {
        let ask = |ops: Ops, style| ops.op::<SecinfoNoName>(&style);
        for style in [Style::CurrentFh, Style::Parent] {
            let ops = ask(Ops::new().at(&s.dir), style);
            assert_eq!(s.c.run(ops).ok().get::<SecinfoNoName>().flavors, [SYS, NONE]);
            s.c.check("no handle", ask(Ops::new(), style), Status::Nofilehandle);
            let after = ask(Ops::new().at(&s.dir), style).getfh();
            s.c.check("the handle is consumed", after, Status::Nofilehandle);
        }
        s.c.check("parent of a file", ask(Ops::new().at(&s.file), Style::Parent), Status::Notdir);
        s.c.check("parent of the root", ask(Ops::new().root(), Style::Parent), Status::Noent);
        s.c.check("no such style", Ops::new().at(&s.dir).raw(52, &[0, 0, 0, 2]), Status::Badxdr);
    });
}

/// RFC 8881 §2.6.3.1.1: a handle may be set with the wrong flavour to ask for the
/// right one.
#[test]
fn a_handle_with_the_wrong_flavour() {
    every_minor(|s| {
        let weak = s.harness.root_of("/weak");
        let at = || Ops::new().at(&weak);
        assert_eq!(s.c.run(ask(at(), "x")).ok().get::<Secinfo>().flavors, [NONE]);
        s.c.check("nothing is left", ask(at(), "x").getfh(), Status::Nofilehandle);
        s.c.check("anything else", at().getattr(&[1]), Status::Wrongsec);
        s.c.check("later", at().getfh().op::<Secinfo>(&name("x")), Status::Wrongsec);
    });
    sessions(|s| {
        let weak = s.harness.root_of("/weak");
        let ops = Ops::new().at(&weak).op::<SecinfoNoName>(&Style::CurrentFh);
        assert_eq!(s.c.run(ops).ok().get::<SecinfoNoName>().flavors, [NONE]);
        // The parent is another matter.
        let ops = Ops::new().at(&weak).op::<SecinfoNoName>(&Style::Parent);
        assert_eq!(s.c.run(ops).ok().get::<SecinfoNoName>().flavors, [SYS, NONE]);
        let ops = Ops::new().at(&weak).op::<SecinfoNoName>(&Style::Parent).getfh();
        s.c.check("nothing is left", ops, Status::Nofilehandle);
    });
}
