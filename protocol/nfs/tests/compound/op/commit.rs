//! COMMIT (RFC 8881 §18.3).

use zgate_memory::FileOp;
use zgate_test_harness::nfs::{Ops, every_minor};
use zgate_nfs_wire::v4::op::Commit;
use zgate_nfs_wire::v4::op::commit;
use zgate_nfs_wire::v4::op::Write;
use zgate_nfs_wire::v4::{StableHow, Stateid, Status};

#[test]
fn the_verifier_is_that_of_write() {
    every_minor(|s| {
        let ops = Ops::new()
            .at(&s.file)
            .write(Stateid::ANONYMOUS, 0, b"data", StableHow::Unstable)
            .op::<Commit>(&commit::Args { offset: 0, count: 0 });
        let reply = s.c.run(ops).ok();
        assert_eq!(reply.get::<Write>().verifier, reply.get::<Commit>());
    });
}

/// On ZFS another worker than the one that syncs would tell the attributes.
#[test]
fn attributes_are_asked_for_only_if_the_file_cannot_be_opened() {
    every_minor(|s| {
        let asked = || s.harness.store.faults().calls(FileOp::GetAttr);
        let commit = |ops: Ops| ops.op::<Commit>(&commit::Args { offset: 0, count: 0 });
        let before = asked();
        s.c.run(commit(Ops::new().at(&s.file))).ok().get::<Commit>();
        assert_eq!(asked(), before);
        s.c.check("a directory", commit(Ops::new().at(&s.dir)), Status::Isdir);
        assert!(asked() > before);
    });
}

#[test]
fn errors() {
    every_minor(|s| {
        let commit = |offset, count| move |ops: Ops| ops.op::<Commit>(&commit::Args { offset, count });
        s.check_regular_only("commit", commit(0, 0));
        s.c.check("past the end of all files", commit(u64::MAX, 2)(Ops::new().at(&s.file)), Status::Inval);
        s.c.check("beyond the file", commit(1 << 40, 10)(Ops::new().at(&s.file)), Status::Ok);
        s.c.check("a pseudo directory", commit(0, 0)(Ops::new().root()), Status::Isdir);
        let secret = s.c.file(&s.root, "secret", b"x");
        s.c.setattr(&secret, Stateid::ANONYMOUS, zgate_test_harness::nfs::mode(0)).unwrap();
        s.c.as_user(1000, || {
            s.c.check("neither read nor write", commit(0, 0)(Ops::new().at(&secret)), Status::Access);
        });
    });
}
