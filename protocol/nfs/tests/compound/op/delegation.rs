//! DELEGPURGE, DELEGRETURN, WANT_DELEGATION and GET_DIR_DELEGATION
//! (RFC 8881 §18.5, §18.6, §18.49, §18.39).

use zgate_test_harness::nfs::{
    Client, Ops, Harness, Locked, OpenRequest, Opened, every_minor, name, sessions,
};
use zgate_nfs_wire::v4::op::Delegpurge;
use zgate_nfs_wire::v4::op::delegpurge;
use zgate_nfs_wire::v4::op::Delegreturn;
use zgate_nfs_wire::v4::op::delegreturn;
use zgate_nfs_wire::v4::op::{GetDirDelegation, WantDelegation};
use zgate_nfs_wire::v4::op::want_delegation::{GetDirArgs, GetDirRes, WantArgs};
use zgate_nfs_wire::v4::op::open::Claim;
use zgate_nfs_wire::v4::{Bitmap, Fh, LockType, Stateid, Status};

fn give_back(ops: Ops, stateid: Stateid) -> Ops {
    ops.op::<Delegreturn>(&delegreturn::Args { stateid })
}

/// A client that has read delegation of a file of the export's root, by an OPEN.
fn with_delegation(minor: u8) -> (Client, Fh, Opened) {
    let harness = Harness::new();
    let c = harness.reachable("c", minor);
    let root = c.export();
    harness.client("maker", minor).file(&root, "f", b"x");
    let opened = c.open(&OpenRequest::name(&root, "f").access(1)).unwrap();
    (c, root, opened)
}

#[test]
fn a_delegation_goes_back_once() {
    for minor in 0..=2 {
        let (c, root, opened) = with_delegation(minor);
        let held = opened.delegation();
        let at = || Ops::new().at(&opened.fh);
        c.check("no handle", give_back(Ops::new(), held), Status::Nofilehandle);
        c.check("another file's", give_back(Ops::new().at(&root), held), Status::BadStateid);
        c.check("an open's", give_back(at(), opened.stateid), Status::BadStateid);
        let ahead = Stateid { seqid: held.seqid + 1, ..held };
        c.check("a version to come", give_back(at(), ahead), Status::BadStateid);
        c.check("anonymous", give_back(at(), Stateid::ANONYMOUS), Status::BadStateid);
        c.check("pseudo", give_back(Ops::new().root(), held), Status::BadStateid);
        assert_eq!(c.read(&opened.fh, held, 0, 9).unwrap().1, "x");
        c.check("back", give_back(at(), held), Status::Ok);
        c.check("twice", give_back(at(), held), Status::BadStateid);
        assert_eq!(c.read(&opened.fh, opened.stateid, 0, 9).unwrap().1, "x");
    }
}

/// NFS4ERR_EXPIRED would say that the client has lost its state (RFC 7530 §9.1.4.4).
#[test]
fn a_delegation_is_neither_an_open_nor_a_lock_nor_the_other_way_round() {
    for minor in 0..=2 {
        let (c, root, opened) = with_delegation(minor);
        let held = opened.delegation();
        let mut fake = Opened { stateid: held, ..opened.clone() };
        let mut lock = Locked { fh: opened.fh.clone(), stateid: held, owner: "l" };
        let range = (0, 1);
        assert_eq!(c.close(&fake).unwrap_err(), Status::BadStateid, "minor version {minor}");
        assert_eq!(c.downgrade(&mut fake, 1, 0), Err(Status::BadStateid));
        assert_eq!(c.lock(&fake, "l", LockType::Read, range).unwrap_err(), Status::BadStateid);
        assert_eq!(c.lock_more(&mut lock, LockType::Read, range), Err(Status::BadStateid));
        assert_eq!(c.unlock(&mut lock, range), Err(Status::BadStateid));
        let ahead = Stateid { seqid: held.seqid + 1, ..held };
        for stateid in [opened.stateid, ahead] {
            let claim = Claim::DelegateCurrent(stateid, name("f"));
            let wish = OpenRequest::name(&root, "f").access(1).claim(claim);
            assert_eq!(c.open(&wish).unwrap_err(), Status::BadStateid, "{stateid:?}");
        }
        assert_eq!(c.read(&opened.fh, held, 0, 9).unwrap().1, "x", "it is still there");
        c.close(&opened).unwrap();
        c.delegreturn(&opened.fh, held).unwrap();
    }
}

#[test]
fn nothing_to_purge() {
    every_minor(|s| {
        let args = delegpurge::Args { clientid: s.c.id.get() };
        s.c.check("purge", Ops::new().op::<Delegpurge>(&args), Status::Notsupp);
    });
}

#[test]
fn delegations_on_request_are_not_given() {
    sessions(|s| {
        let want = WantArgs { want: 0x100, claim: 4, previous: None };
        let ops = Ops::new().at(&s.file).op::<WantDelegation>(&want);
        s.c.check("want", ops, Status::Notsupp);
        let dir = GetDirArgs {
            signal: false,
            notifications: Bitmap::default(),
            child_delay: Default::default(),
            dir_delay: Default::default(),
            child_attributes: Bitmap::default(),
            dir_attributes: Bitmap::default(),
        };
        let reply = s.c.run(Ops::new().at(&s.dir).op::<GetDirDelegation>(&dir)).ok();
        let unavailable = GetDirRes { status: 1, will_signal: false };
        assert_eq!(reply.get::<GetDirDelegation>(), unavailable, "GDD4_UNAVAIL");
        let bare = Ops::new().op::<GetDirDelegation>(&dir);
        s.c.check("no handle", bare, Status::Nofilehandle);
    });
}
