//! A regular file as a disk.
#![allow(clippy::unwrap_used, reason = "tests")]

mod workbench;

use bytes::Bytes;
use std::fs::{File, OpenOptions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::rc::Rc;
use workbench::*;
use zgate_block::{BackingKind, BlockOptions, BlockVolume, DirectIo, OpenError};
use zgate_store::block_store::{Extent, ExtentKind};
use zgate_store::{BlockStore, MIN_SPAN_BYTES, Payload, StoreError};

#[test]
fn what_is_written_is_read_back_wherever_it_lies() {
    on_every_file(async |volume, _| {
        let mut model = vec![0; 4 << 20];
        let places = [(0, 512), (512, 4096), (3 << 20, 1 << 20), (8192, 300_000), (4_194_303, 1)];
        let odd = [(1, 1), (4095, 2), (100_001, 70_003), (511, 513), (4096, 5)];
        for (seed, (offset, len)) in places.into_iter().chain(odd).enumerate() {
            let data = pattern(len, seed as u64);
            volume.write(offset as u64, data.clone(), seed % 3 == 0).await.unwrap();
            model[offset..offset + len].copy_from_slice(&data);
        }
        for (offset, len) in [(0, 4 << 20), (1, 1), (99_999, 80_001), (4_194_000, 304), (5, 0)] {
            let found = read(volume, offset as u64, len).await.unwrap();
            assert!(found == model[offset..offset + len], "{offset}+{len}");
        }
        volume.sync().await.unwrap();
    });
}

#[test]
fn memory_of_any_alignment_can_be_written() {
    on_every_file(async |volume, _| {
        let data = pattern(20_000, 7);
        for shift in [0, 1, 2, 3, 7, 512, 513] {
            let part = data.slice(shift..shift + 8192);
            volume.write(16_384, part.clone(), false).await.unwrap();
            assert_eq!(read(volume, 16_384, 8192).await.unwrap(), part);
        }
    });
}

#[test]
fn a_stable_write_is_in_the_file() {
    on_every_file(async |volume, path| {
        let data = pattern(12_288, 3);
        volume.write(4096, data.clone(), true).await.unwrap();
        assert_eq!(std::fs::read(path).unwrap()[4096..16_384], data[..]);
        volume.write(40_960, data.clone(), false).await.unwrap();
        volume.sync().await.unwrap();
        assert_eq!(std::fs::read(path).unwrap()[40_960..53_248], data[..]);
    });
}

#[test]
fn discarding_frees_space_and_leaves_zeros() {
    on_every_file(async |volume, path| {
        volume.write(0, pattern(4 << 20, 1), true).await.unwrap();
        let before = allocated(path);
        volume.discard(MIB, 2 * MIB).await.unwrap();
        assert!(is_zero(&read(volume, MIB, 2 << 20).await.unwrap()));
        assert!(allocated(path) + 2 * MIB <= before + 65_536, "space was freed");
        assert!(!is_zero(&read(volume, MIB - 512, 512).await.unwrap()));
        assert!(!is_zero(&read(volume, 3 * MIB, 512).await.unwrap()));
        assert_eq!(std::fs::metadata(path).unwrap().len(), 4 * MIB);
    });
}

#[test]
fn discarding_parts_of_blocks_touches_nothing_else() {
    on_every_file(async |volume, _| {
        let data = pattern(65_536, 2);
        volume.write(0, data.clone(), false).await.unwrap();
        for (offset, len) in [(513u64, 100u64), (4000, 9000), (20_000, 1)] {
            volume.discard(offset, len).await.unwrap();
            let mut wanted = data.to_vec();
            wanted[offset as usize..(offset + len) as usize].fill(0);
            assert!(read(volume, 0, 65_536).await.unwrap() == wanted, "{offset}+{len}");
            volume.write(0, data.clone(), false).await.unwrap();
        }
        volume.discard(4096, 0).await.unwrap();
        assert_eq!(read(volume, 0, 65_536).await.unwrap(), data);
    });
}

#[test]
fn zeros_keep_their_space_unless_it_may_go() {
    on_every_file(async |volume, path| {
        volume.write(0, pattern(4 << 20, 1), true).await.unwrap();
        let full = allocated(path);
        volume.write_zeroes(MIB, MIB, false).await.unwrap();
        assert!(is_zero(&read(volume, MIB, 1 << 20).await.unwrap()));
        assert!(allocated(path) + 65_536 >= full, "space stays");
        volume.write_zeroes(MIB, MIB, true).await.unwrap();
        assert!(is_zero(&read(volume, MIB, 1 << 20).await.unwrap()));
        assert!(allocated(path) + MIB <= full + 65_536, "space goes");
        volume.write_zeroes(3 * MIB + 7, 1001, false).await.unwrap();
        volume.write_zeroes(3 * MIB + 5007, 1001, true).await.unwrap();
        let around = read(volume, 3 * MIB, 8192).await.unwrap();
        assert!(is_zero(&around[7..1008]) && is_zero(&around[5007..6008]));
        assert!(around[6] != 0 && around[1008] != 0 && around[5006] != 0 && around[6008] != 0);
    });
}

#[test]
fn extents_tell_data_from_holes() {
    on_every_file(async |volume, _| {
        let whole = [Extent { offset: 0, len: 4 * MIB, kind: ExtentKind::Deallocated }];
        assert_eq!(volume.extents(0, 4 * MIB, 8).await.unwrap(), whole);
        volume.write(MIB, pattern(1 << 20, 1), false).await.unwrap();
        volume.write(3 * MIB, pattern(65_536, 1), false).await.unwrap();
        let all = volume.extents(0, 4 * MIB, 100).await.unwrap();
        let kinds: Vec<_> = all.iter().map(|extent| extent.kind).collect();
        use ExtentKind::{Deallocated, Mapped};
        assert_eq!(kinds, [Deallocated, Mapped, Deallocated, Mapped, Deallocated]);
        let mut at = 0;
        for extent in &all {
            assert_eq!(extent.offset, at);
            at += extent.len;
        }
        assert_eq!(at, 4 * MIB);
        assert_eq!(all[1], Extent { offset: MIB, len: MIB, kind: Mapped });
        assert_eq!(volume.extents(0, 4 * MIB, 2).await.unwrap(), all[..2]);
        let inside = volume.extents(MIB + 512, 1024, 8).await.unwrap();
        assert_eq!(inside, [Extent { offset: MIB + 512, len: 1024, kind: Mapped }]);
        assert_eq!(volume.extents(0, 0, 8).await.unwrap(), []);
        assert_eq!(volume.extents(0, 512, 0).await.unwrap(), []);
        volume.discard(MIB, MIB).await.unwrap();
        assert_eq!(volume.extents(0, 3 * MIB, 8).await.unwrap()[0].len, 3 * MIB);
    });
}

#[test]
fn nothing_happens_beyond_the_capacity() {
    on_every_file(async |volume, path| {
        let end = 4 * MIB;
        let beyond = Err(StoreError::BeyondEnd);
        for (offset, len) in [(end, 512), (end - 512, 1024), (u64::MAX, 2), (u64::MAX - 511, 512)] {
            let data = Bytes::from(vec![1; len]);
            assert_eq!(read(volume, offset, len).await.map(drop), beyond);
            assert_eq!(volume.write(offset, data, false).await, beyond);
            assert_eq!(volume.discard(offset, len as u64).await, beyond);
            assert_eq!(volume.write_zeroes(offset, len as u64, true).await, beyond);
            assert_eq!(volume.extents(offset, len as u64, 1).await.map(drop), beyond);
            assert_eq!(volume.prefetch(offset, len as u64).await, beyond);
        }
        assert_eq!(std::fs::metadata(path).unwrap().len(), end);
    });
}

#[test]
fn geometry_is_what_the_file_system_says() {
    on_every_file(async |volume, _| {
        let shape = volume.geometry();
        assert_eq!(volume.kind(), BackingKind::File);
        assert_eq!(shape.capacity_bytes, 4 * MIB);
        assert!(shape.physical_block_bytes.is_power_of_two() && shape.physical_block_bytes >= 512);
        assert_eq!(shape.optimal_io_bytes % shape.physical_block_bytes, 0);
        assert_eq!(shape.discard_granularity_bytes, Some(shape.physical_block_bytes));
        assert!(shape.discard_zeroes && shape.write_cache && !shape.read_only);
    });
}

#[test]
fn writers_of_one_block_do_not_undo_each_other() {
    for engine in engines() {
        let dir = scratch();
        let path = file_of(&dir, MIB);
        let options = direct(DirectIo::Always);
        let volume = match BlockVolume::open(&path, options, engine) {
            Ok(volume) => Rc::new(volume),
            Err(error) => return say(&format!("not tried: {error}")),
        };
        run(async {
            for round in 1..=3u8 {
                let mut tasks = Vec::new();
                for part in 0..400u64 {
                    let volume = Rc::clone(&volume);
                    tasks.push(tokio::task::spawn_local(async move {
                        let data = Bytes::from(vec![round.wrapping_add(part as u8); 100]);
                        volume.write(part * 100, data, part % 7 == 0).await.unwrap();
                    }));
                }
                for task in tasks {
                    task.await.unwrap();
                }
                let all = read(&volume, 0, 40_000).await.unwrap();
                for (part, bytes) in all.chunks(100).enumerate() {
                    let wanted = round.wrapping_add(part as u8);
                    assert!(bytes.iter().all(|&byte| byte == wanted), "part {part}");
                }
            }
        });
    }
}

#[test]
fn what_clears_a_part_of_a_block_is_not_undone_by_a_writer_of_another() {
    for engine in engines() {
        let dir = scratch();
        let path = file_of(&dir, MIB);
        let volume = match BlockVolume::open(&path, direct(DirectIo::Always), engine) {
            Ok(volume) => Rc::new(volume),
            Err(error) => return say(&format!("not tried: {error}")),
        };
        run(async {
            for round in 1..=10u8 {
                volume.write(0, Bytes::from(vec![255; 40_000]), false).await.unwrap();
                let mut tasks = Vec::new();
                for part in 0..400u64 {
                    let volume = Rc::clone(&volume);
                    tasks.push(tokio::task::spawn_local(async move {
                        let data = Bytes::from(vec![round; 100]);
                        let done = match part % 3 {
                            0 => volume.write(part * 100, data, false).await,
                            1 => volume.discard(part * 100, 100).await,
                            _ => volume.write_zeroes(part * 100, 100, part % 2 == 0).await,
                        };
                        done.unwrap();
                    }));
                }
                for task in tasks {
                    task.await.unwrap();
                }
                let all = read(&volume, 0, 40_000).await.unwrap();
                for (part, bytes) in all.chunks(100).enumerate() {
                    let wanted = if part % 3 == 0 { round } else { 0 };
                    assert!(bytes.iter().all(|&byte| byte == wanted), "part {part}");
                }
            }
        });
    }
}

#[test]
fn many_requests_at_once() {
    for engine in engines() {
        for how in [DirectIo::Never, DirectIo::Auto] {
            let dir = scratch();
            let path = file_of(&dir, 4 * MIB);
            let volume = Rc::new(BlockVolume::open(&path, direct(how), engine.clone()).unwrap());
            run(async {
                let mut tasks = Vec::new();
                for block in 0..1000u64 {
                    let volume = Rc::clone(&volume);
                    tasks.push(tokio::task::spawn_local(async move {
                        let data = pattern(4096, block);
                        volume.write(block * 4096, data.clone(), false).await.unwrap();
                        assert_eq!(read(&volume, block * 4096, 4096).await.unwrap(), data);
                        if block % 100 == 0 {
                            volume.sync().await.unwrap();
                        }
                    }));
                }
                for task in tasks {
                    task.await.unwrap();
                }
            });
        }
    }
}

#[test]
fn a_second_user_is_noticed() {
    let dir = scratch();
    let path = file_of(&dir, MIB);
    let first = BlockVolume::open(&path, options(), engine()).unwrap();
    let second = BlockVolume::open(&path, options(), engine()).unwrap_err();
    assert!(matches!(second, OpenError::InUse { .. }), "{second}");
    assert!(second.to_string().contains("is in use"), "{second}");
    let reader = BlockOptions { read_only: true, ..options() };
    assert!(BlockVolume::open(&path, reader.clone(), engine()).is_err());
    drop(first);
    let one = BlockVolume::open(&path, reader.clone(), engine()).unwrap();
    let two = BlockVolume::open(&path, reader, engine()).unwrap();
    assert!(BlockVolume::open(&path, options(), engine()).is_err(), "readers keep writers out");
    drop((one, two));
    BlockVolume::open(&path, options(), engine()).unwrap();
}

#[test]
fn a_read_only_volume_refuses_changes() {
    let dir = scratch();
    let path = file_of(&dir, MIB);
    let reader = BlockOptions { read_only: true, ..options() };
    let volume = BlockVolume::open(&path, reader, engine()).unwrap();
    run(async {
        let refused = Err(StoreError::ReadOnly);
        assert_eq!(volume.write(0, Bytes::from_static(&[1; 512]), false).await, refused);
        assert_eq!(volume.discard(0, 512).await, refused);
        assert_eq!(volume.write_zeroes(0, 512, true).await, refused);
        assert!(is_zero(&read(&volume, 0, 512).await.unwrap()));
        volume.sync().await.unwrap();
    });
    let shape = volume.geometry();
    assert!(shape.read_only);
}

#[test]
fn a_missing_file_is_created_and_an_old_one_kept() {
    let dir = scratch();
    let path = dir.path().join("new");
    let missing = BlockVolume::open(&path, options(), engine()).unwrap_err();
    assert!(matches!(missing, OpenError::Unreachable { .. }), "{missing}");
    let sized = |bytes| BlockOptions { create_bytes: Some(bytes), ..options() };
    for bad in [0, 100, 513] {
        let error = BlockVolume::open(&path, sized(bad), engine()).unwrap_err();
        assert!(matches!(error, OpenError::BadSize { .. }), "{error}");
        assert!(!path.exists());
    }
    let reader = BlockOptions { read_only: true, ..sized(MIB) };
    assert!(BlockVolume::open(&path, reader, engine()).is_err());
    assert!(!path.exists(), "a reader creates nothing");
    let volume = BlockVolume::open(&path, sized(3 * MIB), engine()).unwrap();
    assert_eq!(volume.geometry().capacity_bytes, 3 * MIB);
    drop(volume);
    let volume = BlockVolume::open(&path, sized(MIB), engine()).unwrap();
    assert_eq!(volume.geometry().capacity_bytes, 3 * MIB);
}

#[test]
fn a_file_that_cannot_have_its_size_is_not_left_behind() {
    let dir = scratch();
    let path = dir.path().join("huge");
    // No file system has such a file.
    let size_bytes = u64::MAX - 511;
    let wish = BlockOptions { create_bytes: Some(size_bytes), ..options() };
    let error = BlockVolume::open(&path, wish.clone(), engine()).unwrap_err();
    assert!(matches!(error, OpenError::TooLarge { .. }), "{error}");
    assert!(error.to_string().contains("too large for its file system"), "{error}");
    assert!(!path.exists(), "what was made in vain is gone");
    // A file that somebody else has made stays.
    std::fs::write(&path, "").unwrap();
    let error = BlockVolume::open(&path, wish, engine()).unwrap_err();
    assert!(matches!(error, OpenError::TooLarge { .. }), "{error}");
    assert!(path.exists());
}

#[test]
fn no_file_takes_the_place_of_a_missing_device() {
    let wish = BlockOptions { create_bytes: Some(MIB), ..options() };
    for path in ["/dev/zgate-test-absent", "/dev/zvol-absent/tank/vm"] {
        let error = BlockVolume::open(path, wish.clone(), engine()).unwrap_err();
        assert!(matches!(error, OpenError::NoSuchDevice(_)), "{error}");
        assert!(!Path::new(path).exists());
    }
}

#[test]
fn what_is_no_disk_is_refused() {
    let dir = scratch();
    let fifo = dir.path().join("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RUSR).unwrap();
    for path in [dir.path(), &fifo, Path::new("/dev/null")] {
        let error = BlockVolume::open(path, options(), engine()).unwrap_err();
        assert!(matches!(error, OpenError::WrongType { .. }), "{error}");
    }
    let empty = file_of(&dir, 0);
    let error = BlockVolume::open(&empty, options(), engine()).unwrap_err();
    assert!(matches!(error, OpenError::BadSize { .. }), "{error}");
}

#[test]
fn an_odd_size_is_served_through_the_page_cache_only() {
    let dir = scratch();
    let path = file_of(&dir, 10_007);
    let volume = BlockVolume::open(&path, options(), engine()).unwrap();
    assert_eq!(volume.geometry().capacity_bytes, 10_007);
    run(async {
        volume.write(10_000, Bytes::from_static(b"the end"), true).await.unwrap();
        assert_eq!(read(&volume, 10_000, 7).await.unwrap(), "the end");
    });
    drop(volume);
    match BlockVolume::open(&path, direct(DirectIo::Always), engine()).unwrap_err() {
        OpenError::BadSize { .. } => {}
        error @ OpenError::NoDirectIo { .. } => say(&format!("not tried: {error}")),
        error => panic!("{error}"),
    }
}

#[test]
fn prefetching_fills_the_page_cache() {
    let dir = scratch();
    let path = file_of(&dir, 4 * MIB);
    std::fs::write(&path, pattern(4 << 20, 5)).unwrap();
    let file = OpenOptions::new().read(true).open(&path).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    let fd = std::os::fd::OwnedFd::from(file);
    let volume = BlockVolume::open(&path, options(), engine()).unwrap();
    run(async {
        volume.prefetch(MIB, 65_536).await.unwrap();
        for _ in 0..200 {
            if zgate_io::is_resident(&fd, MIB, 65_536) {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        // No cachestat(2) here, or a file system with its own cache: check at
        // least that the data is right.
        say("prefetch: this kernel does not tell what is in memory");
        assert_eq!(
            read(&volume, MIB, 64).await.unwrap(),
            pattern(4 << 20, 5).slice(1 << 20..(1 << 20) + 64)
        );
    });
}

/// The bytes of a payload, as a socket would send them.
fn sent(payload: Payload) -> Vec<u8> {
    let span = match payload {
        Payload::Bytes(bytes) => return bytes.to_vec(),
        Payload::Span(span) => span,
    };
    let file = span.file.downcast::<OwnedFd>().expect("a file lends its pages");
    let mut bytes = vec![0; span.len];
    File::from(file.try_clone().unwrap()).read_exact_at(&mut bytes, span.offset).unwrap();
    bytes
}

#[test]
fn what_a_disk_cannot_read_is_not_lent() {
    for engine in engines() {
        let Some(disk) = Ext4::new(32 * MIB) else { return };
        let path = disk.at.join("disk");
        File::create(&path).unwrap().set_len(8 * MIB).unwrap();
        let volume = BlockVolume::open(&path, direct(DirectIo::Never), engine).unwrap();
        run(async {
            volume.write(0, pattern(8 << 20, 5), true).await.unwrap();
            // Truncate the disk, and drop the page cache of the file.
            let below = OpenOptions::new().write(true).open(&disk.device.below).unwrap();
            below.set_len(MIB).unwrap();
            let same = OwnedFd::from(File::open(&path).unwrap());
            zgate_io::forget_pages(&same, 0, 8 * MIB);
            // Twice: the first read leaves no empty pages for the second one.
            for _ in 0..2 {
                let read = volume.read_to_send(4 * MIB, 1 << 20).await;
                assert_eq!(read.map(drop), Err(StoreError::Io));
            }
        });
    }
}

#[test]
fn a_socket_may_take_large_reads_from_the_file() {
    on_every_file(async |volume, _| {
        let data = pattern(4 << 20, 5);
        volume.write(0, data.clone(), false).await.unwrap();
        for (offset, len) in [(0, MIN_SPAN_BYTES), (512, 1 << 20), (4 << 20, 0), (4096, 512)] {
            let found = volume.read_to_send(offset, len).await.unwrap();
            let lends = !volume.is_direct() && len >= MIN_SPAN_BYTES;
            assert_eq!(matches!(found, Payload::Span(_)), lends, "{offset}+{len}");
            let at = offset as usize;
            assert!(sent(found) == data[at..at + len], "{offset}+{len}");
        }
        let beyond = volume.read_to_send(4 * MIB - 512, MIN_SPAN_BYTES).await;
        assert_eq!(beyond.unwrap_err(), StoreError::BeyondEnd);
    });
}

#[test]
fn what_was_cut_off_is_lent_to_nobody() {
    on_every_file(async |volume, path| {
        volume.write(0, pattern(4 << 20, 6), false).await.unwrap();
        OpenOptions::new().write(true).open(path).unwrap().set_len(MIB).unwrap();
        let cut = volume.read_to_send(MIB - 4096, MIN_SPAN_BYTES).await;
        assert_eq!(cut.unwrap_err(), StoreError::BeyondEnd);
    });
}
