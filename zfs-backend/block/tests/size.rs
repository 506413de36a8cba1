//! Disks that grow, shrink, run full, or lie on file systems without features.
#![allow(clippy::unwrap_used, reason = "tests")]

mod workbench;

use bytes::Bytes;
use std::fs::OpenOptions;
use std::path::Path;
use std::rc::Rc;
use workbench::*;
use zgate_block::{BlockOptions, BlockVolume, DirectIo, OpenError, ResizeError, Shrink};
use zgate_store::{BlockStore, StoreError};

#[test]
fn a_file_grows() {
    on_every_file(async |volume, path| {
        assert_eq!(volume.resize(8 * MIB, Shrink::Refuse).await, Ok(8 * MIB));
        assert_eq!(volume.geometry().capacity_bytes, 8 * MIB);
        assert_eq!(std::fs::metadata(path).unwrap().len(), 8 * MIB);
        volume.write(8 * MIB - 4096, pattern(4096, 1), true).await.unwrap();
        assert!(is_zero(&read(volume, 4 * MIB, 4096).await.unwrap()));
    });
}

#[test]
fn a_file_shrinks_only_as_allowed() {
    on_every_file(async |volume, path| {
        volume.write(2 * MIB, pattern(4096, 1), true).await.unwrap();
        let smaller = Err(ResizeError::Smaller { capacity_bytes: 4 * MIB });
        assert_eq!(volume.resize(MIB, Shrink::Refuse).await, smaller);
        assert_eq!(volume.resize(MIB, Shrink::IfUnused).await, Err(ResizeError::DataLost));
        assert_eq!(volume.geometry().capacity_bytes, 4 * MIB);
        assert_eq!(volume.resize(3 * MIB, Shrink::IfUnused).await, Ok(3 * MIB));
        assert_eq!(volume.resize(MIB, Shrink::DiscardData).await, Ok(MIB));
        assert_eq!(std::fs::metadata(path).unwrap().len(), MIB);
        let beyond = Err(StoreError::BeyondEnd);
        assert_eq!(volume.write(MIB, pattern(512, 1), false).await, beyond);
        assert_eq!(volume.resize(3 * MIB, Shrink::Refuse).await, Ok(3 * MIB));
        assert!(is_zero(&read(volume, 2 * MIB, 4096).await.unwrap()), "old data is gone");
    });
}

#[test]
fn sizes_must_be_whole_blocks() {
    on_every_file(async |volume, path| {
        for bad in [0, 1, 511, 4 * MIB + 100] {
            let outcome = volume.resize(bad, Shrink::DiscardData).await;
            assert!(matches!(outcome, Err(ResizeError::NotWhole { .. })), "{outcome:?}");
        }
        let huge = volume.resize(u64::MAX - 4095, Shrink::Refuse).await;
        assert_eq!(huge, Err(ResizeError::Store(StoreError::TooLarge)));
        assert_eq!(std::fs::metadata(path).unwrap().len(), 4 * MIB);
    });
}

#[test]
fn a_size_changed_elsewhere_is_seen_after_a_refresh() {
    on_every_file(async |volume, path| {
        let file = OpenOptions::new().write(true).open(path).unwrap();
        file.set_len(6 * MIB).unwrap();
        assert_eq!(volume.geometry().capacity_bytes, 4 * MIB);
        assert_eq!(volume.refresh().await, Ok(6 * MIB));
        assert_eq!(volume.geometry().capacity_bytes, 6 * MIB);
        file.set_len(MIB).unwrap();
        let cut = read(volume, 2 * MIB, 4096).await;
        assert_eq!(cut, Err(StoreError::BeyondEnd), "the file is shorter than the disk");
        assert_eq!(volume.refresh().await, Ok(MIB));
    });
}

#[test]
fn shrinking_waits_for_writes_in_progress() {
    let dir = scratch();
    let path = file_of(&dir, 4 * MIB);
    let volume = Rc::new(BlockVolume::open(&path, options(), engine()).unwrap());
    run(async {
        let mut tasks = Vec::new();
        for block in 0..200u64 {
            let volume = Rc::clone(&volume);
            tasks.push(tokio::task::spawn_local(async move {
                volume.write(4 * MIB - 4096 * (block + 1), pattern(4096, block), false).await
            }));
        }
        tokio::task::yield_now().await;
        volume.resize(MIB, Shrink::DiscardData).await.unwrap();
        for task in tasks {
            let outcome = task.await.unwrap();
            assert!(matches!(outcome, Ok(()) | Err(StoreError::BeyondEnd)), "{outcome:?}");
        }
    });
    assert_eq!(std::fs::metadata(&path).unwrap().len(), MIB, "no late write made it longer");
}

#[test]
fn a_read_only_file_keeps_its_size() {
    let dir = scratch();
    let path = file_of(&dir, MIB);
    let reader = BlockOptions { read_only: true, ..options() };
    let volume = BlockVolume::open(&path, reader, engine()).unwrap();
    let outcome = run(volume.resize(2 * MIB, Shrink::Refuse));
    assert_eq!(outcome, Err(ResizeError::Store(StoreError::ReadOnly)));
}

#[test]
fn a_full_file_system_is_named() {
    let Some(place) = SmallFileSystem::new() else { return };
    for engine in engines() {
        let path = file_of(&place.0, 4 * MIB);
        let volume = BlockVolume::open(&path, options(), engine).unwrap();
        run(async {
            let full = Err(StoreError::NoSpace);
            assert_eq!(volume.write(0, pattern(2 << 20, 1), false).await, full);
            assert_eq!(volume.write(2 * MIB, pattern(2 << 20, 1), true).await, full);
            volume.discard(0, 4 * MIB).await.unwrap();
            volume.write(0, pattern(65_536, 1), true).await.unwrap();
        });
    }
}

#[test]
fn a_file_system_without_zero_range_gets_zeros_written() {
    let Some(place) = SmallFileSystem::new() else { return };
    let path = file_of(&place.0, 512 << 10);
    let volume = BlockVolume::open(&path, options(), engine()).unwrap();
    run(async {
        volume.write(0, pattern(512 << 10, 1), false).await.unwrap();
        volume.write_zeroes(1000, 300_000, false).await.unwrap();
        assert!(is_zero(&read(&volume, 1000, 300_000).await.unwrap()));
        assert!(allocated(&path) >= 512 << 10, "space stays");
        volume.write_zeroes(0, 512 << 10, true).await.unwrap();
        assert!(is_zero(&read(&volume, 0, 512 << 10).await.unwrap()));
        assert_eq!(allocated(&path), 0, "space goes");
    });
}

#[test]
fn a_read_only_file_system_is_named() {
    let Some(place) = SmallFileSystem::new() else { return };
    let path = file_of(&place.0, 65_536);
    let name = place.0.path().to_str().unwrap();
    program("mount", &["-o", "remount,ro", name]).unwrap();
    let error = BlockVolume::open(&path, options(), engine()).unwrap_err();
    assert!(matches!(error, OpenError::NotWritable { .. }), "{error}");
    let reader = BlockOptions { read_only: true, ..options() };
    let volume = BlockVolume::open(&path, reader, engine()).unwrap();
    assert!(is_zero(&run(read(&volume, 0, 65_536)).unwrap()));
}

#[test]
fn demanded_direct_io_works_or_says_why_not() {
    let shm = Path::new("/dev/shm");
    let Ok(dir) = tempfile::tempdir_in(shm) else {
        return say("no /dev/shm here: direct I/O on tmpfs not tried");
    };
    let path = file_of(&dir, MIB);
    match BlockVolume::open(&path, direct(DirectIo::Always), engine()) {
        Ok(volume) => run(async {
            volume.write(5, Bytes::from_static(b"x"), true).await.unwrap();
            assert_eq!(read(&volume, 5, 1).await.unwrap(), "x");
        }),
        Err(error) => assert!(matches!(error, OpenError::NoDirectIo { .. }), "{error}"),
    }
}

#[test]
fn what_changed_below_is_seen_and_the_space_is_told() {
    on_every_file(async |volume, path| {
        let space = volume.space_below().await.unwrap().unwrap();
        assert!(space.available_bytes > 0 && space.total_bytes >= space.available_bytes);
        volume.write(0, pattern(65536, 1), true).await.unwrap();
        let used = volume.space_below().await.unwrap().unwrap().used_bytes;
        assert!((65536..=4 * MIB).contains(&used), "{used}");
        assert!(!volume.is_orphaned().await);
        OpenOptions::new().write(true).open(path).unwrap().set_len(6 * MIB).unwrap();
        assert_eq!(volume.size_below().await, Ok(6 * MIB));
        assert_eq!(volume.geometry().capacity_bytes, 4 * MIB, "until it is refreshed");
        std::fs::remove_file(path).unwrap();
        assert!(volume.is_orphaned().await);
        std::fs::write(path, b"another").unwrap();
        assert!(volume.is_orphaned().await);
        assert_eq!(read(volume, 0, 4096).await.unwrap(), pattern(65536, 1)[..4096]);
    });
}
