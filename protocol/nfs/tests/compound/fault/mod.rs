//! A store that fails: each of its calls, in each operation that uses it, with
//! each kind of failure.

use zgate_memory::FileOp;
use zgate_nfs_wire::v4::op::*;
use zgate_nfs_wire::v4::{Bitmap, LockType, StableHow, Stateid, Status};
use zgate_store::StoreError;
use zgate_store::file_store::NewNode;
use zgate_test_harness::nfs::{
    Client, Fixture, Harness, OpenRequest, Ops, attrs, each, mode, name,
};
use zgate_xdr::Opaque;

/// Failures that are independent of the request, with the expected status.
const FAILURES: [(StoreError, Status); 9] = [
    (StoreError::NoSpace, Status::Nospc),
    (StoreError::QuotaExceeded, Status::Dquot),
    (StoreError::Io, Status::Io),
    (StoreError::Stale, Status::Stale),
    (StoreError::ReadOnly, Status::Rofs),
    (StoreError::OutOfResources, Status::Delay),
    (StoreError::TooManyLinks, Status::Mlink),
    (StoreError::TooLarge, Status::Fbig),
    (StoreError::TextBusy, Status::Access),
];

const ANY: Stateid = Stateid::ANONYMOUS;

pub(crate) type Act = fn(&Fixture) -> Ops;

/// Store call, operation that uses it, request.
pub(crate) const CALLS: &[(FileOp, &str, Act)] = &[
    (FileOp::GetAttr, "GETATTR", |s| Ops::new().at(&s.file).getattr(&[1, 4])),
    (FileOp::GetAttr, "LINK", |s| Ops::new().at(&s.file).save().at(&s.root).link("x")),
    (FileOp::GetAttr, "READDIR", |s| list(s, &[])),
    (FileOp::GetAttr, "SECINFO", |s| Ops::new().at(&s.root).op::<Secinfo>(&name("file"))),
    (FileOp::GetAttr, "VERIFY", |s| {
        Ops::new().at(&s.file).op::<Verify>(&attrs(&[4], |e| e.u64(7)))
    }),
    (FileOp::StatFs, "GETATTR", |s| Ops::new().at(&s.file).getattr(&[42, 43])),
    (FileOp::Lookup, "LOOKUP", |s| Ops::new().at(&s.root).lookup("file")),
    (FileOp::Lookup, "SECINFO", |s| Ops::new().at(&s.root).op::<Secinfo>(&name("file"))),
    (FileOp::Lookup, "OPEN", |s| open_op(s, open::How::NoCreate, "file")),
    (FileOp::LookupParent, "LOOKUPP", |s| Ops::new().at(&s.dir).op::<Lookupp>(&())),
    (FileOp::Access, "ACCESS", |s| {
        Ops::new().at(&s.file).op::<Access>(&access::Args { access: 1 })
    }),
    (FileOp::SetAttr, "SETATTR", |s| set(s, mode(0o600))),
    (FileOp::SetAttr, "SETATTR of the size", |s| set(s, attrs(&[4], |e| e.u64(1)))),
    (FileOp::SetAttr, "OPEN that empties", |s| {
        open_op(s, open::How::Unchecked(attrs(&[4], |e| e.u64(0))), "file")
    }),
    (FileOp::ReadLink, "READLINK", |s| Ops::new().at(&s.link).op::<Readlink>(&())),
    (FileOp::CreateFile, "OPEN", |s| open_op(s, open::How::Unchecked(mode(0o600)), "new")),
    (FileOp::CreateFile, "OPEN", |s| open_op(s, open::How::Exclusive([1; 8]), "new")),
    (FileOp::CreateNode, "CREATE", |s| {
        let kind = create::Kind::Node(NewNode::Directory);
        let args = create::Args { kind, name: name("new"), attrs: mode(0o700) };
        Ops::new().at(&s.root).op::<Create>(&args)
    }),
    (FileOp::Open, "OPEN", |s| open_op(s, open::How::NoCreate, "file")),
    (FileOp::Open, "READ", |s| Ops::new().at(&s.file).read(ANY, 0, 1)),
    (FileOp::Open, "COPY", |s| copy_op(s)),
    (FileOp::Remove, "REMOVE", |s| Ops::new().at(&s.root).remove("file")),
    (FileOp::Rename, "RENAME", |s| Ops::new().at(&s.root).save().at(&s.dir).rename("file", "x")),
    (FileOp::Link, "LINK", |s| Ops::new().at(&s.file).save().at(&s.root).link("x")),
    (FileOp::ReadDir, "READDIR", |s| list(s, &[1])),
    (FileOp::Read, "READ", |s| Ops::new().at(&s.file).read(ANY, 0, 1)),
    (FileOp::Read, "READ_PLUS", |s| read_plus_op(s)),
    (FileOp::Seek, "READ_PLUS", |s| read_plus_with_holes(s)),
    (FileOp::Read, "READ_PLUS", |s| read_plus_with_holes(s)),
    (FileOp::Seek, "SEEK", |s| {
        let args = seek::Args { stateid: ANY, offset: 0, what: 0 };
        Ops::new().at(&s.file).op::<Seek>(&args)
    }),
    (FileOp::Write, "WRITE", |s| Ops::new().at(&s.file).write(ANY, 0, b"x", StableHow::Unstable)),
    (FileOp::Write, "WRITE", |s| Ops::new().at(&s.file).write(ANY, 0, b"x", StableHow::FileSync)),
    (FileOp::Commit, "COMMIT", |s| commit(s)),
    (FileOp::Allocate, "ALLOCATE", |s| {
        let args = allocate::Args { stateid: ANY, offset: 0, length: 9 };
        Ops::new().at(&s.file).op::<Allocate>(&args)
    }),
    (FileOp::Deallocate, "DEALLOCATE", |s| {
        let args = deallocate::Args { stateid: ANY, offset: 0, length: 9 };
        Ops::new().at(&s.file).op::<Deallocate>(&args)
    }),
    (FileOp::CopyRange, "COPY", |s| copy_op(s)),
    (FileOp::CloneRange, "CLONE", |s| {
        let args = clone::Args { from: ANY, to: ANY, from_offset: 0, to_offset: 0, count: 0 };
        Ops::new().at(&s.file).save().at(&s.inner).op::<Clone>(&args)
    }),
    (FileOp::Advise, "IO_ADVISE", |s| {
        let hints = Bitmap::of(&[1]);
        let args = io_advise::Args { stateid: ANY, offset: 0, count: 0, hints };
        Ops::new().at(&s.file).op::<IoAdvise>(&args)
    }),
    (FileOp::GetXattr, "GETXATTR", |s| Ops::new().at(&s.file).op::<Getxattr>(&name("a"))),
    (FileOp::SetXattr, "SETXATTR", |s| {
        let value = Some(Opaque(vec![1]));
        let args = setxattr::Args { option: setxattr::Option4::Either, name: name("a"), value };
        Ops::new().at(&s.file).op::<Setxattr>(&args)
    }),
    (FileOp::ListXattrs, "LISTXATTRS", |s| {
        let args = listxattrs::Args { cookie: 0, maxcount: 4096 };
        Ops::new().at(&s.file).op::<Listxattrs>(&args)
    }),
    (FileOp::RemoveXattr, "REMOVEXATTR", |s| Ops::new().at(&s.file).op::<Removexattr>(&name("a"))),
    (FileOp::SetAcl, "SETATTR of the ACL", |s| set(s, attrs(&[12], |e| e.u32(0)))),
];

fn list(s: &Fixture, want: &[u32]) -> Ops {
    let args = readdir::Args {
        cookie: 0,
        verifier: [0; 8],
        dircount: 0,
        maxcount: 4096,
        want: Bitmap::of(want),
    };
    Ops::new().at(&s.root).op::<Readdir>(&args)
}

fn commit(s: &Fixture) -> Ops {
    Ops::new().at(&s.file).op::<Commit>(&commit::Args { offset: 0, count: 0 })
}

fn set(s: &Fixture, fattr: zgate_nfs_wire::v4::Fattr) -> Ops {
    Ops::new().at(&s.file).op::<Setattr>(&setattr::Args { stateid: ANY, attrs: fattr })
}

fn open_op(s: &Fixture, how: open::How, text: &str) -> Ops {
    let wish = zgate_test_harness::nfs::OpenRequest::name(&s.root, text).how(how);
    Ops::new().at(&s.root).op::<Open>(&s.c.open_args(&wish))
}

fn copy_op(s: &Fixture) -> Ops {
    let args = copy::Args {
        from: ANY,
        to: ANY,
        from_offset: 0,
        to_offset: 0,
        count: 0,
        consecutive: true,
        synchronous: true,
        servers: Vec::new(),
    };
    Ops::new().at(&s.file).save().at(&s.inner).op::<Copy>(&args)
}

fn read_plus_op(s: &Fixture) -> Ops {
    let args = read_plus::Args { stateid: ANY, offset: 0, count: 4096 };
    Ops::new().at(&s.file).op::<ReadPlus>(&args)
}

/// Only a file with a hole is asked for it.
fn read_plus_with_holes(s: &Fixture) -> Ops {
    let holey = s.c.create("holey");
    s.c.write(&holey.fh, holey.stateid, 0, b"data").unwrap();
    s.c.truncate(&holey.fh, holey.stateid, 20_000).unwrap();
    let args = read_plus::Args { stateid: ANY, offset: 0, count: 4096 };
    Ops::new().at(&holey.fh).op::<ReadPlus>(&args)
}

#[test]
fn every_failure_of_every_call_has_its_answer() {
    each([2], |s| {
        for (call, what, act) in CALLS {
            for (error, status) in FAILURES {
                let faults = s.harness.store.faults();
                let before = faults.calls(*call);
                let ops = act(s);
                faults.fail_every(*call, error);
                let reply = s.c.run(ops);
                faults.clear();
                assert!(faults.calls(*call) > before, "{what} makes no {call:?}");
                assert_eq!(reply.status, status, "{what} when {call:?} fails by {error:?}");
            }
        }
    });
}

/// A failure has no lasting effect: the same operation succeeds right after it.
#[test]
fn after_a_failure_the_same_operation_succeeds() {
    for (call, what, act) in CALLS {
        if *call == FileOp::SetAcl || matches!(*what, "GETXATTR" | "REMOVEXATTR") {
            continue;
        }
        let s = Fixture::new(2);
        let faults = s.harness.store.faults();
        faults.fail_next(*call, StoreError::Io);
        let first = s.c.run(act(&s)).status;
        faults.clear();
        assert_ne!(first, Status::Ok, "{what}");
        assert_eq!(s.c.run(act(&s)).status, Status::Ok, "{what} after {call:?} failed");
        assert_eq!(s.harness.server().totals(0).recalls, 0);
    }
}

#[test]
fn a_failed_open_holds_nothing() {
    for minor in 0..=2 {
        let s = Fixture::new(minor);
        let faults = s.harness.store.faults();
        for (call, how) in [
            (FileOp::Open, open::How::NoCreate),
            (FileOp::SetAttr, open::How::Unchecked(attrs(&[4], |e| e.u64(0)))),
        ] {
            faults.fail_next(call, StoreError::Io);
            let wish = OpenRequest::name(&s.root, "file").deny(3).how(how);
            assert_eq!(s.c.open(&wish).unwrap_err(), Status::Io);
            assert_eq!(s.harness.server().totals(0).opens, 0);
            assert!(s.c.read(&s.file, ANY, 0, 1).is_ok(), "nobody denies");
        }
    }
}

#[test]
fn a_failed_truncation_leaves_the_earlier_open_of_the_owner_and_its_locks() {
    for minor in 0..=2 {
        let s = Fixture::new(minor);
        let other = s.harness.client("other", minor);
        let opened = s.c.open(&OpenRequest::name(&s.root, "file").access(2)).unwrap();
        s.c.lock(&opened, "l", LockType::Write, (0, 5)).unwrap();
        for (error, status) in [
            (StoreError::NoSpace, Status::Nospc),
            (StoreError::QuotaExceeded, Status::Dquot),
            (StoreError::Io, Status::Io),
        ] {
            s.harness.store.faults().fail_next(FileOp::SetAttr, error);
            let how = open::How::Unchecked(attrs(&[4], |e| e.u64(0)));
            let wish = OpenRequest::name(&s.root, "file").deny(1).how(how);
            assert_eq!(s.c.open(&wish).unwrap_err(), status);
            let asked = other.lockt(&s.file, "x", LockType::Write, (0, 9));
            assert_eq!(asked, Err(Status::Denied), "{error:?}, minor version {minor}");
            assert_eq!(s.c.write(&s.file, opened.stateid, 0, b"C"), Ok(1), "the same stateid");
        }
        let theirs = other.open(&OpenRequest::name(&s.root, "file").access(1)).unwrap();
        other.close(&theirs).unwrap();
        s.c.close(&opened).unwrap();
        assert_eq!(s.harness.server().totals(0).opens, 0);
        assert_eq!(other.lockt(&s.file, "x", LockType::Write, (0, 9)), Ok(()));
    }
}

#[test]
fn a_full_store_says_so_and_recovers() {
    let store =
        zgate_memory::MemoryStore::builder().capacity_bytes(1 << 20).root_mode(0o777).build();
    let harness = Harness::over(store);
    let c: Client = harness.client("c", 2);
    let opened = c.create("f");
    let mut offset = 0;
    let status = loop {
        match c.write(&opened.fh, opened.stateid, offset, &[1; 65_536]) {
            Ok(count) => offset += u64::from(count),
            Err(status) => break status,
        }
        assert!(offset <= 2 << 20);
    };
    assert_eq!((status, offset), (Status::Nospc, 1 << 20));
    c.truncate(&opened.fh, opened.stateid, 0).unwrap();
    assert!(c.write(&opened.fh, opened.stateid, 0, b"x").is_ok());
}
