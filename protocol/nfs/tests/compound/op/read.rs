//! READ, READ_PLUS, SEEK and IO_ADVISE (RFC 8881 §18.22, RFC 7862 §15.5,
//! §15.10, §15.11).

use zgate_test_harness::nfs::{Ops, Fixture, OpenRequest, each, every_minor, mode};
use zgate_nfs_wire::v4::op::IoAdvise;
use zgate_nfs_wire::v4::op::io_advise;
use zgate_nfs_wire::v4::op::Read;
use zgate_nfs_wire::v4::op::ReadPlus;
use zgate_nfs_wire::v4::op::read_plus::{Content, self};
use zgate_nfs_wire::v4::op::Seek;
use zgate_nfs_wire::v4::op::seek;
use zgate_nfs_wire::v4::{Bitmap, Fh, LockType, StableHow, Stateid, Status};
use std::sync::Arc;
use zgate_memory::{FileOp, MemoryStore};
use zgate_store::file_store::StoreTraits;
use zgate_store::{FileStore, Payload};

#[test]
fn every_kind_of_stateid_reads() {
    every_minor(|s| {
        let opened = s.open();
        let locked = s.c.lock(&opened, "l", LockType::Read, (0, 1)).unwrap();
        for (what, stateid) in [
            ("anonymous", Stateid::ANONYMOUS),
            ("bypass", Stateid::READ_BYPASS),
            ("open", opened.stateid),
            ("lock", locked.stateid),
        ] {
            assert_eq!(s.c.read(&s.file, stateid, 0, 3), Ok((false, "con".into())), "{what}");
            assert_eq!(s.c.read(&s.file, stateid, 3, 100), Ok((true, "tent".into())), "{what}");
            assert_eq!(s.c.read(&s.file, stateid, 7, 1), Ok((true, "".into())), "{what}");
            assert_eq!(s.c.read(&s.file, stateid, u64::MAX, 1), Ok((true, "".into())), "{what}");
            assert_eq!(s.c.read(&s.file, stateid, 0, 0), Ok((false, "".into())), "{what}");
        }
        let wish = OpenRequest::name(&s.root, "file").owner("writer").access(2);
        let writer = s.c.open(&wish).unwrap();
        // Clients read around their writes (RFC 8881 §18.22.3).
        assert!(s.c.read(&s.file, writer.stateid, 0, 3).is_ok());
        if s.c.minor > 0 {
            let newest = Stateid { seqid: 0, ..opened.stateid };
            assert!(s.c.read(&s.file, newest, 0, 1).is_ok());
            s.c.check("no current stateid", Ops::new().at(&s.file).read(Stateid::CURRENT, 0, 1), Status::BadStateid);
        }
    });
}

/// Data from a file is read when all operations ran: a later one may have changed it.
#[test]
fn data_is_sent_from_the_file_only_if_it_stays() {
    const ANY: Stateid = Stateid::ANONYMOUS;
    let write = |ops: Ops| ops.write(ANY, 0, b"new", StableHow::Unstable);
    let check = |s: &Fixture, what: &str, ops: Ops, from_the_file: u64| {
        let before = s.harness.store.reads_to_send();
        s.c.check(what, ops, Status::Ok);
        assert_eq!(s.harness.store.reads_to_send() - before, from_the_file, "{what}");
    };
    every_minor(|s| {
        s.c.takes_spans.set(true);
        let at = || Ops::new().at(&s.file);
        let read = || at().read(ANY, 0, 3);
        check(s, "the last one", read(), 1);
        check(s, "before GETATTR", read().getattr(&[4]), 1);
        check(s, "before READ and GETATTR", read().read(ANY, 3, 4).getattr(&[4]), 2);
        check(s, "before WRITE", write(read()), 0);
        check(s, "before GETATTR and WRITE", write(read().getattr(&[4])), 0);
        check(s, "before and after WRITE", write(read()).read(ANY, 0, 3), 1);
        check(s, "before REMOVE", read().root().lookup("export").remove("link"), 0);
    });
    each([2], |s| {
        s.c.takes_spans.set(true);
        let args = read_plus::Args { stateid: ANY, offset: 0, count: 3 };
        let read = || Ops::new().at(&s.file).op::<ReadPlus>(&args);
        check(s, "the last READ_PLUS", read(), 1);
        check(s, "READ_PLUS before WRITE", write(read()), 0);
    });
}

#[test]
fn no_more_than_an_export_transfers_at_once() {
    every_minor(|s| {
        let big = s.c.file(&s.root, "big", &vec![7; 1 << 20]);
        let opened = s.c.open(&OpenRequest::name(&s.root, "big")).unwrap();
        s.c.write(&big, opened.stateid, 1 << 20, &[8; 100]).unwrap();
        let (eof, data) = s.c.read(&big, opened.stateid, 0, u32::MAX).unwrap();
        assert!(!eof && data.len() == 1 << 20);
    });
}

/// Refusals common to READ and similar operations.
fn check_refusals(s: &Fixture, what: &str, op: &dyn Fn(Ops, Stateid) -> Ops) {
    s.check_regular_only(what, |ops| op(ops, Stateid::ANONYMOUS));
    s.c.check(what, op(Ops::new().root(), Stateid::ANONYMOUS), Status::Isdir);
    let opened = s.open();
    let at = || Ops::new().at(&s.file);
    s.c.check(what, op(at(), Stateid::INVALID), Status::BadStateid);
    let mut unknown = opened.stateid;
    unknown.other[11] ^= 0x70;
    s.c.check(what, op(at(), unknown), Status::BadStateid);
    let ahead = Stateid { seqid: opened.stateid.seqid + 1, ..opened.stateid };
    s.c.check(what, op(at(), ahead), Status::BadStateid);
    s.c.check(what, op(Ops::new().at(&s.inner), opened.stateid), Status::BadStateid);
    let wish = OpenRequest::name(&s.dir, "inner").owner("denier").deny(1);
    let denier = s.c.open(&wish).unwrap();
    let inner = || Ops::new().at(&s.inner);
    s.c.check(what, op(inner(), Stateid::ANONYMOUS), Status::Locked);
    s.c.close(&denier).unwrap();
    s.c.check(what, op(inner(), Stateid::ANONYMOUS), Status::Ok);
    let secret = s.c.file(&s.root, "secret", b"x");
    s.c.setattr(&secret, Stateid::ANONYMOUS, mode(0)).unwrap();
    s.c.as_user(1000, || {
        s.c.check(what, op(Ops::new().at(&secret), Stateid::ANONYMOUS), Status::Access);
    });
}

#[test]
fn read_refusals() {
    every_minor(|s| {
        check_refusals(s, "READ", &|ops, stateid| ops.read(stateid, 0, 1));
        // An old seqid of an open.
        let first = s.c.open(&OpenRequest::name(&s.root, "file").access(1)).unwrap();
        s.open();
        let old = Stateid { seqid: first.stateid.seqid, ..first.stateid };
        assert_eq!(s.c.read(&s.file, old, 0, 1).unwrap_err(), Status::OldStateid);
    });
    each([2], |s| {
        check_refusals(s, "READ_PLUS", &|ops, stateid| {
            ops.op::<ReadPlus>(&read_plus::Args { stateid, offset: 0, count: 1 })
        });
    });
    each([2], |s| {
        check_refusals(s, "SEEK", &|ops, stateid| {
            ops.op::<Seek>(&seek::Args { stateid, offset: 0, what: 1 })
        });
    });
}

#[test]
fn another_users_stateid_gives_no_rights() {
    every_minor(|s| {
        let secret = s.c.file(&s.root, "secret", b"x");
        s.c.setattr(&secret, Stateid::ANONYMOUS, mode(0o600)).unwrap();
        let opened = s.c.open(&OpenRequest::name(&s.root, "secret")).unwrap();
        s.c.as_user(1000, || {
            let stolen = s.c.read(&secret, opened.stateid, 0, 1);
            assert_eq!(stolen.unwrap_err(), Status::Access);
            assert_eq!(s.c.write(&secret, opened.stateid, 0, b"y"), Err(Status::Access));
        });
    });
}

#[test]
fn an_upgrade_by_another_user_lends_the_first_one_nothing() {
    every_minor(|s| {
        let wish = |access| OpenRequest::name(&s.root, "file").access(access).owner("o");
        let first = s.c.as_user(1000, || s.c.open(&wish(1)).unwrap());
        let opened = s.c.open(&wish(2)).unwrap();
        assert_eq!(opened.stateid.other, first.stateid.other, "the same open");
        s.c.as_user(1000, || {
            assert_eq!(s.c.write(&s.file, opened.stateid, 0, b"y"), Err(Status::Access));
            assert!(s.c.read(&s.file, opened.stateid, 0, 1).is_ok());
        });
        assert!(s.c.write(&s.file, opened.stateid, 0, b"y").is_ok());
    });
}

/// A file with data at 0..4096 and 8192..8292, size 20000.
fn holey(s: &Fixture) -> zgate_test_harness::nfs::Opened {
    let opened = s.c.create("holey");
    s.c.write(&opened.fh, opened.stateid, 0, &[1; 4096]).unwrap();
    s.c.write(&opened.fh, opened.stateid, 8192, &[2; 100]).unwrap();
    s.c.truncate(&opened.fh, opened.stateid, 20_000).unwrap();
    opened
}

#[test]
fn read_plus_tells_data_from_holes() {
    each([2], |s| {
        let opened = holey(s);
        let (expected, size) = (s.c.content(&opened.fh), 20_000);
        for (offset, count) in [(0, 30_000), (100, 5000), (4096, 10), (9000, 50_000), (0, 0), (30_000, 9)] {
            let args = read_plus::Args { stateid: opened.stateid, offset, count };
            let ops = Ops::new().at(&opened.fh).op::<ReadPlus>(&args);
            let res = s.c.run(ops).ok().get::<ReadPlus>();
            let mut at = offset;
            for content in &res.contents {
                let (start, end) = match content {
                    Content::Data(start, Payload::Bytes(data)) => {
                        let from = *start as usize;
                        assert_eq!(&expected[from..from + data.len()], &data[..]);
                        (*start, start + data.len() as u64)
                    }
                    Content::Data(..) => panic!("the call requested bytes"),
                    Content::Hole(start, length) => {
                        let range = *start as usize..(start + length) as usize;
                        assert!(expected[range].iter().all(|byte| *byte == 0));
                        (*start, start + length)
                    }
                };
                assert_eq!(start, at, "in order, without gaps");
                assert!(end > start && end <= size && end <= offset + u64::from(count));
                at = end;
            }
            assert_eq!(res.eof, at >= size, "{offset} {count}");
            if offset == 0 && count == 30_000 {
                assert!(res.contents.iter().any(|c| matches!(c, Content::Hole(..))));
            }
        }
    });
}

/// Linux receives an answer into room for one segment with all that it asked for, and fails the
/// read if the answer is longer, or has nothing and is not the end.
#[test]
fn an_answer_of_read_plus_fits_into_the_room_of_one_segment() {
    each([2], |s| {
        let opened = holey(s);
        for offset in [4086, 4092, 4095, 8180, 8191, 8290, 8291, 19_999] {
            for count in [1, 5, 9, 13, 17, 40, 4096, 8192] {
                let args = read_plus::Args { stateid: opened.stateid, offset, count };
                let ops = Ops::new().at(&opened.fh).op::<ReadPlus>(&args);
                let res = s.c.run(ops).ok().get::<ReadPlus>();
                let bytes = res.contents.iter().map(|content| match content {
                    Content::Hole(..) => 20,
                    Content::Data(_, data) => 16 + data.len().next_multiple_of(4),
                });
                assert!(bytes.sum::<usize>() <= count as usize + 20, "{offset} {count}");
                let has_hole = res.contents.iter().any(|one| matches!(one, Content::Hole(..)));
                assert!(count >= 64 || !has_hole, "{offset} {count}");
                assert!(!res.contents.is_empty(), "{offset} {count}");
            }
        }
    });
}

/// A store whose answers about holes may wait.
struct SlowSeeks(MemoryStore);

impl FileStore for SlowSeeks {
    zgate_store::forward_files! {
        self => self.0;
        root identity fsid recent_attr getattr lookup lookup_parent access setattr readlink
        create_file create_node open remove rename link readdir read write losses commit
        sync_objects sync_names allocate deallocate seek copy_range clone_range advise statfs
        get_xattr set_xattr list_xattrs remove_xattr get_acl set_acl
    }

    fn traits(&self) -> StoreTraits {
        StoreTraits { seeks_at_once: false, ..self.0.traits() }
    }
}

/// Linux reads by READ_PLUS: it asks storage for no more than READ does.
#[test]
fn read_plus_reads_once_where_a_seek_may_wait_and_where_there_is_no_hole() {
    // Attributes, seeks and reads; the end of the file; bytes of each hole (true) and of data.
    let read = |s: &Fixture, fh: &Fh, (offset, count): (u64, u32)| {
        let faults = s.harness.store.faults();
        let asked = || [FileOp::GetAttr, FileOp::Seek, FileOp::Read].map(|call| faults.calls(call));
        let before = asked();
        let args = read_plus::Args { stateid: Stateid::ANONYMOUS, offset, count };
        let res = s.c.run(Ops::new().at(fh).op::<ReadPlus>(&args)).ok().get::<ReadPlus>();
        let calls = [0, 1, 2].map(|call| asked()[call] - before[call]);
        let mut segments = Vec::new();
        for content in &res.contents {
            let (start, is_hole, bytes) = match content {
                Content::Hole(start, bytes) => (start, true, *bytes),
                Content::Data(start, data) => (start, false, data.len() as u64),
            };
            assert_eq!(*start, offset);
            segments.push((is_hole, bytes));
        }
        (calls, res.eof, segments)
    };
    each([2], |s| {
        assert_eq!(read(s, &s.file, (0, 4096)), ([1, 0, 1], true, vec![(false, 7)]));
        let holey = holey(s).fh;
        s.harness.serve_through("/export", Arc::new(SlowSeeks(s.harness.store.clone())));
        for (range, eof, segment) in [
            ((0, 4096), false, Some((false, 4096))),
            ((4096, 4096), false, Some((true, 4096))),
            ((4096, 4097), false, Some((false, 4097))),
            ((9000, 50_000), true, Some((true, 11_000))),
            ((0, 0), false, None),
            ((30_000, 9), true, None),
            ((u64::MAX, 1), true, None),
        ] {
            let (calls, is_end, segments) = read(s, &holey, range);
            assert_eq!(calls, [0, 0, 1], "{range:?}");
            assert_eq!((is_end, segments), (eof, segment.into_iter().collect()), "{range:?}");
        }
    });
}

#[test]
fn seek_finds_edges() {
    each([2], |s| {
        let opened = holey(s);
        let ask = |offset, what| {
            let args = seek::Args { stateid: opened.stateid, offset, what };
            s.c.run(Ops::new().at(&opened.fh).op::<Seek>(&args)).result()
        };
        let found = |offset, what| {
            let res = ask(offset, what).unwrap().get::<Seek>();
            (res.eof, res.offset)
        };
        assert_eq!(found(0, 0), (false, 0));
        assert_eq!(found(0, 1), (false, 4096));
        assert_eq!(found(4096, 0), (false, 8192));
        assert_eq!(found(5000, 1), (false, 5000));
        assert!(found(19_000, 0).0, "only a hole is left");
        assert_eq!(ask(20_000, 0).unwrap_err(), Status::Nxio);
        assert_eq!(ask(u64::MAX, 1).unwrap_err(), Status::Nxio);
        assert_eq!(ask(0, 7).unwrap_err(), Status::UnionNotsupp);
    });
}

#[test]
fn advice_is_taken_or_not() {
    each([2], |s| {
        let ask = |ops: Ops, hints: &[u32]| {
            let hints = Bitmap::of(hints);
            let stateid = Stateid::ANONYMOUS;
            ops.op::<IoAdvise>(&io_advise::Args { stateid, offset: 0, count: 0, hints })
        };
        let reply = s.c.run(ask(Ops::new().at(&s.file), &[1, 4, 30])).ok();
        assert_eq!(reply.get::<IoAdvise>(), Bitmap::of(&[1, 4]));
        s.c.check("no handle", ask(Ops::new(), &[]), Status::Nofilehandle);
        s.c.check("a directory", ask(Ops::new().at(&s.dir), &[1]), Status::Isdir);
        s.c.check("stale", ask(Ops::new().at(&s.stale), &[1]), Status::Stale);
        s.c.check("pseudo", ask(Ops::new().root(), &[1]), Status::Isdir);
    });
    // A plain READ is unchanged by the other operations.
    each([2], |s| {
        let both = Ops::new().at(&s.file).read(Stateid::ANONYMOUS, 0, 1);
        assert_eq!(s.c.run(both).ok().get::<Read>().data.len(), 1);
    });
}
