//! Times kept by the holder of a delegation (RFC 9754 §5).

use std::rc::Rc;
use zgate_memory::FileOp;
use zgate_nfs_wire::v4::Fh;
use zgate_nfs_wire::v4::op::open::{Delegated, How};
use zgate_nfs_wire::v4::{Bitmap, Fattr, Stateid, Status};
use zgate_store::StoreError;
use zgate_test_harness::nfs::{Client, Harness, OpenRequest, Opened, Ops, attrs, mode};

/// OPEN4_SHARE_ACCESS_WANT_DELEG_TIMESTAMPS.
const WANT_TIMESTAMPS: u32 = 0x10_0000;
const CHANGE: u32 = 3;
const SUPPORTED_ATTRS: u32 = 0;
const TIME_ACCESS: u32 = 47;
const TIME_METADATA: u32 = 52;
const TIME_MODIFY: u32 = 53;
const TIME_DELEG_ACCESS: u32 = 84;
const TIME_DELEG_MODIFY: u32 = 85;
const OPEN_ARGUMENTS: u32 = 86;
const NANOSECONDS: u32 = 7;
/// Bob, who does not own the file but may write to it.
const BOB: u32 = 1002;

struct Fixture {
    harness: Rc<Harness>,
    holder: Client,
    other: Client,
    root: Fh,
    fh: Fh,
}

/// Delegated times: seconds of the last access and of the last modification.
fn times(access: Option<i64>, modify: Option<i64>) -> Fattr {
    let given = [(TIME_DELEG_ACCESS, access), (TIME_DELEG_MODIFY, modify)];
    let given: Vec<_> = given.iter().filter_map(|(bit, at)| at.map(|at| (*bit, at))).collect();
    let bits: Vec<_> = given.iter().map(|(bit, _)| *bit).collect();
    attrs(&bits, |e| {
        for (_, seconds) in &given {
            e.u64(*seconds as u64);
            e.u32(NANOSECONDS);
        }
    })
}

impl Fixture {
    /// A file of root that everyone may write to.
    fn new(minor: u8) -> Self {
        let harness = Harness::new();
        let (holder, other) = (harness.reachable("holder", minor), harness.client("other", minor));
        let root = holder.export();
        let fh = other.file(&root, "f", b"content");
        other.setattr(&fh, Stateid::ANONYMOUS, mode(0o666)).unwrap();
        harness.pass_seconds(20);
        Self { harness, holder, other, root, fh }
    }

    fn take(&self, access: u32) -> Opened {
        let wish = OpenRequest::name(&self.root, "f").access(access | WANT_TIMESTAMPS);
        let opened = self.holder.open(&wish).unwrap();
        self.harness.pass_seconds(2);
        opened
    }

    fn set(&self, opened: &Opened, times: Fattr) -> Status {
        let set = self.holder.setattr(&self.fh, opened.delegation(), times);
        set.err().unwrap_or(Status::Ok)
    }

    /// A time of the store in whole seconds.
    fn seconds(&self, time: u32) -> i64 {
        let reply = self.holder.run(Ops::new().at(&self.fh).getattr(&[time])).ok();
        let values = reply.get::<zgate_nfs_wire::v4::op::Getattr>().values.0;
        i64::from_be_bytes(values[..8].try_into().unwrap())
    }

    fn now(&self) -> i64 {
        self.harness.simulation.clock().wall.seconds
    }

    /// Change attribute and ctime.
    fn version(&self) -> (u64, i64) {
        (self.holder.number(&self.fh, CHANGE), self.seconds(TIME_METADATA))
    }
}

#[test]
fn they_are_for_holders_of_such_a_delegation() {
    for minor in 1..=2 {
        let s = Fixture::new(minor);
        let plain = s.holder.open(&OpenRequest::name(&s.root, "f").access(3)).unwrap();
        let set = |c: &Client, stateid, modify| {
            c.setattr(&s.fh, stateid, times(None, Some(modify))).map(|_| ())
        };
        assert_eq!(set(&s.holder, Stateid::ANONYMOUS, 9), Err(Status::BadStateid));
        assert_eq!(set(&s.holder, plain.stateid, 9), Err(Status::BadStateid));
        assert_eq!(set(&s.holder, plain.delegation(), 9), Err(Status::BadStateid));
        s.holder.delegreturn(&plain.fh, plain.delegation()).unwrap();
        s.holder.close(&plain).unwrap();
        let timed = s.take(3);
        assert_eq!(set(&s.other, timed.delegation(), 9), Err(Status::BadStateid));
        assert_eq!(set(&s.holder, timed.delegation(), 9), Ok(()));
        assert_eq!(s.seconds(TIME_MODIFY), 9);
        // A full file system that cannot store them does not prevent the return
        // of the delegation.
        let faults = s.harness.store.faults();
        for refusal in [StoreError::NoSpace, StoreError::QuotaExceeded, StoreError::NotPermitted] {
            faults.fail_next(FileOp::SetAttr, refusal);
            assert_eq!(set(&s.holder, timed.delegation(), 10), Ok(()));
        }
        faults.fail_next(FileOp::SetAttr, StoreError::Io);
        assert_eq!(set(&s.holder, timed.delegation(), 10), Err(Status::Io));
    }
}

#[test]
fn times_that_change_nothing_are_not_written() {
    let s = Fixture::new(2);
    let opened = s.take(3);
    let write = times(None, Some(s.now() - 1));
    assert_eq!(s.set(&opened, write.clone()), Status::Ok);
    let (before, calls) = (s.version(), s.harness.store.faults().calls(FileOp::SetAttr));
    s.harness.pass_seconds(5);
    assert_eq!(s.set(&opened, write), Status::Ok);
    assert_eq!(s.harness.store.faults().calls(FileOp::SetAttr), calls);
    assert_eq!(s.version(), before);
}

#[test]
fn reading_moves_no_time_of_change() {
    for access in [1, 3] {
        let s = Fixture::new(2);
        let opened = s.take(access);
        let before = s.version();
        assert_eq!(s.set(&opened, times(Some(s.now()), None)), Status::Ok);
        assert_eq!(s.version(), before, "RFC 9754 §5: MUST NOT advance the change time");
    }
}

#[test]
fn what_the_owner_sets_explicitly_is_kept() {
    let s = Fixture::new(2);
    let opened = s.take(3);
    let (past, future) = (981_173_106, 1_893_456_000);
    for time in [past, future] {
        assert_eq!(s.set(&opened, times(None, Some(time))), Status::Ok);
        assert_eq!(s.seconds(TIME_MODIFY), time);
        // utimensat(2) with UTIME_OMIT for the other time.
        assert_eq!(s.set(&opened, times(Some(time + 1), None)), Status::Ok);
        assert_eq!((s.seconds(TIME_ACCESS), s.seconds(TIME_MODIFY)), (time + 1, time));
    }
    s.holder.delegreturn(&s.fh, opened.delegation()).unwrap();
    assert_eq!(s.seconds(TIME_MODIFY), future);
}

#[test]
fn a_clock_that_is_a_little_ahead_makes_no_file_of_tomorrow() {
    let s = Fixture::new(2);
    let opened = s.take(3);
    assert_eq!(s.set(&opened, times(None, Some(s.now() + 3))), Status::Ok);
    assert_eq!(s.seconds(TIME_MODIFY), s.now());
}

#[test]
fn who_writes_without_owning_moves_times_no_further_than_now() {
    let s = Fixture::new(2);
    s.holder.as_user(BOB, || {
        let opened = s.take(3);
        assert!(matches!(opened.delegated, Delegated::Write { attrs: true, .. }));
        let now = s.now();
        assert_eq!(s.set(&opened, times(Some(now), Some(now - 1))), Status::Ok);
        assert_eq!((s.seconds(TIME_ACCESS), s.seconds(TIME_MODIFY)), (now, now - 1));
        assert_eq!(s.set(&opened, times(None, Some(now - 9000))), Status::Ok, "ignored");
        assert_eq!(s.seconds(TIME_MODIFY), now - 1);
        assert_eq!(s.set(&opened, times(None, Some(now + 9000))), Status::Ok);
        assert_eq!(s.seconds(TIME_MODIFY), now);
    });
    // Nor does another user of the holder, without a delegation.
    let s = Fixture::new(2);
    let opened = s.take(3);
    let before = s.version();
    s.holder.as_user(BOB, || {
        assert_eq!(s.set(&opened, times(None, Some(s.now()))), Status::Ok);
    });
    assert_eq!(s.version(), before);
}

#[test]
fn an_export_without_them_says_so() {
    for minor in 1..=2 {
        let harness = Harness::new();
        let c = harness.reachable("c", minor);
        for (path, offered) in [("/export", true), ("/dir/second", false)] {
            let root = harness.root_of(path);
            let reply = c.run(Ops::new().at(&root).getattr(&[SUPPORTED_ATTRS])).ok();
            let values = reply.get::<zgate_nfs_wire::v4::op::Getattr>().values.0;
            let supported: Bitmap =
                zgate_xdr::Decode::decode(&mut zgate_xdr::Decoder::new(&values)).unwrap();
            assert_eq!(supported.contains(TIME_DELEG_ACCESS), offered, "{path}");
            assert_eq!(supported.contains(TIME_DELEG_MODIFY), offered, "{path}");
            assert!(supported.contains(OPEN_ARGUMENTS));
            let reply = c.run(Ops::new().at(&root).getattr(&[OPEN_ARGUMENTS])).ok();
            let values = reply.get::<zgate_nfs_wire::v4::op::Getattr>().values.0;
            let mut d = zgate_xdr::Decoder::new(&values);
            let maps: Vec<Bitmap> =
                (0..3).map(|_| zgate_xdr::Decode::decode(&mut d).unwrap()).collect();
            assert_eq!(maps[2].contains(20), offered, "oa_share_access_want of {path}");
            let wish = OpenRequest::name(&root, "new").how(How::Guarded(mode(0o600)));
            let opened = c.open(&wish.access(3 | WANT_TIMESTAMPS)).unwrap();
            let Delegated::Write { attrs, .. } = opened.delegated else { panic!("{path}") };
            assert_eq!(attrs, offered, "{path}");
            let set = c.setattr(&opened.fh, opened.delegation(), times(None, Some(9)));
            let expected = if offered { Ok(()) } else { Err(Status::Attrnotsupp) };
            assert_eq!(set.map(|_| ()), expected, "{path}");
        }
    }
}

/// A new object has no delegation yet whose holder could tell its times.
#[test]
fn a_new_object_has_none() {
    for minor in 1..=2 {
        let harness = Harness::new();
        let c = harness.reachable("c", minor);
        for (path, expected) in [("/export", Status::Inval), ("/dir/second", Status::Attrnotsupp)] {
            let root = harness.root_of(path);
            let wish = OpenRequest::name(&root, "new").how(How::Guarded(times(None, Some(9))));
            assert_eq!(c.open(&wish).map(|_| ()), Err(expected), "{path}");
            assert_eq!(c.lookup(&root, "new"), Err(Status::Noent), "{path}");
        }
    }
}
