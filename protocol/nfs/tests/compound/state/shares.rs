//! Share reservations between clients (RFC 8881 §9.7).

use zgate_nfs_wire::v4::{Stateid, Status};
use zgate_test_harness::nfs::{Harness, OpenRequest};

/// Every pair of (access, deny) against every other, between two clients.
#[test]
fn the_whole_matrix() {
    for (one, two) in [(0, 0), (1, 1), (2, 2), (0, 1), (2, 0), (1, 2)] {
        let harness = Harness::new();
        let (a, b) = (harness.client("a", one), harness.client("b", two));
        let root = a.export();
        a.file(&root, "f", b"x");
        let wish = |access, deny| OpenRequest::name(&root, "f").access(access).deny(deny);
        for held in 0..12_u32 {
            let (access, deny) = (held % 3 + 1, held / 3);
            let first = a.open(&wish(access, deny)).unwrap();
            for asked in 0..12_u32 {
                let (want, refuse) = (asked % 3 + 1, asked / 3);
                let result = b.open(&wish(want, refuse));
                let conflict = access & refuse != 0 || deny & want != 0;
                match result {
                    Ok(second) => {
                        assert!(!conflict, "{access} {deny} against {want} {refuse}");
                        b.close(&second).unwrap();
                    }
                    Err(status) => {
                        assert_eq!((status, conflict), (Status::ShareDenied, true));
                    }
                }
            }
            // Without an open, a denial is NFS4ERR_LOCKED (RFC 8881 §9.1.2).
            let read = b.read(&first.fh, Stateid::ANONYMOUS, 0, 1);
            assert_eq!(read.err(), (deny & 1 != 0).then_some(Status::Locked));
            let write = b.write(&first.fh, Stateid::ANONYMOUS, 0, b"x");
            assert_eq!(write, if deny & 2 == 0 { Ok(1) } else { Err(Status::Locked) });
            a.close(&first).unwrap();
        }
    }
}

#[test]
fn opens_of_one_owner_add_up() {
    for minor in 0..=2 {
        let harness = Harness::new();
        let (a, b) = (harness.client("a", minor), harness.client("b", minor));
        let root = a.export();
        a.file(&root, "f", b"x");
        let first = a.open(&OpenRequest::name(&root, "f").access(1).deny(2)).unwrap();
        let status = a.open(&OpenRequest::name(&root, "f").access(2)).unwrap_err();
        assert_eq!(status, Status::ShareDenied, "an owner's own denial counts too");
        let second = a.open(&OpenRequest::name(&root, "f").access(1).deny(0)).unwrap();
        assert_eq!(second.stateid.other, first.stateid.other);
        assert_eq!(second.stateid.seqid, first.stateid.seqid + 1);
        // One CLOSE ends all of them.
        let refused = b.open(&OpenRequest::name(&root, "f").access(2));
        assert_eq!(refused.unwrap_err(), Status::ShareDenied);
        a.close(&second).unwrap();
        assert!(b.open(&OpenRequest::name(&root, "f").access(2)).is_ok());
    }
}
