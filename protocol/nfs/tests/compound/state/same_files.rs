//! Two exports of the same files, `/export` and `/dir/ro`: what a client holds of a file
//! through the one conflicts with what is asked for through the other, and ends with the
//! export that it is held through.

use super::foreign::{JUKEBOX, remove_by_three};
use std::rc::Rc;
use zgate_nfs_wire::v4::callback::CallbackOp;
use zgate_nfs_wire::v4::op::open::Delegated;
use zgate_nfs_wire::v4::op::{Clone as CloneOp, Copy as CopyOp, clone, copy};
use zgate_nfs_wire::v4::{Fh, LockType, Stateid, Status};
use zgate_test_harness::nfs::{
    CallbackBehavior, Client, Harness, OpenRequest, Opened, Ops, attrs, mode,
};

/// Files `f` and `other`, two clients without delegations and one that takes them.
struct Fixture {
    harness: Rc<Harness>,
    a: Client,
    b: Client,
    holder: Client,
    /// The roots of the exports.
    rw: Fh,
    ro: Fh,
    /// `f` in `/export`.
    file: Fh,
    /// `other` in `/export`.
    other: Fh,
}

impl Fixture {
    fn new(minor: u8) -> Self {
        let harness = Harness::new();
        let (a, b) = (harness.client("a", minor), harness.client("b", minor));
        let holder = harness.reachable("holder", minor);
        let (rw, ro) = (harness.root_of("/export"), harness.root_of("/dir/ro"));
        let file = a.file(&rw, "f", b"0123456789");
        let other = a.file(&rw, "other", b"another file");
        Self { harness, a, b, holder, rw, ro, file, other }
    }

    fn open_files(&self) -> usize {
        self.harness.server().open_files()
    }

    fn opens(&self) -> usize {
        self.harness.server().totals(0).opens
    }
}

/// Opens the file through the export with this root.
fn open(c: &Client, root: &Fh, access: u32, deny: u32) -> Result<Opened, Status> {
    c.open(&OpenRequest::name(root, "f").access(access).deny(deny))
}

#[test]
fn locks_conflict_through_both() {
    for minor in 0..=2 {
        let s = Fixture::new(minor);
        let (x, y) = (open(&s.a, &s.rw, 3, 0).unwrap(), open(&s.holder, &s.ro, 1, 0).unwrap());
        let mut held = s.a.lock(&x, "l", LockType::Write, (0, 5)).unwrap();
        let refused = s.holder.lock(&y, "l", LockType::Read, (4, 1));
        assert_eq!(refused.unwrap_err(), Status::Denied, "minor version {minor}");
        assert_eq!(s.holder.lockt(&y.fh, "l", LockType::Read, (4, 1)), Err(Status::Denied));
        if minor > 0 {
            s.holder.lock(&y, "waiter", LockType::ReadWait, (2, 1)).unwrap_err();
        }
        s.a.unlock(&mut held, (0, 5)).unwrap();
        if minor > 0 {
            // It is told of the file by the handle that it knows.
            let (fh, owner) = (y.fh.clone(), s.holder.owner("waiter"));
            assert_eq!(s.holder.callbacks(), [CallbackOp::NotifyLock { fh, owner }]);
        }
        s.holder.lock(&y, "l", LockType::Read, (0, 5)).unwrap();
        assert_eq!(s.a.lock_more(&mut held, LockType::Write, (0, 1)), Err(Status::Denied));
    }
}

#[test]
fn share_reservations_hold_through_both() {
    for minor in 0..=2 {
        let s = Fixture::new(minor);
        let x = open(&s.a, &s.rw, 2, 1).unwrap();
        assert_eq!(open(&s.b, &s.ro, 1, 0).unwrap_err(), Status::ShareDenied);
        assert_eq!(open(&s.a, &s.ro, 1, 0).unwrap_err(), Status::ShareDenied, "its own");
        let same = s.b.lookup(&s.ro, "f").unwrap();
        let read = s.b.read(&same, Stateid::ANONYMOUS, 0, 1);
        assert_eq!(read.unwrap_err(), Status::Locked, "minor version {minor}");
        s.a.close(&x).unwrap();
        let y = open(&s.b, &s.ro, 1, 2).unwrap();
        assert_eq!(open(&s.a, &s.rw, 3, 0).unwrap_err(), Status::ShareDenied);
        assert_eq!(s.a.write(&s.file, Stateid::ANONYMOUS, 0, b"x"), Err(Status::Locked));
        s.b.close(&y).unwrap();
        assert_eq!(s.a.write(&s.file, Stateid::ANONYMOUS, 0, b"x"), Ok(1));
    }
}

type Act = fn(&Fixture, &Client) -> Status;

/// Changes of the file through `/export`, each with the first minor version that has it.
const ACTS: [(u8, &str, Act); 12] = [
    (0, "OPEN", |s, c| open(c, &s.rw, 2, 0).err().unwrap_or(Status::Ok)),
    (0, "WRITE", |s, c| c.write(&s.file, Stateid::ANONYMOUS, 0, b"x").err().unwrap_or(Status::Ok)),
    (0, "SETATTR", |s, c| {
        c.setattr(&s.file, Stateid::ANONYMOUS, mode(0o600)).err().unwrap_or(Status::Ok)
    }),
    (0, "truncation", |s, c| {
        c.truncate(&s.file, Stateid::ANONYMOUS, 0).err().unwrap_or(Status::Ok)
    }),
    (2, "COPY", |s, c| {
        let args = copy::Args {
            from: Stateid::ANONYMOUS,
            to: Stateid::ANONYMOUS,
            from_offset: 0,
            to_offset: 0,
            count: 0,
            consecutive: true,
            synchronous: true,
            servers: Vec::new(),
        };
        c.run(Ops::new().at(&s.other).save().at(&s.file).op::<CopyOp>(&args)).status
    }),
    (2, "CLONE", |s, c| {
        let (from, to) = (Stateid::ANONYMOUS, Stateid::ANONYMOUS);
        let args = clone::Args { from, to, from_offset: 0, to_offset: 0, count: 0 };
        c.run(Ops::new().at(&s.other).save().at(&s.file).op::<CloneOp>(&args)).status
    }),
    (0, "LINK", |s, c| c.run(Ops::new().at(&s.file).save().at(&s.rw).link("g")).status),
    (0, "REMOVE", |s, c| c.remove(&s.rw, "f").err().unwrap_or(Status::Ok)),
    (0, "RENAME", |s, c| c.run(Ops::new().at(&s.rw).save().at(&s.rw).rename("f", "g")).status),
    (0, "RENAME onto it", |s, c| {
        c.run(Ops::new().at(&s.rw).save().at(&s.rw).rename("other", "f")).status
    }),
    (0, "RENAME onto another", |s, c| {
        c.run(Ops::new().at(&s.rw).save().at(&s.rw).rename("f", "other")).status
    }),
    (0, "REMOVE of NFSv3", |s, c| match remove_by_three(c, &s.rw, "f") {
        0 => Status::Ok,
        JUKEBOX => Status::Delay,
        other => panic!("NFS3ERR {other}"),
    }),
];

/// The holder itself takes the file for another one, whose cache is another one, too.
#[test]
fn a_change_through_one_recalls_a_delegation_of_the_other() {
    for (minor, itself) in [(0, false), (1, false), (2, false), (0, true), (1, true), (2, true)] {
        for (_, what, act) in ACTS.iter().filter(|(first, _, _)| minor >= *first) {
            let s = Fixture::new(minor);
            let held = open(&s.holder, &s.ro, 1, 0).unwrap();
            s.holder.close(&held).unwrap();
            let by = if itself { &s.holder } else { &s.a };
            assert_eq!(act(&s, by), Status::Delay, "{what} of minor {minor}");
            let Some(CallbackOp::Recall { stateid, fh, .. }) =
                s.holder.callbacks().first().cloned()
            else {
                panic!("{what}: {:?}", s.holder.callbacks());
            };
            assert_eq!((stateid, &fh), (held.delegation(), &held.fh), "{what}");
            s.holder.delegreturn(&fh, stateid).unwrap();
            assert_eq!(act(&s, by), Status::Ok, "{what} after the return");
        }
    }
}

/// Its own names are looked up all the same.
#[test]
fn a_change_through_one_that_gives_no_delegations_recalls_one_of_the_other() {
    for minor in 0..=2 {
        for (_, what, act) in ACTS.iter().filter(|(first, _, _)| minor >= *first) {
            let s = Fixture::new(minor);
            s.harness.without_delegations("/export");
            let plain = open(&s.holder, &s.rw, 1, 0).unwrap();
            assert!(matches!(plain.delegated, Delegated::None), "minor version {minor}");
            s.holder.close(&plain).unwrap();
            let held = open(&s.holder, &s.ro, 1, 0).unwrap();
            s.holder.close(&held).unwrap();
            assert_eq!(act(&s, &s.a), Status::Delay, "{what} of minor {minor}");
            assert!(matches!(s.holder.callbacks()[..], [CallbackOp::Recall { .. }]), "{what}");
            s.holder.delegreturn(&held.fh, held.delegation()).unwrap();
            assert_eq!(act(&s, &s.a), Status::Ok, "{what} after the return");
        }
    }
}

/// A name of the only client is looked up all the same.
#[test]
fn a_client_that_is_alone_is_told_of_its_own_changes_through_the_other() {
    for minor in 0..=2 {
        let harness = Harness::new();
        let holder = harness.reachable("holder", minor);
        let (rw, ro) = (harness.root_of("/export"), harness.root_of("/dir/ro"));
        let made = holder.create("f");
        harness.pass_seconds(1);
        if let Delegated::Write { stateid, .. } = made.delegated {
            holder.delegreturn(&made.fh, stateid).unwrap();
        }
        holder.close(&made).unwrap();
        let held = open(&holder, &ro, 1, 0).unwrap();
        assert_eq!(holder.remove(&rw, "f").unwrap_err(), Status::Delay, "minor version {minor}");
        assert!(matches!(holder.callbacks().last(), Some(CallbackOp::Recall { .. })));
        holder.delegreturn(&held.fh, held.delegation()).unwrap();
        holder.remove(&rw, "f").unwrap();
    }
}

#[test]
fn the_holder_is_asked_about_size_and_change_through_the_other() {
    for minor in 0..=2 {
        let s = Fixture::new(minor);
        let held = open(&s.holder, &s.rw, 3, 0).unwrap();
        let change = s.holder.number(&held.fh, 3);
        let same = s.a.lookup(&s.ro, "f").unwrap();
        let tells = |change, size| {
            let knows = attrs(&[3, 4], |e| {
                e.u64(change);
                e.u64(size);
            });
            s.holder.answers_callbacks(CallbackBehavior::Knows(knows));
        };
        tells(change, 10);
        assert_eq!(s.a.number(&same, 3), change, "minor version {minor}");
        tells(change + 100, 4711);
        assert_eq!(s.a.number(&same, 4), 4711, "minor version {minor}");
        assert_eq!(s.holder.number(&same, 4), 4711, "it knows the file by another handle");
        // The change numbers of the other export are not those that the holder counts in.
        let through_other = [s.a.number(&same, 3), s.holder.number(&same, 3)];
        // RFC 8881 §10.4.3: it may have changed again each time; twice it was told already.
        assert_eq!(through_other, [change + 3, change + 4]);
        assert_eq!(s.a.number(&s.file, 3), change + 104);
    }
}

#[test]
fn nothing_is_delegated_that_is_written_through_the_other() {
    for minor in 0..=2 {
        let s = Fixture::new(minor);
        let writing = open(&s.holder, &s.rw, 3, 0).unwrap();
        assert_eq!(open(&s.holder, &s.ro, 1, 0).unwrap_err(), Status::Delay);
        s.holder.delegreturn(&writing.fh, writing.delegation()).unwrap();
        // A file is not delegated for a while after a recall.
        s.harness.pass_seconds(11);
        let reading = open(&s.holder, &s.ro, 1, 0).unwrap();
        assert!(matches!(reading.delegated, Delegated::None), "minor version {minor}");
        s.holder.close(&reading).unwrap();
        s.holder.close(&writing).unwrap();
        let later = open(&s.holder, &s.ro, 1, 0).unwrap();
        assert!(matches!(later.delegated, Delegated::Read { .. }), "minor version {minor}");
    }
}

#[test]
fn what_one_owner_has_through_each_is_released_by_itself() {
    for minor in 0..=2 {
        let s = Fixture::new(minor);
        let (x, y) = (open(&s.a, &s.rw, 1, 0).unwrap(), open(&s.a, &s.ro, 1, 0).unwrap());
        assert_ne!(x.stateid.other, y.stateid.other);
        assert_eq!((s.opens(), s.open_files()), (2, 2), "each export has it open");
        s.a.lock(&x, "l", LockType::Read, (0, 5)).unwrap();
        s.a.lock(&y, "l", LockType::Read, (0, 5)).unwrap();
        let read = s.a.read(&y.fh, x.stateid, 0, 1);
        assert_eq!(read.unwrap_err(), Status::BadStateid, "minor version {minor}");
        s.a.close(&y).unwrap();
        assert_eq!((s.opens(), s.open_files()), (1, 1));
        s.a.read(&x.fh, x.stateid, 0, 1).unwrap();
        let z = open(&s.b, &s.ro, 1, 0).unwrap();
        assert_eq!(s.b.lockt(&z.fh, "l", LockType::Write, (0, 1)), Err(Status::Denied));
        s.a.close(&x).unwrap();
        assert_eq!(s.b.lockt(&z.fh, "l", LockType::Write, (0, 1)), Ok(()));
        assert_eq!(s.open_files(), 1);
        s.b.close(&z).unwrap();
        assert_eq!((s.opens(), s.open_files()), (0, 0));
    }
}

#[test]
fn an_export_that_goes_takes_its_own_state_only() {
    for (gone, kept) in [("/export", "/dir/ro"), ("/dir/ro", "/export")] {
        for minor in 0..=2 {
            let s = Fixture::new(minor);
            let (gone_root, kept_root) = (s.harness.root_of(gone), s.harness.root_of(kept));
            let (x, y) =
                (open(&s.a, &gone_root, 1, 0).unwrap(), open(&s.b, &kept_root, 1, 0).unwrap());
            s.a.lock(&x, "l", LockType::Read, (0, 5)).unwrap();
            s.b.lock(&y, "l", LockType::Read, (3, 5)).unwrap();
            s.harness.exports_away(|path| path == gone);
            assert_eq!(s.opens(), 2, "{gone} may come back");
            s.harness.reload(|path| path != gone);
            assert_eq!((s.opens(), s.open_files()), (1, 1), "without {gone}, minor {minor}");
            s.b.read(&y.fh, y.stateid, 0, 1).unwrap();
            assert_eq!(s.a.lockt(&y.fh, "l", LockType::Write, (0, 3)), Ok(()));
            assert_eq!(s.a.lockt(&y.fh, "l", LockType::Write, (0, 4)), Err(Status::Denied));
            s.harness.reload(|_| true);
            assert_eq!(open(&s.a, &gone_root, 1, 1).unwrap_err(), Status::ShareDenied);
            s.b.close(&y).unwrap();
            open(&s.a, &gone_root, 1, 1).unwrap();
        }
    }
}
