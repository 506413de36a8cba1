//! READLINK (RFC 8881 §18.24, RFC 7530 §16.25).

use zgate_test_harness::nfs::{Ops, every_minor};
use zgate_nfs_wire::v4::op::Readlink;
use zgate_nfs_wire::v4::Status;

#[test]
fn the_target_and_nothing_else() {
    every_minor(|s| {
        let ask = |ops: Ops| ops.op::<Readlink>(&());
        assert_eq!(s.c.run(ask(Ops::new().at(&s.link))).ok().get::<Readlink>().0, b"file");
        s.c.check("no handle", ask(Ops::new()), Status::Nofilehandle);
        s.c.check("stale", ask(Ops::new().at(&s.stale)), Status::Stale);
        let other = if s.c.minor == 0 { Status::Inval } else { Status::WrongType };
        s.c.check("a file", ask(Ops::new().at(&s.file)), other);
        s.c.check("a fifo", ask(Ops::new().at(&s.fifo)), other);
        s.c.check("a directory", ask(Ops::new().at(&s.dir)), Status::Inval);
        s.c.check("a pseudo directory", ask(Ops::new().root()), Status::Inval);
    });
}
