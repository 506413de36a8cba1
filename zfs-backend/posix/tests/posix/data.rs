//! File data: reads, writes, space, holes, copies.

use crate::fixture::*;
use bytes::Bytes;
use std::process::{Command, Stdio};
use zgate_posix::{DirectIo, PosixOptions, PosixStore};
use zgate_store::file_store::{Advice, CreateMode, ReadHow, SeekWhat, Stability};
use zgate_store::{FileStore, Payload, SetAttr, StoreError};

#[test]
fn bytes_come_back_and_the_end_is_told() {
    in_both_modes(|s| async move {
        let (_, file) = s.file("f").await;
        assert_eq!(s.read(&file, 0, 10).await, (vec![], true));
        s.write(&file, 0, b"hello world").await;
        assert_eq!(s.read(&file, 0, 5).await, (b"hello".to_vec(), false));
        assert_eq!(s.read(&file, 6, 5).await, (b"world".to_vec(), true));
        assert_eq!(s.read(&file, 6, 500).await, (b"world".to_vec(), true));
        assert_eq!(s.read(&file, 11, 5).await, (vec![], true));
        assert_eq!(s.read(&file, u64::MAX, 5).await, (vec![], true));
        for stability in [Stability::Unstable, Stability::DataSync, Stability::FileSync] {
            let data = Bytes::from(vec![7; 200_000]);
            let (count, now) = s.store.write(&file, 100, data, stability).await.unwrap();
            assert_eq!(count, 200_000);
            assert!(now >= stability);
        }
        s.store.commit(&file).await.unwrap();
        let (data, eof) = s.read(&file, 0, 1 << 20).await;
        assert_eq!((data.len(), eof), (200_100, true));
        let far = s.store.write(&file, u64::MAX - 5, Bytes::from(vec![0; 10]), Stability::Unstable);
        assert_eq!(error_of(far.await), StoreError::TooLarge);
    });
}

#[test]
fn large_cached_reads_may_be_spans() {
    in_both_modes(|s| async move {
        let (_, file) = s.file("f").await;
        s.write(&file, 0, &vec![5; 300_000]).await;
        let how = ReadHow { span_allowed: true, tells_holes: false };
        let read = s.store.read(&file, 100_000, 1 << 20, how).await.unwrap();
        assert!(read.eof);
        assert_eq!(read.data.len(), 200_000);
        if let Payload::Span(span) = read.data {
            let fd = span.file.downcast::<std::os::fd::OwnedFd>().unwrap();
            assert_eq!(rustix::fs::fstat(&*fd).unwrap().st_size, 300_000);
            assert_eq!(span.offset, 100_000);
        }
        let small = s.store.read(&file, 0, 1000, how).await.unwrap();
        assert!(matches!(small.data, Payload::Bytes(_)));
    });
}

#[test]
fn an_open_file_outlives_its_name() {
    in_both_modes(|s| async move {
        let (node, file) = s.file("f").await;
        s.write(&file, 0, b"still here").await;
        s.store.remove(&root(), &s.root(), b"f", None).await.unwrap();
        s.store.release();
        assert_eq!(s.read(&file, 0, 100).await.0, b"still here");
        let attr = s.store.getattr(&node.handle).await.unwrap();
        assert_eq!((attr.nlink, attr.size), (0, 10));
        // Another client with the handle may still open it.
        let second = s.store.open(&root(), &node.handle, READ_WRITE).await.unwrap();
        drop(file);
        s.write(&second, 0, b"S").await;
        drop(second);
        assert_eq!(error_of(s.store.getattr(&node.handle).await), StoreError::Stale);
        assert_eq!(error_of(s.store.open(&root(), &node.handle, READ).await), StoreError::Stale);
    });
}

#[test]
fn an_open_file_permits_what_was_granted() {
    in_both_modes(|s| async move {
        let (node, _) = s.file("f").await;
        let reader = s.store.open(&root(), &node.handle, READ).await.unwrap();
        let written = s.store.write(&reader, 0, Bytes::from_static(b"x"), Stability::Unstable);
        assert_eq!(error_of(written.await), StoreError::AccessDenied);
        let write_only = zgate_store::file_store::OpenAccess { read: false, ..READ_WRITE };
        let writer = s.store.open(&root(), &node.handle, write_only).await.unwrap();
        s.write(&writer, 0, b"x").await;
        let how = ReadHow { span_allowed: false, tells_holes: false };
        let read = s.store.read(&writer, 0, 1, how).await;
        assert_eq!(error_of(read), StoreError::AccessDenied);
        let dir = s.store.open(&root(), &s.root(), READ).await;
        assert_eq!(error_of(dir), StoreError::IsDirectory);
    });
}

#[test]
fn space_and_holes() {
    in_both_modes(|s| async move {
        let (node, file) = s.file("f").await;
        s.store.allocate(&file, 0, 1 << 20).await.unwrap();
        assert_eq!(s.store.getattr(&node.handle).await.unwrap().size, 1 << 20);
        s.write(&file, 0, &vec![1; 1 << 20]).await;
        s.store.commit(&file).await.unwrap();
        let used = s.store.getattr(&node.handle).await.unwrap();
        s.store.deallocate(&file, 64 << 10, 512 << 10).await.unwrap();
        let after = s.store.getattr(&node.handle).await.unwrap();
        assert_eq!(after.size, 1 << 20);
        assert!(after.used_bytes < used.used_bytes && after.change > used.change);
        assert_eq!(s.read(&file, 100 << 10, 10).await.0, vec![0; 10]);
        assert_eq!(s.store.seek(&file, 0, SeekWhat::Hole).await.unwrap(), 64 << 10);
        assert_eq!(s.store.seek(&file, 64 << 10, SeekWhat::Data).await.unwrap(), 576 << 10);
        assert_eq!(s.store.seek(&file, 600 << 10, SeekWhat::Hole).await.unwrap(), 1 << 20);
        let beyond = s.store.seek(&file, 1 << 20, SeekWhat::Data).await;
        assert_eq!(error_of(beyond), StoreError::BeyondEnd);
        s.store.deallocate(&file, 2 << 20, u64::MAX).await.unwrap();
        s.store.advise(&file, 0, 0, Advice::WillNeed).await.unwrap();
        let stat = s.store.statfs(&node.handle).await.unwrap();
        assert!(stat.total_bytes > 0 && stat.available_bytes <= stat.free_bytes);
        assert_eq!(stat.max_name_bytes, 255);
    });
}

#[test]
fn copies_inside_the_store() {
    in_both_modes(|s| async move {
        let (_, from) = s.file("from").await;
        let (_, to) = s.file("to").await;
        let data: Vec<u8> = (0..3_000_000u32).map(|n| (n / 7) as u8).collect();
        s.write(&from, 0, &data).await;
        let count = s.store.copy_range(&from, 1000, &to, 5, 10_000_000).await.unwrap();
        assert_eq!(count, 2_999_000);
        assert_eq!(s.read(&to, 5, 3_000_000).await.0, data[1000..]);
        assert_eq!(s.store.copy_range(&from, 4_000_000, &to, 0, 5).await.unwrap(), 0);
        let overlap = s.store.copy_range(&from, 0, &from, 100, 1000).await;
        assert_eq!(error_of(overlap), StoreError::Invalid);
        assert_eq!(s.store.copy_range(&from, 0, &from, 4096, 4096).await.unwrap(), 4096);
        match s.store.clone_range(&from, 0, &to, 0, 0).await {
            Ok(()) => assert_eq!(s.read(&to, 0, 4096).await.0, data[..4096]),
            Err(error) => assert_eq!(error, StoreError::NotSupported),
        }
    });
}

#[test]
fn truncation_and_growth() {
    in_both_modes(|s| async move {
        let (node, file) = s.file("f").await;
        s.write(&file, 0, b"0123456789").await;
        let size = |size| SetAttr { size: Some(size), ..SetAttr::default() };
        let attr = s.store.setattr(&root(), &node.handle, &size(4), Some(&file)).await.unwrap();
        assert_eq!(attr.size, 4);
        let attr = s.store.setattr(&root(), &node.handle, &size(8), None).await.unwrap();
        assert_eq!(attr.size, 8);
        assert_eq!(s.read(&file, 0, 100).await.0, b"0123\0\0\0\0");
        let huge = s.store.setattr(&root(), &node.handle, &size(u64::MAX), None).await;
        assert_eq!(error_of(huge), StoreError::TooLarge);
        let dir = s.store.setattr(&root(), &s.root(), &size(0), None).await;
        assert_eq!(error_of(dir), StoreError::IsDirectory);
    });
}

/// On Linux 6.11 and 6.12, which let running programs be written, nothing is tested.
#[test]
fn a_running_program_is_neither_written_nor_cut() {
    in_both_modes(|s| async move {
        let path = s.path("cat");
        // Another process copies it: a child of another test that inherited the copy open for
        // writing would keep it from being run.
        let copy = ["-c", r#"cp "$(command -v cat)" "$0""#];
        assert!(Command::new("sh").args(copy).arg(&path).status().unwrap().success());
        let mut program = Command::new(&path).stdin(Stdio::piped()).spawn().unwrap();
        if std::fs::File::options().write(true).open(&path).is_err() {
            let node = s.lookup(&s.root(), "cat").await.unwrap();
            let opened = s.store.open(&root(), &node.handle, READ_WRITE).await;
            assert_eq!(error_of(opened), StoreError::TextBusy);
            let empty = SetAttr { size: Some(0), ..SetAttr::default() };
            let cut = s.store.setattr(&root(), &node.handle, &empty, None).await;
            assert_eq!(error_of(cut), StoreError::TextBusy);
            let (who, top) = (root(), s.root());
            let made = s.store.create_file(&who, &top, b"cat", CreateMode::Unchecked, &empty);
            assert_eq!(error_of(made.await), StoreError::TextBusy);
            assert!(s.store.open(&who, &node.handle, READ).await.is_ok());
        }
        drop(program.stdin.take());
        program.wait().unwrap();
    });
}

/// Reads that bypass the cache return the written bytes, also at the end of the
/// file and while another program writes through the cache.
#[test]
fn reads_past_the_cache_are_the_same_bytes() {
    for direct_io in [DirectIo::Auto, DirectIo::Always, DirectIo::Never] {
        in_both_modes(|s| async move {
            let opened = PosixOptions { direct_io, ..options(s.mode) };
            let store = PosixStore::open(s.dir.path(), opened).unwrap();
            let data: Vec<u8> = (0..3_000_123u32).map(|n| (n / 5) as u8).collect();
            std::fs::write(s.path("f"), &data).unwrap();
            let node = store.lookup(&root(), &store.root(), b"f").await.unwrap();
            let file = store.open(&root(), &node.handle, READ).await.unwrap();
            let how = ReadHow { span_allowed: false, tells_holes: false };
            let read = async |offset: usize, len: usize| {
                let read = store.read(&file, offset as u64, len, how).await.unwrap();
                let Payload::Bytes(bytes) = read.data else { panic!("no span was allowed") };
                let end = data.len().min(offset + len);
                assert_eq!(bytes, data[offset..end], "{direct_io:?} {offset} {len}");
                assert_eq!(read.eof, offset + len >= data.len());
            };
            // Otherwise `auto` reads a small file through the cache.
            store.advise(&file, 0, 0, Advice::NoReuse).await.unwrap();
            for offset in (0..data.len()).step_by(1 << 20) {
                read(offset, 1 << 20).await;
            }
            for (offset, len) in [(0, 1), (4096, 4096), (1, 4096), (2_998_272, 4096)] {
                read(offset, len).await;
            }
            read(1 << 20, 1 << 20).await;
            let written = std::os::unix::fs::FileExt::write_all_at;
            let other = std::fs::File::options().write(true).open(s.path("f")).unwrap();
            written(&other, b"new", 1 << 20).unwrap();
            let fresh = store.read(&file, 1 << 20, 1 << 20, how).await.unwrap();
            let Payload::Bytes(bytes) = fresh.data else { panic!("no span was allowed") };
            assert_eq!(bytes[..3], *b"new");
            other.set_len(5).unwrap();
            assert_eq!(store.read(&file, 0, 4096, how).await.unwrap().data.len(), 5);
        });
    }
}
