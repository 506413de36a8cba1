//! Guarantees of COMMIT and FILE_SYNC4 over a loss of power (RFC 8881 §18.3,
//! §18.32).

use zgate_memory::FileOp;
use zgate_nfs_wire::v4::op::Commit;
use zgate_nfs_wire::v4::op::Write;
use zgate_nfs_wire::v4::op::commit;
use zgate_nfs_wire::v4::{StableHow, Stateid, Status};
use zgate_store::StoreError;
use zgate_test_harness::nfs::{Client, Harness, Ops};

fn write(c: &Client, fh: &zgate_nfs_wire::v4::Fh, text: &[u8], stable: StableHow) -> [u8; 8] {
    let ops = Ops::new().at(fh).write(Stateid::ANONYMOUS, 0, text, stable);
    c.run(ops).ok().get::<Write>().verifier
}

fn crash(harness: &Harness, c: &Client) {
    harness.store.crash();
    harness.restart_with_grace(0);
    c.reconnect();
    c.introduce(false);
}

#[test]
fn stable_writes_survive_and_the_verifier_tells() {
    for minor in 0..=2 {
        let harness = Harness::new();
        let c = harness.client("c", minor);
        let root = c.export();
        let [lost, synced, data, committed] =
            ["lost", "synced", "data", "committed"].map(|name| c.create_in(&root, name).fh);
        let before = write(&c, &lost, b"lost", StableHow::Unstable);
        write(&c, &synced, b"synced", StableHow::FileSync);
        write(&c, &data, b"data", StableHow::DataSync);
        write(&c, &committed, b"committed", StableHow::Unstable);
        let commit = Ops::new().at(&committed).op::<Commit>(&commit::Args { offset: 0, count: 0 });
        assert_eq!(c.run(commit).ok().get::<Commit>(), before, "one verifier per life");
        crash(&harness, &c);
        assert_eq!(c.content(&synced), b"synced");
        assert_eq!(c.content(&data), b"data");
        assert_eq!(c.content(&committed), b"committed");
        assert_ne!(c.content(&lost), b"lost");
        let after = write(&c, &lost, b"lost", StableHow::Unstable);
        assert_ne!(before, after, "the client must send its unstable data again");
    }
}

#[test]
fn a_loss_concerns_its_export_alone() {
    for minor in 0..=2 {
        let harness = Harness::new();
        let c = harness.client("c", minor);
        let one = c.create_in(&c.export(), "one").fh;
        let second = harness.root_of("/dir/second");
        let two = c.create_in(&second, "two").fh;
        let before = [&one, &two].map(|file| write(&c, file, b"x", StableHow::Unstable));
        let commit = |file| Ops::new().at(file).op::<Commit>(&commit::Args { offset: 0, count: 0 });
        harness.store.faults().fail_next(FileOp::Commit, StoreError::NoSpace);
        c.check("the one who is told", commit(&one), Status::Nospc);
        assert_ne!(c.run(commit(&one)).ok().get::<Commit>(), before[0], "the others learn");
        assert_eq!(c.run(commit(&two)).ok().get::<Commit>(), before[1], "nothing is lost here");
    }
}

#[test]
fn names_and_attributes_survive() {
    for minor in 0..=2 {
        let harness = Harness::new();
        let c = harness.client("c", minor);
        let root = c.export();
        let dir = c.mkdir(&root, "dir");
        let file = c.create_in(&dir, "file").fh;
        c.setattr(&file, Stateid::ANONYMOUS, zgate_test_harness::nfs::mode(0o604)).unwrap();
        c.remove(&dir, "file").unwrap();
        let kept = c.create_in(&dir, "kept").fh;
        crash(&harness, &c);
        assert_eq!(c.lookup(&root, "dir"), Ok(dir.clone()));
        assert_eq!(c.lookup(&dir, "kept"), Ok(kept), "handles survive too");
        assert_eq!(c.lookup(&dir, "file"), Err(Status::Noent));
    }
}
