//! Grants of delegations, and what the holder is told of the file (RFC 8881 §10.4).

use super::delegations::{Fixture, knows};
use super::grace::{come_back, reclaim};
use zgate_memory::{FileOp, When};
use zgate_nfs_wire::v4::op::open::{
    CONTENTION, Claim, Delegated, How, NOT_SUPP_DOWNGRADE, NOT_SUPP_UPGRADE, WANT_READ, WANT_WRITE,
};
use zgate_nfs_wire::v4::op::{Getattr, Open, Sequence};
use zgate_nfs_wire::v4::{Stateid, Status};
use zgate_test_harness::nfs::{
    CallbackBehavior, GRACE, Harness, LEASE, OpenRequest, Ops, Reply, mode,
};

#[test]
fn a_new_file_may_be_delegated_to_its_maker() {
    for minor in 0..=2 {
        let s = Fixture::new(minor);
        // In minor version 0 its owner has to be known.
        let first = s.take(1);
        s.holder.delegreturn(&first.fh, first.delegation()).unwrap();
        s.holder.close(&first).unwrap();
        let wish = OpenRequest::name(&s.root, "new").how(How::Guarded(mode(0o600)));
        let faults = s.harness.store.faults();
        let calls = || [FileOp::Open, FileOp::GetAttr].map(|call| faults.calls(call));
        let [opens, asked] = calls();
        let opened = s.holder.open(&wish).unwrap();
        assert!(matches!(opened.delegated, Delegated::Write { .. }));
        // It is open already, and its attributes are read after the grant alone.
        assert_eq!(calls(), [opens, asked + 1]);
        let held = opened.delegation();
        assert_eq!(s.holder.write(&opened.fh, held, 0, b"x"), Ok(1));
        assert_eq!(s.holder.read(&opened.fh, held, 0, 9).unwrap().1, "x");
        // A maker who could not open it again must not decide about that.
        s.other.setattr(&s.root, Stateid::ANONYMOUS, mode(0o777)).unwrap();
        s.holder.as_user(1000, || {
            let wish = OpenRequest::name(&s.root, "mine").owner("user");
            let opened = s.holder.open(&wish.how(How::Guarded(mode(0o400)))).unwrap();
            assert!(!matches!(opened.delegated, Delegated::Write { .. }));
        });
    }
}

#[test]
fn a_delegation_given_while_a_writer_waits_for_storage_is_recalled() {
    for minor in 1..=2 {
        let s = Fixture::new(minor);
        let hold = s.harness.store.faults().hold_next(FileOp::Open, When::AfterEffect);
        let writer = s.other.open_args(&s.wish().access(2));
        let next = s.other.slots.borrow()[0] + 1;
        let ops = Ops::new().at(&s.root).op::<Open>(&writer);
        let pending = s.other.begin(0, next, ops);
        s.harness.simulation.settle();
        assert!(pending.borrow().is_none());
        let reader = s.take(1);
        assert!(matches!(reader.delegated, Delegated::Read { .. }));
        hold.release();
        s.harness.simulation.settle();
        s.other.slots.borrow_mut()[0] = next;
        assert_eq!(s.recalled(), 1);
        assert_eq!(s.other.open(&s.wish().access(2)).unwrap_err(), Status::Delay);
        s.holder.delegreturn(&reader.fh, reader.delegation()).unwrap();
        assert!(s.other.open(&s.wish().access(2)).is_ok());
    }
}

/// Nothing is recalled for a change that ends before the grant: the holder must know of it.
#[test]
fn the_holder_is_told_of_a_change_that_ended_just_before_the_grant() {
    for minor in 1..=2 {
        let s = Fixture::new(minor);
        let hold = s.harness.store.faults().hold_next(FileOp::CreateFile, When::AfterEffect);
        let wish = OpenRequest::name(&s.root, "new").how(How::Guarded(mode(0o666)));
        let args = s.holder.open_args(&wish);
        let ops = || Ops::new().at(&s.root).op::<Open>(&args).getattr(&[3, 4]);
        let pending = s.holder.begin_next(ops());
        s.harness.simulation.settle();
        assert_eq!(hold.waiting(), 1, "the file is there, with the attributes before the grant");
        let written = s.other.open(&OpenRequest::name(&s.root, "new")).unwrap();
        s.other.write(&written.fh, written.stateid, 0, b"xyz").unwrap();
        s.other.close(&written).unwrap();
        hold.release();
        s.harness.simulation.settle();
        let raw = pending.borrow().clone().unwrap();
        let asked = ops().after(Ops::new().op::<Sequence>(&s.holder.sequence_args(0, 1)));
        let reply = Reply::parse(raw, &asked.encode(b"", u32::from(minor)).1).ok();
        assert!(matches!(reply.get::<Open>().delegated, Delegated::Write { .. }));
        let told = reply.get::<Getattr>().values.0;
        let number = |at: usize| u64::from_be_bytes(told[at..at + 8].try_into().unwrap());
        let (change, size) = (number(0), number(8));
        assert_eq!(size, 3, "minor version {minor}");
        // It has changed nothing since: nor has the file changed for users of another export.
        s.holder.answers_callbacks(CallbackBehavior::Knows(knows(change, size)));
        let same = s.other.lookup(&s.harness.root_of("/dir/ro"), "new").unwrap();
        assert_eq!(s.other.number(&same, 3), change, "minor version {minor}");
    }
}

/// Without the owner's rights to it, a new file is opened once more for its delegation.
#[test]
fn the_maker_of_a_file_that_another_client_uses_is_told_what_that_has_written() {
    for minor in 1..=2 {
        let s = Fixture::new(minor);
        let hold = s.harness.store.faults().hold_next(FileOp::Open, When::AfterEffect);
        let wish = OpenRequest::name(&s.root, "new").how(How::Guarded(mode(0o066)));
        let args = s.holder.open_args(&wish);
        let ops = || Ops::new().at(&s.root).op::<Open>(&args).getattr(&[4]);
        let pending = s.holder.begin_next(ops());
        s.harness.simulation.settle();
        assert_eq!(hold.waiting(), 1, "nobody else had the file before");
        let written = s.other.open(&OpenRequest::name(&s.root, "new")).unwrap();
        s.other.write(&written.fh, written.stateid, 0, b"xyz").unwrap();
        hold.release();
        s.harness.simulation.settle();
        let raw = pending.borrow().clone().unwrap();
        let asked = ops().after(Ops::new().op::<Sequence>(&s.holder.sequence_args(0, 1)));
        let reply = Reply::parse(raw, &asked.encode(b"", u32::from(minor)).1).ok();
        assert!(matches!(reply.get::<Open>().delegated, Delegated::None));
        let size = u64::from_be_bytes(reply.get::<Getattr>().values.0.try_into().unwrap());
        assert_eq!(size, 3, "minor version {minor}");
    }
}

/// RFC 8881 §18.16.3: who asks for a delegation and gets none is told why, whatever the claim.
#[test]
fn a_delegation_that_the_client_has_is_a_reason_for_no_other() {
    for minor in 1..=2 {
        let s = Fixture::new(minor);
        let wish = |access, owner| s.wish().access(access).owner(owner);
        let told = |wish: &OpenRequest| s.holder.open(wish).unwrap().delegated;
        let read = s.holder.open(&wish(1 | WANT_READ, "one")).unwrap();
        assert_eq!(told(&wish(1 | WANT_READ, "two")), Delegated::NoneBecause(CONTENTION));
        assert_eq!(told(&wish(1 | WANT_WRITE, "two")), Delegated::NoneBecause(NOT_SUPP_UPGRADE));
        let under_it = |access| {
            let claim = Claim::DelegateCurrentFh(read.delegation());
            OpenRequest { fh: read.fh.clone(), ..wish(access, "three").claim(claim) }
        };
        assert_eq!(told(&under_it(1)), Delegated::None, "it did not ask");
        for (want, why) in [(WANT_READ, CONTENTION), (WANT_WRITE, NOT_SUPP_UPGRADE)] {
            assert_eq!(told(&under_it(1 | want)), Delegated::NoneBecause(why), "{want:x}");
        }
        s.holder.delegreturn(&read.fh, read.delegation()).unwrap();
        assert!(matches!(told(&wish(3 | WANT_WRITE, "four")), Delegated::Write { .. }));
        assert_eq!(told(&wish(1 | WANT_READ, "five")), Delegated::NoneBecause(NOT_SUPP_DOWNGRADE));
        assert_eq!(told(&wish(1 | WANT_WRITE, "six")), Delegated::NoneBecause(CONTENTION));
    }
}

/// RFC 8881 §18.16.4.
#[test]
fn who_denies_writing_alone_recalls_no_read_delegation() {
    for minor in 0..=2 {
        let s = Fixture::new(minor);
        let held = s.take(1);
        let denier = s.other.open(&s.wish().access(1).deny(2)).unwrap();
        assert_eq!(s.recalled(), 0, "minor version {minor}");
        s.other.close(&denier).unwrap();
        s.holder.close(&held).unwrap();
        let wish = s.wish().access(1).deny(1).owner("alone");
        assert_eq!(s.other.open(&wish).unwrap_err(), Status::Delay, "it may read by itself");
        assert_eq!(s.recalled(), 1);
    }
}

/// Before it returns a delegation, a client opens and locks at the server what it has under it. In
/// grace it cannot.
#[test]
fn who_could_not_be_called_at_the_reclaim_has_a_lease_after_grace_to_return_it() {
    for minor in 0..=2 {
        let harness = Harness::new();
        // Grace does not end before its time: the maker does not come back.
        let (holder, maker) = (harness.reachable("holder", minor), harness.client("maker", minor));
        let root = holder.export();
        let fh = maker.file(&root, "f", b"x");
        holder.open(&OpenRequest::name(&root, "f")).unwrap();
        harness.restart();
        come_back(&holder);
        let back = holder.open(&reclaim(&fh, 2)).unwrap();
        assert!(matches!(back.delegated, Delegated::Write { recall: true, .. }));
        if minor > 0 {
            holder.reclaim_complete().unwrap();
        }
        let stay = |seconds: u64| {
            for _ in 0..seconds {
                harness.pass_seconds(1);
                holder.read(&fh, back.stateid, 0, 1).unwrap();
            }
        };
        let claim = Claim::DelegateCurrent(back.delegation(), b"f".as_slice().into());
        let under_it = OpenRequest::name(&root, "f").owner("local").claim(claim);
        assert_eq!(holder.open(&under_it).unwrap_err(), Status::Grace, "minor version {minor}");
        stay(GRACE + 5);
        assert!(holder.open(&under_it).is_ok(), "minor version {minor}");
        stay(LEASE);
        assert!(holder.delegreturn(&fh, back.delegation()).is_err(), "minor version {minor}");
    }
}
