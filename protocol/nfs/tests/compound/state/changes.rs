//! Changes in progress on slow storage: no delegation is granted in the
//! meantime (RFC 8881 §10.4), even if the client of the change is removed.

use super::foreign::begin_three;
use bytes::Bytes;
use std::rc::Rc;
use std::task::{Context, Waker};
use zgate_memory::{FileOp, When};
use zgate_nfs_wire::v4::Fh;
use zgate_nfs_wire::v4::op::Allocate;
use zgate_nfs_wire::v4::op::Clone as CloneRange;
use zgate_nfs_wire::v4::op::Copy as CopyRange;
use zgate_nfs_wire::v4::op::Deallocate;
use zgate_nfs_wire::v4::op::Setattr;
use zgate_nfs_wire::v4::op::Setxattr;
use zgate_nfs_wire::v4::op::Write;
use zgate_nfs_wire::v4::op::allocate;
use zgate_nfs_wire::v4::op::clone;
use zgate_nfs_wire::v4::op::copy;
use zgate_nfs_wire::v4::op::deallocate;
use zgate_nfs_wire::v4::op::open::Delegated;
use zgate_nfs_wire::v4::op::setattr;
use zgate_nfs_wire::v4::op::setxattr;
use zgate_nfs_wire::v4::op::write;
use zgate_nfs_wire::v4::{Fattr, StableHow, Stateid, Status};
use zgate_test_harness::nfs::{Client, Harness, OpenRequest, Ops, attrs, mode};
use zgate_xdr::{Decoder, Encoder};

const ANY: Stateid = Stateid::ANONYMOUS;
/// Longer than any change counts as recent.
const LONG_SECONDS: u64 = 9;

/// A file with two names, another file, a client that requests a delegation,
/// and another client.
struct Fixture {
    harness: Rc<Harness>,
    reader: Client,
    other: Client,
    root: Fh,
    file: Fh,
    second: Fh,
}

impl Fixture {
    fn new(reader_minor: u8) -> Self {
        let harness = Harness::new();
        let (reader, other) =
            (harness.reachable("reader", reader_minor), harness.client("other", 2));
        let root = reader.export();
        let file = other.file(&root, "f", &[1; 8192]);
        let second = other.file(&root, "g", &[2; 8192]);
        other.run(Ops::new().at(&file).save().at(&root).link("second")).ok();
        harness.pass_seconds(LONG_SECONDS);
        Self { harness, reader, other, root, file, second }
    }

    /// Returns whether an open for reading gets a delegation.
    fn delegates(&self) -> bool {
        // During a change of a removed open, the file is not even opened.
        let opened = match self.reader.open(&OpenRequest::name(&self.root, "second").access(1)) {
            Err(Status::Delay) => return false,
            opened => opened.unwrap(),
        };
        let given = matches!(opened.delegated, Delegated::Read { .. });
        if given {
            self.reader.delegreturn(&opened.fh, opened.delegation()).unwrap();
        }
        self.reader.close(&opened).unwrap();
        given
    }

    /// Runs a change that storage delays, and then completes it.
    fn watch(&self, what: &str, op: FileOp, begin: impl FnOnce(&Self)) {
        assert!(self.delegates(), "{what}: to begin with");
        let hold = self.harness.store.faults().hold_next(op, When::BeforeEffect);
        begin(self);
        self.harness.simulation.settle();
        assert_eq!(hold.waiting(), 1, "{what} has not come to storage");
        self.harness.pass_seconds(LONG_SECONDS);
        assert!(!self.delegates(), "{what} is under way");
        hold.release();
        self.harness.simulation.settle();
        self.harness.pass_seconds(LONG_SECONDS);
        assert!(self.delegates(), "{what} has ended");
    }
}

fn between(s: &Fixture) -> Ops {
    Ops::new().at(&s.second).save().at(&s.file)
}

fn write_args(stateid: Stateid) -> write::Args {
    let data = Bytes::from_static(b"x");
    write::Args { stateid, offset: 0, stable: StableHow::Unstable, data }
}

fn set(s: &Fixture, attrs: Fattr) -> Ops {
    Ops::new().at(&s.file).op::<Setattr>(&setattr::Args { stateid: ANY, attrs })
}

fn copy_args(synchronous: bool) -> copy::Args {
    copy::Args {
        from: ANY,
        to: ANY,
        from_offset: 0,
        to_offset: 0,
        count: 4096,
        consecutive: true,
        synchronous,
        servers: Vec::new(),
    }
}

type Act = fn(&Fixture) -> Ops;

const ACTS: [(&str, FileOp, Act); 12] = [
    ("WRITE", FileOp::Write, |s| Ops::new().at(&s.file).op::<Write>(&write_args(ANY))),
    ("SETATTR", FileOp::SetAttr, |s| set(s, mode(0o600))),
    ("truncation", FileOp::SetAttr, |s| set(s, attrs(&[4], |e| e.u64(7)))),
    ("ALLOCATE", FileOp::Allocate, |s| {
        let args = allocate::Args { stateid: ANY, offset: 0, length: 9000 };
        Ops::new().at(&s.file).op::<Allocate>(&args)
    }),
    ("DEALLOCATE", FileOp::Deallocate, |s| {
        let args = deallocate::Args { stateid: ANY, offset: 0, length: 4096 };
        Ops::new().at(&s.file).op::<Deallocate>(&args)
    }),
    ("COPY", FileOp::CopyRange, |s| between(s).op::<CopyRange>(&copy_args(true))),
    ("CLONE", FileOp::CloneRange, |s| {
        let args = clone::Args { from: ANY, to: ANY, from_offset: 0, to_offset: 0, count: 0 };
        between(s).op::<CloneRange>(&args)
    }),
    ("REMOVE", FileOp::Remove, |s| Ops::new().at(&s.root).remove("f")),
    ("RENAME", FileOp::Rename, |s| Ops::new().at(&s.root).save().at(&s.root).rename("f", "h")),
    ("RENAME onto", FileOp::Rename, |s| Ops::new().at(&s.root).save().at(&s.root).rename("g", "f")),
    ("LINK", FileOp::Link, |s| Ops::new().at(&s.file).save().at(&s.root).link("third")),
    ("SETXATTR", FileOp::SetXattr, |s| {
        let args = setxattr::Args {
            option: setxattr::Option4::Either,
            name: zgate_test_harness::nfs::name("x"),
            value: Some(zgate_xdr::Opaque(b"v".to_vec())),
        };
        Ops::new().at(&s.file).op::<Setxattr>(&args)
    }),
];

#[test]
fn nothing_is_delegated_until_a_change_without_an_open_has_ended() {
    for minor in 0..=2 {
        for (what, op, act) in ACTS {
            let s = Fixture::new(minor);
            s.watch(what, op, |s| drop(s.other.begin(1, 1, act(s))));
        }
    }
}

#[test]
fn nor_to_who_comes_while_a_name_changes() {
    let harness = Harness::new();
    let other = harness.client("other", 2);
    let root = other.export();
    let file = other.file(&root, "f", b"x");
    other.run(Ops::new().at(&file).save().at(&root).link("second")).ok();
    harness.pass_seconds(LONG_SECONDS);
    let hold = harness.store.faults().hold_next(FileOp::Remove, When::BeforeEffect);
    drop(other.begin(1, 1, Ops::new().at(&root).remove("f")));
    harness.simulation.settle();
    let reader = harness.reachable("reader", 2);
    let s = Fixture { harness, reader, other, root, second: file.clone(), file };
    assert!(!s.delegates());
    hold.release();
    s.harness.simulation.settle();
    s.harness.pass_seconds(LONG_SECONDS);
    assert!(s.delegates());
}

#[test]
fn nor_until_a_write_has_ended_whose_open_is_closed() {
    for minor in 0..=2 {
        let s = Fixture::new(minor);
        s.watch("WRITE", FileOp::Write, |s| {
            let open = s.other.open(&OpenRequest::name(&s.root, "f").access(2)).unwrap();
            drop(s.other.begin(
                1,
                1,
                Ops::new().at(&s.file).op::<Write>(&write_args(open.stateid)),
            ));
            s.harness.simulation.settle();
            s.other.close(&open).unwrap();
        });
    }
}

#[test]
fn nor_until_one_of_nfs_version_three_has_ended() {
    const SETATTR: u32 = 2;
    const WRITE: u32 = 7;
    const REMOVE: u32 = 12;
    const RENAME: u32 = 14;
    const LINK: u32 = 15;
    type Args = fn(&Fixture, &mut Encoder);
    let acts: [(&str, u32, FileOp, Args); 6] = [
        ("WRITE", WRITE, FileOp::Write, |s, e| {
            e.opaque(&s.file.0);
            e.u64(0);
            e.u32(1);
            e.u32(0);
            e.opaque(b"3");
        }),
        ("SETATTR", SETATTR, FileOp::SetAttr, |s, e| {
            e.opaque(&s.file.0);
            // Only the mode; no guard.
            [1, 0o600, 0, 0, 0, 0, 0, 0].iter().for_each(|word| e.u32(*word));
        }),
        ("REMOVE", REMOVE, FileOp::Remove, |s, e| name(s, e, "f")),
        ("RENAME", RENAME, FileOp::Rename, |s, e| {
            name(s, e, "f");
            name(s, e, "h");
        }),
        ("RENAME onto", RENAME, FileOp::Rename, |s, e| {
            name(s, e, "g");
            name(s, e, "f");
        }),
        ("LINK", LINK, FileOp::Link, |s, e| {
            e.opaque(&s.file.0);
            name(s, e, "third");
        }),
    ];
    for (what, procedure, op, args) in acts {
        let s = Fixture::new(1);
        s.watch(what, op, |s| {
            let mut e = Encoder::new();
            args(s, &mut e);
            begin_three(&s.other, procedure, e.finish().flatten().unwrap());
        });
    }
}

fn name(s: &Fixture, e: &mut Encoder, name: &str) {
    e.opaque(&s.root.0);
    e.opaque(name.as_bytes());
}

#[test]
fn a_copy_that_goes_on_after_its_answer_is_a_change_until_it_ends() {
    let s = Fixture::new(1);
    s.other.truncate(&s.second, ANY, 100 << 20).unwrap();
    s.harness.pass_seconds(LONG_SECONDS);
    s.watch("COPY", FileOp::CopyRange, |s| {
        let args = copy::Args { count: 0, ..copy_args(false) };
        let res = s.other.run(between(s).op::<CopyRange>(&args)).ok().get::<CopyRange>();
        assert!(res.callback.is_some(), "{res:?}");
    });
}

#[test]
fn a_request_that_is_dropped_may_have_left_its_change_behind() {
    let s = Fixture::new(1);
    let hold = s.harness.store.faults().hold_next(FileOp::Write, When::BeforeEffect);
    let first = Ops::new().op::<zgate_nfs_wire::v4::op::Sequence>(&s.other.sequence_args(1, 1));
    let ops = Ops::new().at(&s.file).op::<Write>(&write_args(ANY)).after(first);
    let (bytes, _) = ops.encode(b"", 2);
    let (server, call, now) =
        (s.harness.server(), s.other.rpc_call(), s.harness.simulation.clock());
    let mut d = Decoder::new(&bytes);
    let mut request = Box::pin(server.compound(&call, now, &mut d));
    assert!(request.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    assert_eq!(hold.waiting(), 1);
    drop(request);
    // A worker may still be writing; the end of the write is unknown.
    s.harness.pass_seconds(LONG_SECONDS);
    assert!(!s.delegates());
}

#[test]
fn what_fails_before_it_comes_to_storage_has_ended() {
    let s = Fixture::new(1);
    let args = deallocate::Args { stateid: ANY, offset: u64::MAX, length: 2 };
    s.other.check("range", Ops::new().at(&s.file).op::<Deallocate>(&args), Status::Inval);
    s.harness.store.faults().fail_next(FileOp::Write, zgate_store::StoreError::Io);
    s.other.check("fault", Ops::new().at(&s.file).op::<Write>(&write_args(ANY)), Status::Io);
    s.harness.pass_seconds(LONG_SECONDS);
    assert!(s.delegates());
}
