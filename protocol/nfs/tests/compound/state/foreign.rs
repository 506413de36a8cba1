//! NFSv3 beside NFSv4: the stateless protocol respects delegations, shares and
//! locks. What happens below the server takes delegations back, too.

use super::grace::{come_back, reclaim};
use bytes::Bytes;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use zgate_memory::{FileOp, When};
use zgate_nfs::limits::{
    GRACE_WAIT_MILLISECONDS, LEASES_OF_A_RUNNING_REQUEST, MAX_GRACE_HELD_BYTES, MAX_GRACE_WAITERS,
    MAX_TRANSFER_BYTES,
};
use zgate_nfs::namespace::ExportId;
use zgate_nfs::v3;
use zgate_nfs::v4::guard::StateGuard;
use zgate_nfs::write_verifier::WriteVerifier;
use zgate_nfs_wire::v4::Fh;
use zgate_nfs_wire::v4::StableHow;
use zgate_nfs_wire::v4::callback::CallbackOp;
use zgate_nfs_wire::v4::op::open::Delegated;
use zgate_test_harness::nfs::{CallbackBehavior, Client, GRACE, Harness, LEASE, OpenRequest, Ops};
use zgate_xdr::{Decoder, Encoder};

const READ: u32 = 6;
const WRITE: u32 = 7;
const REMOVE: u32 = 12;
pub(super) const JUKEBOX: u32 = 10_008;

/// An NFSv3 server on the same exports and state.
fn three(harness: &Harness) -> v3::Server {
    let server = harness.server();
    let guard = Arc::new(StateGuard::default());
    guard.connect(&server);
    let namespace: v3::NamespaceSource = Arc::new(move || server.namespace());
    v3::Server { namespace, write_verifier: WriteVerifier::new(*b"verifier"), guard }
}

/// Begins a call that succeeds.
pub(super) fn begin_three(c: &Client, procedure: u32, args: Bytes) {
    begin(c, procedure, args, move |status| assert_eq!(status, 0, "procedure {procedure}"));
}

/// Begins a call; it goes on while the simulation runs, and tells its status at its end.
fn begin(c: &Client, procedure: u32, args: Bytes, tell: impl FnOnce(u32) + 'static) {
    let (server, rpc) = (three(&c.harness), c.rpc_call());
    c.harness.simulation.spawn(Box::pin(async move {
        let mut e = Encoder::new();
        server.handle(&rpc, procedure, &mut Decoder::new(&args), &mut e).await.unwrap();
        let answer = e.finish().flatten().unwrap();
        tell(Decoder::new(&answer).u32().unwrap());
    }));
}

/// Arguments of a READ of as many bytes, or a WRITE of these.
fn arguments(procedure: u32, fh: &Fh, data: &[u8]) -> Encoder {
    let mut args = Encoder::new();
    args.opaque(&fh.0);
    args.u64(0);
    args.u32(data.len() as u32);
    if procedure == WRITE {
        args.u32(0);
        args.opaque(data);
    }
    args
}

/// The status of a READ or WRITE of one byte.
fn call(c: &Client, procedure: u32, fh: &Fh) -> u32 {
    status_of(c, procedure, arguments(procedure, fh, b"3"))
}

/// Begins a WRITE; its status is there once it is answered.
fn begin_write(c: &Client, fh: &Fh, data: &[u8]) -> Rc<Cell<Option<u32>>> {
    let args = arguments(WRITE, fh, data).finish().flatten().unwrap();
    let answered = Rc::new(Cell::new(None));
    let told = Rc::clone(&answered);
    begin(c, WRITE, args, move |status| told.set(Some(status)));
    answered
}

/// The status of a REMOVE.
pub(super) fn remove_by_three(c: &Client, dir: &Fh, name: &str) -> u32 {
    let mut args = Encoder::new();
    args.opaque(&dir.0);
    args.opaque(name.as_bytes());
    status_of(c, REMOVE, args)
}

fn status_of(c: &Client, procedure: u32, args: Encoder) -> u32 {
    let args = args.finish().flatten().unwrap();
    let (server, rpc) = (three(&c.harness), c.rpc_call());
    let answer = c.harness.simulation.drive(Box::pin(async move {
        let mut e = Encoder::new();
        server.handle(&rpc, procedure, &mut Decoder::new(&args), &mut e).await.unwrap();
        e.finish().flatten().unwrap()
    }));
    Decoder::new(&answer).u32().unwrap()
}

#[test]
fn delegations_are_recalled_for_it() {
    for minor in 0..=2 {
        let harness = Harness::new();
        let (holder, other) = (harness.reachable("holder", minor), harness.client("other", 2));
        let root = other.export();
        let fh = other.file(&root, "f", b"content");
        let read = holder.open(&OpenRequest::name(&root, "f").access(1)).unwrap();
        assert_eq!(call(&other, READ, &fh), 0, "readers disturb no reader");
        assert_eq!(call(&other, WRITE, &fh), JUKEBOX);
        assert!(matches!(holder.callbacks()[..], [CallbackOp::Recall { .. }]));
        holder.delegreturn(&fh, read.delegation()).unwrap();
        assert_eq!(call(&other, WRITE, &fh), 0);
        harness.pass_seconds(11);
        let write = holder.open(&OpenRequest::name(&root, "f").owner("w")).unwrap();
        assert_eq!(call(&other, READ, &fh), JUKEBOX);
        holder.delegreturn(&fh, write.delegation()).unwrap();
        assert_eq!(call(&other, READ, &fh), 0);
    }
}

#[test]
fn it_reads_behind_a_lost_delegation_when_stable_storage_knows_of_that() {
    for minor in 0..=2 {
        let harness = Harness::new();
        let (holder, other) = (harness.reachable("holder", minor), harness.client("other", 2));
        let root = other.export();
        let fh = other.file(&root, "f", b"content");
        let held = holder.open(&OpenRequest::name(&root, "f")).unwrap();
        holder.answers_callbacks(CallbackBehavior::Silent);
        assert_eq!(call(&other, READ, &fh), JUKEBOX);
        harness.records.hold();
        for _ in 0..2 * LEASE {
            harness.pass_seconds(1);
            holder.read(&fh, held.stateid, 0, 1).unwrap();
        }
        assert_eq!(call(&other, READ, &fh), JUKEBOX, "minor version {minor}");
        harness.records.release();
        assert_eq!(call(&other, READ, &fh), 0);
    }
}

#[test]
fn what_is_held_through_another_export_is_respected() {
    for minor in 0..=2 {
        let harness = Harness::new();
        let (holder, other) = (harness.reachable("holder", minor), harness.client("other", 2));
        let fh = other.file(&other.export(), "f", b"content");
        let same = harness.root_of("/dir/ro");
        let held = holder.open(&OpenRequest::name(&same, "f").access(1).deny(2)).unwrap();
        assert_eq!(call(&other, READ, &fh), 0);
        assert_eq!(call(&other, WRITE, &fh), JUKEBOX);
        assert!(matches!(holder.callbacks()[..], [CallbackOp::Recall { .. }]));
        holder.delegreturn(&held.fh, held.delegation()).unwrap();
        assert_eq!(call(&other, WRITE, &fh), JUKEBOX, "denied");
        holder.close(&held).unwrap();
        assert_eq!(call(&other, WRITE, &fh), 0);
    }
}

#[test]
fn delegations_are_recalled_when_the_content_is_replaced_below() {
    for minor in 0..=2 {
        let harness = Harness::new();
        let other = harness.client("other", 2);
        let holders = [harness.reachable("reader", minor), harness.reachable("writer", minor)];
        let root = other.export();
        let fh = other.file(&root, "f", b"content");
        other.file(&root, "g", b"content");
        let read = holders[0].open(&OpenRequest::name(&root, "f").access(1)).unwrap();
        let write = holders[1].open(&OpenRequest::name(&root, "g")).unwrap();
        let replaced = |path| {
            let exports = BTreeSet::from([ExportId::from_pseudo_path(path)]);
            harness.server().content_replaced(&exports);
            harness.simulation.settle();
        };
        replaced("/dir/second");
        assert!(holders.iter().all(|holder| holder.callbacks().is_empty()), "another export");
        replaced("/export");
        for (holder, held) in holders.iter().zip([&read, &write]) {
            let recalls = holder.callbacks();
            let [CallbackOp::Recall { stateid, .. }] = recalls[..] else { panic!("{recalls:?}") };
            assert_eq!(stateid, held.delegation(), "minor version {minor}");
        }
        holders[0].delegreturn(&fh, read.delegation()).unwrap();
        assert!(holders[0].read(&fh, read.stateid, 0, 1).is_ok(), "its open stays");
        replaced("/export");
        assert_eq!(holders[1].callbacks().len(), 1, "it is on its way back");
    }
}

#[test]
fn delegations_reclaimed_after_the_content_was_replaced_are_recalled() {
    for (minor, is_replaced) in [(1, true), (1, false), (2, true), (2, false)] {
        let harness = Harness::new();
        let holder = harness.reachable("holder", minor);
        let root = holder.export();
        harness.client("maker", minor).file(&root, "f", b"content");
        let held = holder.open(&OpenRequest::name(&root, "f").access(1)).unwrap();
        harness.restart();
        holder.reconnect();
        holder.introduce_for_reclaim(true);
        let exports = BTreeSet::from([ExportId::from_pseudo_path("/export")]);
        if is_replaced {
            harness.server().content_replaced(&exports);
        } else {
            harness.server().appeared(&exports);
        }
        let back = holder.open(&reclaim(&held.fh, 1).access(1)).unwrap();
        let Delegated::Read { recall, .. } = back.delegated else { panic!("{:?}", back.delegated) };
        harness.simulation.settle();
        let recalls = holder.callbacks();
        let recalls = recalls.iter().filter(|op| matches!(op, CallbackOp::Recall { .. })).count();
        let expected = (is_replaced, usize::from(is_replaced));
        assert_eq!((recall, recalls), expected, "minor version {minor}");
        holder.delegreturn(&held.fh, back.delegation()).unwrap();
    }
}

#[test]
fn share_reservations_hold_until_the_lease_is_over() {
    for minor in 0..=2 {
        let harness = Harness::new();
        let (a, b) = (harness.client("a", minor), harness.client("b", 2));
        let root = a.export();
        let fh = a.file(&root, "f", b"content");
        a.open(&OpenRequest::name(&root, "f").access(1).deny(2)).unwrap();
        assert_eq!(call(&b, READ, &fh), 0);
        assert_ne!(call(&b, WRITE, &fh), 0);
        harness.pass_seconds(LEASE + 1);
        b.run(Ops::new().root());
        assert_eq!(call(&b, WRITE, &fh), 0, "courtesy ends with the conflict");
    }
}

/// READ looks for share reservations from the first open file on, and while there is any.
#[test]
fn it_reads_what_no_open_denies_to_read() {
    for minor in 0..=2 {
        let harness = Harness::new();
        let (a, b) = (harness.client("a", minor), harness.client("b", 2));
        let root = a.export();
        let fh = a.file(&root, "f", b"content");
        for _ in 0..2 {
            assert_eq!(call(&b, READ, &fh), 0, "nothing is open");
            let denies = a.open(&OpenRequest::name(&root, "f").deny(1)).unwrap();
            assert_eq!(call(&b, READ, &fh), JUKEBOX, "minor version {minor}");
            a.close(&denies).unwrap();
        }
        assert_eq!(call(&b, READ, &fh), 0);
    }
}

#[test]
fn it_changes_nothing_while_others_may_reclaim() {
    for minor in 0..=2 {
        let harness = Harness::new();
        let holder = harness.client("holder", minor);
        let fh = holder.create("f").fh;
        harness.restart();
        let other = harness.stranger("other", 2);
        assert_eq!(call(&other, WRITE, &fh), JUKEBOX);
        assert_eq!(call(&other, READ, &fh), 0);
        harness.pass_seconds(GRACE + 5);
        assert_eq!(call(&other, WRITE, &fh), 0);
    }
}

#[test]
fn it_waits_a_short_time_for_the_end_of_grace() {
    for minor in 1..=2 {
        let harness = Harness::new();
        let holder = harness.client("holder", minor);
        let fh = holder.create("f").fh;
        harness.restart();
        let other = harness.stranger("other", 2);
        let written = begin_write(&other, &fh, b"3");
        harness.simulation.settle();
        assert_eq!(written.get(), None);
        come_back(&holder);
        holder.open(&reclaim(&fh, 0)).unwrap();
        assert_eq!(written.get(), None, "the holder may reclaim more");
        holder.reclaim_complete().unwrap();
        harness.pass_seconds(1);
        assert_eq!(written.get(), Some(0));
        // Nobody comes back: it is not waited for without an end.
        harness.restart();
        let asked = harness.simulation.clock().monotonic_nanos;
        assert_eq!(call(&other, WRITE, &fh), JUKEBOX);
        let waited = (harness.simulation.clock().monotonic_nanos - asked) / 1_000_000;
        assert!((GRACE_WAIT_MILLISECONDS..GRACE_WAIT_MILLISECONDS + 1000).contains(&waited));
    }
}

#[test]
fn what_waits_for_the_end_of_grace_is_bounded_in_number_and_data() {
    let large = vec![3_u8; MAX_TRANSFER_BYTES];
    let whole = MAX_GRACE_HELD_BYTES / MAX_TRANSFER_BYTES;
    for (data, most) in [(&large[..], whole), (&b"3"[..], MAX_GRACE_WAITERS)] {
        let harness = Harness::new();
        let fh = harness.client("holder", 1).create("f").fh;
        harness.restart();
        let other = harness.stranger("other", 2);
        let waiting: Vec<_> = (0..most).map(|_| begin_write(&other, &fh, data)).collect();
        harness.simulation.settle();
        assert!(waiting.iter().all(|status| status.get().is_none()));
        let further = begin_write(&other, &fh, b"3");
        harness.simulation.settle();
        assert_eq!(further.get(), Some(JUKEBOX), "{} bytes", data.len());
        harness.pass_seconds(GRACE_WAIT_MILLISECONDS / 1000 + 1);
        assert!(waiting.iter().all(|status| status.get() == Some(JUKEBOX)));
    }
}

#[test]
fn nothing_is_delegated_right_after_it_wrote() {
    use zgate_nfs_wire::v4::op::open::Delegated;
    for minor in 0..=2 {
        let harness = Harness::new();
        let (holder, other) = (harness.reachable("holder", minor), harness.client("other", 2));
        let root = other.export();
        let fh = other.file(&root, "f", b"content");
        assert_eq!(call(&other, WRITE, &fh), 0);
        let wish = OpenRequest::name(&root, "f").access(1);
        let soon = holder.open(&wish).unwrap();
        assert!(matches!(soon.delegated, Delegated::None), "the write may still be under way");
        holder.close(&soon).unwrap();
        harness.pass_seconds(5);
        let later = holder.open(&wish).unwrap();
        assert!(matches!(later.delegated, Delegated::Read { .. }));
    }
}

#[test]
fn it_gets_nothing_of_an_expired_client_whose_write_still_runs() {
    for minor in 0..=2 {
        let harness = Harness::new();
        let (a, b) = (harness.client("a", minor), harness.client("b", 2));
        let root = a.export();
        let fh = a.file(&root, "f", b"content");
        let opened = a.open(&OpenRequest::name(&root, "f").deny(3)).unwrap();
        let hold = harness.store.faults().hold_next(FileOp::Write, When::BeforeEffect);
        let ops = Ops::new().at(&fh).write(opened.stateid, 0, b"old", StableHow::FileSync);
        let _late = a.begin_next(ops);
        harness.simulation.settle();
        // A running request keeps the lease for that long.
        for _ in 0..LEASES_OF_A_RUNNING_REQUEST {
            harness.pass_seconds(LEASE);
            b.run(Ops::new().root());
        }
        harness.pass_seconds(1);
        assert_eq!((call(&b, READ, &fh), call(&b, WRITE, &fh)), (JUKEBOX, JUKEBOX));
        hold.release();
        harness.simulation.settle();
        assert_eq!((call(&b, WRITE, &fh), call(&b, READ, &fh)), (0, 0));
    }
}
