//! NFSv3 beside NFSv4: the stateless protocol respects what was promised.

use crate::rig::{Client, GRACE, Heard, LEASE, Ops, Rig, Wish};
use bytes::Bytes;
use std::sync::Arc;
use zgate_memory::{FileOp, When};
use zgate_nfs::namespace::Fh;
use zgate_nfs::v3;
use zgate_nfs::v4::guard::StateGuard;
use zgate_nfs::v4::wire::StableHow;
use zgate_nfs::write_verifier::WriteVerifier;
use zgate_xdr::{Decoder, Encoder};

const READ: u32 = 6;
const WRITE: u32 = 7;
const JUKEBOX: u32 = 10_008;

/// An NFSv3 server over the same exports and state.
fn three(rig: &Rig) -> v3::Server {
    let server = rig.server();
    let guard = Arc::new(StateGuard::default());
    guard.connect(&server);
    let namespace: v3::NamespaceSource = Arc::new(move || server.namespace());
    v3::Server { namespace, write_verifier: WriteVerifier::new(*b"verifier"), guard }
}

/// Begins a call; it goes on as the world does.
pub(super) fn begin_three(c: &Client, procedure: u32, args: Bytes) {
    let (server, rpc) = (three(&c.rig), c.rpc_call());
    c.rig.world.spawn(Box::pin(async move {
        let mut e = Encoder::new();
        server.handle(&rpc, procedure, &mut Decoder::new(&args), &mut e).await.unwrap();
        let answer = e.finish().flatten().unwrap();
        assert_eq!(Decoder::new(&answer).u32(), Ok(0), "procedure {procedure}");
    }));
}

/// The status of a READ or WRITE of one byte.
fn call(c: &Client, procedure: u32, fh: &Fh) -> u32 {
    let mut args = Encoder::new();
    args.opaque(&fh.0);
    args.u64(0);
    args.u32(1);
    if procedure == WRITE {
        args.u32(0);
        args.opaque(b"3");
    }
    let args = args.finish().flatten().unwrap();
    let (server, rpc) = (three(&c.rig), c.rpc_call());
    let answer = c.rig.world.drive(Box::pin(async move {
        let mut e = Encoder::new();
        server.handle(&rpc, procedure, &mut Decoder::new(&args), &mut e).await.unwrap();
        e.finish().flatten().unwrap()
    }));
    Decoder::new(&answer).u32().unwrap()
}

#[test]
fn delegations_are_recalled_for_it() {
    for minor in 0..=2 {
        let rig = Rig::new();
        let (holder, other) = (rig.reachable("holder", minor), rig.client("other", 2));
        let root = other.export();
        let fh = other.file(&root, "f", b"content");
        let read = holder.open(&Wish::name(&root, "f").access(1)).unwrap();
        assert_eq!(call(&other, READ, &fh), 0, "readers disturb no reader");
        assert_eq!(call(&other, WRITE, &fh), JUKEBOX);
        assert!(matches!(holder.heard()[..], [Heard::Recall { .. }]));
        holder.delegreturn(&fh, read.delegation()).unwrap();
        assert_eq!(call(&other, WRITE, &fh), 0);
        rig.pass_seconds(11);
        let write = holder.open(&Wish::name(&root, "f").owner("w")).unwrap();
        assert_eq!(call(&other, READ, &fh), JUKEBOX);
        holder.delegreturn(&fh, write.delegation()).unwrap();
        assert_eq!(call(&other, READ, &fh), 0);
    }
}

#[test]
fn share_reservations_hold_until_the_lease_is_over() {
    for minor in 0..=2 {
        let rig = Rig::new();
        let (a, b) = (rig.client("a", minor), rig.client("b", 2));
        let root = a.export();
        let fh = a.file(&root, "f", b"content");
        a.open(&Wish::name(&root, "f").access(1).deny(2)).unwrap();
        assert_eq!(call(&b, READ, &fh), 0);
        assert_ne!(call(&b, WRITE, &fh), 0);
        rig.pass_seconds(LEASE + 1);
        b.run(Ops::new().root());
        assert_eq!(call(&b, WRITE, &fh), 0, "courtesy ends with the conflict");
    }
}

#[test]
fn it_changes_nothing_while_others_may_reclaim() {
    for minor in 0..=2 {
        let rig = Rig::new();
        let holder = rig.client("holder", minor);
        let fh = holder.create("f").fh;
        rig.restart();
        let other = rig.stranger("other", 2);
        assert_eq!(call(&other, WRITE, &fh), JUKEBOX);
        assert_eq!(call(&other, READ, &fh), 0);
        rig.pass_seconds(GRACE + 5);
        assert_eq!(call(&other, WRITE, &fh), 0);
    }
}

#[test]
fn nothing_is_delegated_right_after_it_wrote() {
    use zgate_nfs::v4::op::open::Delegated;
    for minor in 0..=2 {
        let rig = Rig::new();
        let (holder, other) = (rig.reachable("holder", minor), rig.client("other", 2));
        let root = other.export();
        let fh = other.file(&root, "f", b"content");
        assert_eq!(call(&other, WRITE, &fh), 0);
        let wish = Wish::name(&root, "f").access(1);
        let soon = holder.open(&wish).unwrap();
        assert!(matches!(soon.delegated, Delegated::None), "the write may still be under way");
        holder.close(&soon).unwrap();
        rig.pass_seconds(5);
        let later = holder.open(&wish).unwrap();
        assert!(matches!(later.delegated, Delegated::Read { .. }));
    }
}

#[test]
fn it_gets_nothing_of_an_expired_client_whose_write_still_runs() {
    for minor in 0..=2 {
        let rig = Rig::new();
        let (a, b) = (rig.client("a", minor), rig.client("b", 2));
        let root = a.export();
        let fh = a.file(&root, "f", b"content");
        let opened = a.open(&Wish::name(&root, "f").deny(3)).unwrap();
        let hold = rig.store.faults().hold_next(FileOp::Write, When::BeforeEffect);
        let ops = Ops::new().at(&fh).write(opened.stateid, 0, b"old", StableHow::FileSync);
        let _late = a.begin_next(ops);
        rig.world.settle();
        rig.pass_seconds(LEASE + 1);
        b.run(Ops::new().root());
        assert_eq!((call(&b, READ, &fh), call(&b, WRITE, &fh)), (JUKEBOX, JUKEBOX));
        hold.release();
        rig.world.settle();
        assert_eq!((call(&b, WRITE, &fh), call(&b, READ, &fh)), (0, 0));
    }
}
