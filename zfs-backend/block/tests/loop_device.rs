//! A block device as a disk, on loop devices. They need root and losetup; where
//! these are missing the tests print so (see `LoopDevice::new`).
#![allow(clippy::unwrap_used, reason = "tests")]

mod workbench;

use bytes::Bytes;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::rc::Rc;
use workbench::*;
use zgate_block::{
    BackingKind, BlockOptions, BlockVolume, DirectIo, OpenError, ResizeError, Shrink,
};
use zgate_store::block_store::{Extent, ExtentKind};
use zgate_store::{BlockStore, StoreError};

/// Runs the work on a fresh 8 MiB device with every engine, past the page
/// cache and through it.
fn on_every_device(arguments: &[&str], work: impl AsyncFn(&BlockVolume, &Path)) {
    for engine in engines() {
        for how in [DirectIo::Auto, DirectIo::Never] {
            let Some(device) = LoopDevice::new(8 * MIB, arguments) else { return };
            let volume = BlockVolume::open(&device.path, direct(how), engine.clone()).unwrap();
            assert_eq!(volume.is_direct(), how == DirectIo::Auto);
            run(work(&volume, &device.below));
        }
    }
}

#[test]
fn geometry_is_what_the_device_says() {
    on_every_device(&[], async |volume, _| {
        let shape = volume.geometry();
        assert_eq!(volume.kind(), BackingKind::Loop);
        assert_eq!(shape.capacity_bytes, 8 * MIB);
        assert!(shape.physical_block_bytes.is_power_of_two() && shape.physical_block_bytes >= 512);
        assert!(shape.optimal_io_bytes > 0);
        assert!(shape.discard_granularity_bytes.is_some_and(|bytes| bytes >= 512));
        assert!(!shape.read_only && shape.discard_zeroes);
        assert!(volume.unit_bytes() >= 512);
    });
    on_every_device(&["--sector-size", "4096"], async |volume, _| {
        assert_eq!(volume.unit_bytes(), 4096);
        assert_eq!(volume.geometry().physical_block_bytes, 4096);
    });
}

#[test]
fn what_is_written_reaches_the_device() {
    for arguments in [&[][..], &["--sector-size", "4096"]] {
        on_every_device(arguments, async |volume, below| {
            let data = pattern(1 << 20, 9);
            for (offset, len) in [(0, 512), (4096, 1 << 20), (MIB + 512, 70_000), (8 * MIB - 1, 1)]
            {
                let part = data.slice(..len);
                volume.write(offset, part.clone(), true).await.unwrap();
                assert!(read(volume, offset, len).await.unwrap() == part, "{offset}+{len}");
                let start = offset as usize;
                assert!(std::fs::read(below).unwrap()[start..start + len] == part);
            }
            volume.write(2 * MIB, data.clone(), false).await.unwrap();
            volume.sync().await.unwrap();
            assert!(std::fs::read(below).unwrap()[2 << 20..3 << 20] == data);
        });
    }
}

#[test]
fn writers_of_one_large_block_do_not_undo_each_other() {
    for engine in engines() {
        let Some(device) = LoopDevice::new(MIB, &["--sector-size", "4096"]) else { return };
        let volume = BlockVolume::open(&device.path, options(), engine).unwrap();
        let volume = Rc::new(volume);
        run(async {
            let mut tasks = Vec::new();
            for part in 0..256u64 {
                let volume = Rc::clone(&volume);
                tasks.push(tokio::task::spawn_local(async move {
                    let data = Bytes::from(vec![(part % 251) as u8 + 1; 512]);
                    volume.write(part * 512, data, part % 5 == 0).await.unwrap();
                }));
            }
            for task in tasks {
                task.await.unwrap();
            }
            let all = read(&volume, 0, 256 * 512).await.unwrap();
            for (part, bytes) in all.chunks(512).enumerate() {
                assert!(bytes.iter().all(|&byte| byte == (part % 251) as u8 + 1), "part {part}");
            }
        });
    }
}

#[test]
fn discarding_frees_space_and_leaves_zeros() {
    on_every_device(&[], async |volume, below| {
        volume.write(0, pattern(8 << 20, 1), true).await.unwrap();
        let full = allocated(below);
        volume.discard(MIB, 4 * MIB).await.unwrap();
        assert!(is_zero(&read(volume, MIB, 4 << 20).await.unwrap()));
        assert!(allocated(below) + 4 * MIB <= full + 65_536, "space was freed");
        volume.discard(6 * MIB + 100, 10_000).await.unwrap();
        let around = read(volume, 6 * MIB, 16_384).await.unwrap();
        assert!(is_zero(&around[100..10_100]) && around[99] != 0 && around[10_100] != 0);
        volume.discard(7 * MIB, 0).await.unwrap();
    });
}

#[test]
fn content_that_comes_back_below_is_mapped_after_a_refresh() {
    on_every_device(&[], async |volume, below| {
        let all = |kind| [Extent { offset: MIB, len: MIB, kind }];
        volume.write(0, pattern(4 << 20, 1), true).await.unwrap();
        volume.discard(MIB, MIB).await.unwrap();
        assert_eq!(volume.extents(MIB, MIB, 4).await.unwrap(), all(ExtentKind::Deallocated));
        // As a rollback does.
        let file = OpenOptions::new().write(true).open(below).unwrap();
        file.write_all_at(&pattern(1 << 20, 2), MIB).unwrap();
        assert_eq!(volume.refresh().await, Ok(8 * MIB));
        assert_eq!(volume.extents(MIB, MIB, 4).await.unwrap(), all(ExtentKind::Mapped));
        volume.discard(MIB, MIB).await.unwrap();
        assert_eq!(volume.extents(MIB, MIB, 4).await.unwrap(), all(ExtentKind::Deallocated));
        // Somebody says so.
        volume.content_replaced();
        assert_eq!(volume.extents(MIB, MIB, 4).await.unwrap(), all(ExtentKind::Mapped));
    });
}

#[test]
fn zeros_keep_their_space_unless_it_may_go() {
    on_every_device(&[], async |volume, below| {
        volume.write(0, pattern(8 << 20, 1), true).await.unwrap();
        let full = allocated(below);
        volume.write_zeroes(MIB, MIB, false).await.unwrap();
        assert!(is_zero(&read(volume, MIB, 1 << 20).await.unwrap()));
        assert!(allocated(below) + 65_536 >= full, "space stays");
        volume.write_zeroes(2 * MIB, 2 * MIB, true).await.unwrap();
        assert!(is_zero(&read(volume, 2 * MIB, 2 << 20).await.unwrap()));
        assert!(allocated(below) + 2 * MIB <= full + 65_536, "space goes");
        volume.write_zeroes(5 * MIB + 3, 5000, false).await.unwrap();
        let around = read(volume, 5 * MIB, 8192).await.unwrap();
        assert!(is_zero(&around[3..5003]) && around[2] != 0 && around[5003] != 0);
    });
}

#[test]
fn every_byte_of_a_device_counts_as_mapped() {
    on_every_device(&[], async |volume, _| {
        let found = volume.extents(512, MIB, 4).await.unwrap();
        assert_eq!(found, [Extent { offset: 512, len: MIB, kind: ExtentKind::Mapped }]);
        assert_eq!(volume.extents(512, MIB, 0).await.unwrap(), []);
        volume.prefetch(0, MIB).await.unwrap();
    });
}

#[test]
fn a_second_user_of_a_device_is_noticed() {
    let Some(device) = LoopDevice::new(MIB, &[]) else { return };
    let first = BlockVolume::open(&device.path, options(), engine()).unwrap();
    let second = BlockVolume::open(&device.path, options(), engine()).unwrap_err();
    assert!(matches!(second, OpenError::InUse { .. }), "{second}");
    drop(first);
    BlockVolume::open(&device.path, options(), engine()).unwrap();
}

#[test]
fn a_mounted_device_is_noticed_with_its_place() {
    let Some(device) = LoopDevice::new(8 * MIB, &[]) else { return };
    if let Err(why) = program("mkfs.ext4", &["-q", device.name()]) {
        return not_run("mounted device test", &why);
    }
    let dir = scratch();
    let place = dir.path().to_str().unwrap();
    if let Err(why) = program("mount", &[device.name(), place]) {
        return not_run("mounted device test", &why);
    }
    let refused = BlockVolume::open(&device.path, options(), engine());
    program("umount", &[place]).unwrap();
    let error = refused.unwrap_err();
    assert!(error.to_string().contains(&format!("mounted on {place}")), "{error}");
    BlockVolume::open(&device.path, options(), engine()).unwrap();
}

#[test]
fn a_read_only_device_is_opened_only_for_reading() {
    let Some(device) = LoopDevice::new(MIB, &["--read-only"]) else { return };
    let error = BlockVolume::open(&device.path, options(), engine()).unwrap_err();
    let understood = matches!(error, OpenError::NotWritable { .. } | OpenError::Unreachable { .. });
    assert!(understood, "{error}");
    let reader = BlockOptions { read_only: true, ..options() };
    let volume = BlockVolume::open(&device.path, reader, engine()).unwrap();
    run(async {
        assert!(is_zero(&read(&volume, 0, 65_536).await.unwrap()));
        let refused = volume.write(0, pattern(512, 1), false).await;
        assert_eq!(refused, Err(StoreError::ReadOnly));
    });
}

#[test]
fn a_device_that_grew_is_seen_after_a_refresh() {
    let Some(device) = LoopDevice::new(4 * MIB, &[]) else { return };
    let volume = BlockVolume::open(&device.path, options(), engine()).unwrap();
    OpenOptions::new().write(true).open(&device.below).unwrap().set_len(6 * MIB).unwrap();
    program("losetup", &["--set-capacity", device.name()]).unwrap();
    run(async {
        assert_eq!(volume.geometry().capacity_bytes, 4 * MIB);
        assert_eq!(volume.refresh().await, Ok(6 * MIB));
        volume.write(6 * MIB - 512, pattern(512, 1), true).await.unwrap();
        let outcome = volume.resize(8 * MIB, Shrink::Refuse).await;
        assert_eq!(outcome, Err(ResizeError::Device));
    });
}

/// The kernel takes the size of a disk that is pulled, and gives its number to another one.
#[test]
fn a_device_without_a_size_is_gone() {
    let Some(device) = LoopDevice::new(4 * MIB, &[]) else { return };
    let volume = BlockVolume::open(&device.path, options(), engine()).unwrap();
    run(async { assert!(!volume.is_orphaned().await) });
    OpenOptions::new().write(true).open(&device.below).unwrap().set_len(0).unwrap();
    program("losetup", &["--set-capacity", device.name()]).unwrap();
    run(async { assert!(volume.is_orphaned().await) });
}

#[test]
fn a_device_that_fails_is_named_as_such() {
    for engine in engines() {
        let Some(device) = LoopDevice::new(4 * MIB, &[]) else { return };
        let volume = BlockVolume::open(&device.path, options(), engine).unwrap();
        // The device keeps its old size: its second half cannot be read.
        OpenOptions::new().write(true).open(&device.below).unwrap().set_len(2 * MIB).unwrap();
        run(async {
            assert_eq!(read(&volume, 3 * MIB, 4096).await, Err(StoreError::Io));
            assert!(is_zero(&read(&volume, MIB, 4096).await.unwrap()));
        });
    }
}

/// Runs the work on a device whose file system is full: it accepts writes into
/// the page cache that it cannot store.
fn on_a_device_that_loses_writes(work: impl AsyncFn(&BlockVolume)) {
    for engine in engines() {
        let Some(place) = SmallFileSystem::new() else { return };
        let below = file_of(&place.0, 4 * MIB);
        let Some(device) = LoopDevice::over(below, &[], None) else { return };
        let volume = BlockVolume::open(&device.path, direct(DirectIo::Never), engine).unwrap();
        run(work(&volume));
        drop((volume, device));
    }
}

#[test]
fn a_sync_after_lost_writes_fails() {
    on_a_device_that_loses_writes(async |volume| {
        volume.write(0, pattern(3 << 20, 1), false).await.unwrap();
        assert!(volume.sync().await.is_err(), "cached writes that could not be kept");
    });
}

#[test]
fn a_failed_stable_write_makes_the_next_sync_fail_once() {
    on_a_device_that_loses_writes(async |volume| {
        volume.write(0, pattern(4096, 1), true).await.unwrap();
        volume.sync().await.unwrap();
        let failed = volume.write(0, pattern(3 << 20, 1), true).await;
        assert!(matches!(failed, Err(StoreError::Io | StoreError::NoSpace)), "{failed:?}");
        assert_eq!(volume.sync().await, failed, "who knows what else was lost");
        assert_eq!(volume.sync().await, Ok(()), "it has been told");
    });
}
