//! PUTFH, PUTROOTFH, PUTPUBFH, GETFH, SAVEFH and RESTOREFH
//! (RFC 8881 §18.8, §18.19-§18.21, §18.27, §18.28).

use zgate_test_harness::nfs::{Ops, every_minor};
use zgate_nfs_wire::v4::Fh;
use zgate_nfs_wire::v4::op::Getfh;
use zgate_nfs_wire::v4::op::Putpubfh;
use zgate_nfs_wire::v4::Status;

// Putfh, Putrootfh, Savefh and Restorefh are sent through the helpers of `Ops`.

#[test]
fn handles_go_in_and_out() {
    every_minor(|s| {
        let reply = s.c.run(Ops::new().at(&s.file).getfh()).ok();
        assert_eq!(reply.get::<Getfh>(), s.file);
        let public = s.c.run(Ops::new().op::<Putpubfh>(&()).getfh()).ok().get::<Getfh>();
        assert_eq!(public, s.c.run(Ops::new().root().getfh()).ok().get::<Getfh>());
        let ops = Ops::new().at(&s.file).save().at(&s.dir).restore().getfh();
        assert_eq!(s.c.run(ops).ok().get::<Getfh>(), s.file);
    });
}

#[test]
fn nothing_stands_in_for_a_tree_that_is_away() {
    every_minor(|s| {
        s.harness.whole_tree_away();
        s.c.check("PUTROOTFH", Ops::new().root(), Status::Delay);
        s.c.check("PUTPUBFH", Ops::new().op::<Putpubfh>(&()), Status::Delay);
    });
}

#[test]
fn errors() {
    every_minor(|s| {
        s.c.check("GETFH without", Ops::new().getfh(), Status::Nofilehandle);
        s.c.check("SAVEFH without", Ops::new().save(), Status::Nofilehandle);
        // RFC 7530 §16.31.5 and RFC 8881 §18.27.4 name two codes.
        let none_saved = s.c.run(Ops::new().at(&s.file).restore()).status;
        assert!(matches!(none_saved, Status::Restorefh | Status::Nofilehandle), "{none_saved:?}");
        for bytes in [&b""[..], b"x", &[0; 20], &[0xff; 128], &s.file.0[..9]] {
            let fh = Fh(bytes.to_vec());
            let status = s.c.run(Ops::new().at(&fh).getattr(&[1])).status;
            assert!(matches!(status, Status::Badhandle | Status::Stale), "{fh:?}: {status:?}");
        }
        s.c.check("a long handle", Ops::new().at(&Fh(vec![1; 129])), Status::Badxdr);
        let mut foreign = s.file.clone();
        foreign.0[7] ^= 1;
        s.c.check("an export that is not", Ops::new().at(&foreign), Status::Stale);
        let mut longer = s.file.clone();
        longer.0.push(0);
        let status = s.c.run(Ops::new().at(&longer).getattr(&[1])).status;
        assert!(matches!(status, Status::Badhandle | Status::Stale), "{status:?}");
        let closed = s.harness.root_of("/closed");
        s.c.check("an export for others", Ops::new().at(&closed), Status::Stale);
        let weak = s.harness.root_of("/weak");
        s.c.check("the wrong flavour", Ops::new().at(&weak).getfh(), Status::Wrongsec);
        let old = s.harness.root_of("/old");
        let expected = if s.c.minor == 0 { Status::Ok } else { Status::Stale };
        s.c.check("another minor version's export", Ops::new().at(&old), expected);
    });
}
