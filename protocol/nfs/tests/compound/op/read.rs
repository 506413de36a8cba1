//! READ, READ_PLUS, SEEK and IO_ADVISE (RFC 8881 §18.22, RFC 7862 §15.5,
//! §15.10, §15.11).

use zgate_test_harness::nfs::{Client, Ops, Fixture, OpenRequest, each, every_minor, mode};
use zgate_test_harness::nfs::sessions;
use zgate_nfs_wire::v4::op::IoAdvise;
use zgate_nfs_wire::v4::op::io_advise;
use zgate_nfs_wire::v4::op::Read;
use zgate_nfs_wire::v4::op::ReadPlus;
use zgate_nfs_wire::v4::op::read_plus::{Content, self};
use zgate_nfs_wire::v4::op::Seek;
use zgate_nfs_wire::v4::op::seek;
use zgate_nfs_wire::v4::{Bitmap, Fh, LockType, StableHow, Stateid, Status};
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use zgate_nfs::limits::MIN_CHANNEL_BYTES;
use zgate_memory::{FileOp, MemoryStore};
use zgate_store::file_store::{OpenAccess, OpenFile, ReadData, ReadHow, SeekWhat, Stability};
use zgate_store::{Caller, FileStore, Payload, SetAttr, StoreFuture, StoreResult};

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
        root traits identity fsid recent_attr getattr lookup lookup_parent access setattr readlink
        create_file create_node open remove rename link readdir write losses commit sync_objects
        sync_names allocate deallocate seek copy_range clone_range advise statfs get_xattr
        set_xattr list_xattrs remove_xattr get_acl set_acl
    }

    fn read<'a>(
        &'a self,
        file: &'a OpenFile,
        offset: u64,
        len: usize,
        how: ReadHow,
    ) -> StoreFuture<'a, ReadData> {
        self.0.read(file, offset, len, ReadHow { tells_holes: false, ..how })
    }
}

/// Returns the bytes of each hole (true) and of data of an answer, which begins at `offset`.
fn segments(offset: u64, contents: &[Content]) -> Vec<(bool, u64)> {
    let mut at = offset;
    let segment = |content: &Content| {
        let (start, is_hole, bytes) = match content {
            Content::Hole(start, bytes) => (*start, true, *bytes),
            Content::Data(start, data) => (*start, false, data.len() as u64),
        };
        assert_eq!(start, at, "in order, without gaps");
        at += bytes;
        (is_hole, bytes)
    };
    contents.iter().map(segment).collect()
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
        (calls, res.eof, segments(offset, &res.contents))
    };
    each([2], |s| {
        assert_eq!(read(s, &s.file, (0, 4096)), ([0, 0, 1], true, vec![(false, 7)]));
        let holey = holey(s).fh;
        // Of a file with holes it asks for the size. Where no data follows, it asks for the size
        // and for data again.
        assert_eq!(read(s, &holey, (0, 4096)), ([0, 2, 2], false, vec![(false, 4096)]));
        assert_eq!(read(s, &holey, (4096, 4096)), ([0, 1, 1], false, vec![(true, 4096)]));
        assert_eq!(read(s, &holey, (12_288, 50_000)), ([0, 2, 2], true, vec![(true, 7712)]));
        assert_eq!(read(s, &holey, (30_000, 100)), ([0, 0, 1], true, vec![]));
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

/// A change that somebody else makes to the file `cut`.
enum Change {
    /// It gets this size.
    Size(u64),
    /// So many bytes at its beginning are written.
    Data(usize),
    /// So many bytes at its beginning become a hole.
    Hole(u64),
}

/// A store in which the file `cut` changes before each call that reads a file or looks for its
/// holes.
struct Changing {
    store: MemoryStore,
    /// Changes before each of the next calls.
    changes: Mutex<VecDeque<Vec<Change>>>,
}

impl Changing {
    async fn change(&self) -> StoreResult<()> {
        let changes = self.changes.lock().unwrap().pop_front().unwrap_or_default();
        let (who, top) = (Caller::root(), self.store.root());
        let node = self.store.lookup(&who, &top, b"cut").await?.handle;
        let access =
            OpenAccess { read: true, write: true, stateless: false, read_by_execute: false };
        let file = self.store.open(&who, &node, access).await?;
        for change in changes {
            match change {
                Change::Size(size) => {
                    let attrs = SetAttr { size: Some(size), ..SetAttr::default() };
                    self.store.setattr(&who, &node, &attrs, None).await?;
                }
                Change::Data(count) => {
                    let data = Bytes::from(vec![7; count]);
                    self.store.write(&file, 0, data, Stability::Unstable).await?;
                }
                Change::Hole(count) => self.store.deallocate(&file, 0, count).await?,
            }
        }
        Ok(())
    }
}

impl FileStore for Changing {
    zgate_store::forward_files! {
        self => self.store;
        root traits identity fsid recent_attr getattr lookup lookup_parent access setattr readlink
        create_file create_node open remove rename link readdir write losses commit sync_objects
        sync_names allocate deallocate copy_range clone_range advise statfs get_xattr set_xattr
        list_xattrs remove_xattr get_acl set_acl
    }

    fn read<'a>(
        &'a self,
        file: &'a OpenFile,
        offset: u64,
        len: usize,
        how: ReadHow,
    ) -> StoreFuture<'a, ReadData> {
        Box::pin(async move {
            self.change().await?;
            self.store.read(file, offset, len, how).await
        })
    }

    fn seek<'a>(&'a self, file: &'a OpenFile, offset: u64, what: SeekWhat) -> StoreFuture<'a, u64> {
        Box::pin(async move {
            self.change().await?;
            self.store.seek(file, offset, what).await
        })
    }
}

/// Asks for a megabyte of the file `cut`, which has data up to 4096 and the size 20000, and changes
/// meanwhile. Returns whether the answer reaches the end, and the bytes of its holes (true) and
/// data.
fn read_while_it_changes(offset: u64, changes: Vec<Vec<Change>>) -> (bool, Vec<(bool, u64)>) {
    let s = Fixture::new(2);
    let opened = s.c.create("cut");
    s.c.write(&opened.fh, opened.stateid, 0, &[1; 4096]).unwrap();
    s.c.truncate(&opened.fh, opened.stateid, 20_000).unwrap();
    let changing = Changing { store: s.harness.store.clone(), changes: Mutex::new(changes.into()) };
    s.harness.serve_through("/export", Arc::new(changing));
    let args = read_plus::Args { stateid: Stateid::ANONYMOUS, offset, count: 1 << 20 };
    let res = s.c.run(Ops::new().at(&opened.fh).op::<ReadPlus>(&args)).ok().get::<ReadPlus>();
    (res.eof, segments(offset, &res.contents))
}

#[test]
fn the_last_hole_ends_where_the_file_ends_by_now() {
    // The size when holes are looked for; the hole behind 4096.
    for (size, hole) in [(20_000, Some(15_904)), (14_000, Some(9904)), (4096, None)] {
        let changes = vec![vec![], vec![Change::Size(size)]];
        let expected: Vec<_> = hole.into_iter().map(|bytes| (true, bytes)).collect();
        assert_eq!(read_while_it_changes(4096, changes), (true, expected), "{size}");
    }
}

#[test]
fn a_file_that_is_truncated_and_grows_while_it_is_read_has_no_hole_where_it_has_data() {
    // Between the search for data and the question for the size it grows, once with a hole.
    let grows = |size| {
        vec![vec![], vec![Change::Size(100)], vec![Change::Data(20_000), Change::Size(size)]]
    };
    let data = (false, 15_904);
    assert_eq!(read_while_it_changes(4096, grows(20_000)), (true, vec![data]));
    let whole_pages = (false, 16_384);
    let found = read_while_it_changes(4096, grows(40_000));
    assert_eq!(found, (true, vec![whole_pages, (true, 19_520)]));
}

/// It would be one byte of data, and a hole with an odd offset.
#[test]
fn a_hole_that_is_punched_while_its_data_is_looked_for_is_read_at_once() {
    let changes = vec![vec![], vec![], vec![Change::Hole(4096)]];
    assert_eq!(read_while_it_changes(0, changes), (true, vec![(false, 20_000)]));
}

/// A client with room for so many bytes of answers that are kept, or that are not.
fn with_room(s: &Fixture, name: &str, kept: u32, others: u32) -> Client {
    let client = s.harness.stranger(name, s.c.minor);
    client.introduce_with(|fore| {
        fore.max_cached_bytes = kept;
        fore.max_response_bytes = others;
    });
    client.reclaim_complete().unwrap();
    client
}

/// Asks for a kilobyte at an offset: its bytes, and the end of the file.
type Ask = fn(&Client, &Fh, u64) -> Result<(usize, bool), Status>;

fn ask_read(client: &Client, fh: &Fh, offset: u64) -> Result<(usize, bool), Status> {
    let ops = Ops::new().at(fh).read(Stateid::ANONYMOUS, offset, 1024);
    let res = client.run(ops).result()?.get::<Read>();
    Ok((res.data.len(), res.eof))
}

fn ask_read_plus(client: &Client, fh: &Fh, offset: u64) -> Result<(usize, bool), Status> {
    let args = read_plus::Args { stateid: Stateid::ANONYMOUS, offset, count: 1024 };
    let res = client.run(Ops::new().at(fh).op::<ReadPlus>(&args)).result()?.get::<ReadPlus>();
    let bytes = res.contents.iter().map(|content| match content {
        Content::Data(_, data) => data.len(),
        Content::Hole(_, bytes) => *bytes as usize,
    });
    Ok((bytes.sum(), res.eof))
}

/// A client asks for the rest of a short read: without any progress it would do so for ever.
#[test]
fn a_read_without_room_for_any_data_is_refused() {
    sessions(|s| {
        let file = s.c.file(&s.root, "kilobyte", &[5; 1024]);
        let asks: [Ask; 2] = [ask_read, ask_read_plus];
        for (number, ask) in asks[..usize::from(s.c.minor)].iter().enumerate() {
            let (mut answered, mut refused, mut ends) = (0, 0, 0);
            for kept in (120..=240).step_by(4) {
                let client = with_room(s, &format!("{number}/{kept}"), kept, 4096);
                client.cache.set(true);
                match ask(&client, &file, 0) {
                    Ok((bytes, eof)) => {
                        assert!(bytes > 0 && !eof, "{kept}");
                        answered += 1;
                    }
                    Err(status) => {
                        assert_eq!(status, Status::RepTooBigToCache, "{kept}");
                        refused += 1;
                        // The end of the file needs no room.
                        ends += usize::from(ask(&client, &file, 5000) == Ok((0, true)));
                    }
                }
            }
            assert!(answered > 0 && refused > ends && ends > 0, "{answered} {refused} {ends}");
            // The smallest session has room for some data.
            let tiny = with_room(s, &format!("tiny{number}"), 4096, MIN_CHANNEL_BYTES);
            let (bytes, eof) = ask(&tiny, &file, 0).unwrap();
            assert!(bytes > 64 && !eof, "{bytes}");
        }
    });
}

/// Without a session the bound is that of all answers.
#[test]
fn a_read_behind_others_that_fill_the_answer_of_minor_version_0_is_refused() {
    each([0], |s| {
        let big = s.c.file(&s.root, "big", &vec![5; 1 << 20]);
        let read = |ops: Ops, count| ops.read(Stateid::ANONYMOUS, 0, count);
        let (mut answered, mut refused) = (0, 0);
        for fifth in (65_416..=65_440).step_by(4) {
            let four = (0..4).fold(Ops::new().at(&big), |ops, _| read(ops, 1 << 20));
            match s.c.run(read(read(four, fifth), 1024)).result() {
                Ok(reply) => {
                    assert!(!reply.get::<Read>().data.is_empty(), "{fifth}");
                    answered += 1;
                }
                Err(status) => {
                    assert_eq!(status, Status::Resource, "{fifth}");
                    refused += 1;
                }
            }
        }
        assert!(answered > 0 && refused > 0, "{answered} {refused}");
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
