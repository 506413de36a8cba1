//! Guarantees of the disk, and its losses.

use super::{DiskOp, SimDisk};
use crate::faults::When;
use crate::fixture::{block_on, poll_once};
use bytes::Bytes;
use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use zgate_store::block_store::{Extent, ExtentKind};
use zgate_store::{BlockStore, Payload, StoreError, StoreResult};

const BLOCK: u64 = 4096;

fn write(disk: &SimDisk, offset: u64, byte: u8, len: usize) -> StoreResult<()> {
    block_on(disk.write(offset, Bytes::from(vec![byte; len]), false))
}

fn read(disk: &SimDisk, offset: u64, len: usize) -> Vec<u8> {
    match block_on(disk.read(offset, len)).unwrap() {
        Payload::Bytes(bytes) => bytes.to_vec(),
        Payload::Span(_) => panic!("memory has no spans"),
    }
}

fn extents(disk: &SimDisk, offset: u64, len: u64, max: usize) -> Vec<(u64, u64, bool)> {
    let found: Vec<Extent> = block_on(disk.extents(offset, len, max)).unwrap();
    found.iter().map(|e| (e.offset, e.len, e.kind == ExtentKind::Mapped)).collect()
}

#[test]
fn what_is_written_is_read() {
    let disk = SimDisk::new(1 << 20);
    let store: Arc<dyn BlockStore> = Arc::new(disk.clone());
    assert_eq!(store.geometry().capacity_bytes, 1 << 20);
    write(&disk, 512, 7, 8192).unwrap();
    assert_eq!(read(&disk, 0, 512), vec![0; 512]);
    assert_eq!(read(&disk, 512, 8192), vec![7; 8192]);
    block_on(disk.sync()).unwrap();
    write(&disk, 1024, 8, 512).unwrap();
    assert_eq!(read(&disk, 512, 1536), [vec![7; 512], vec![8; 512], vec![7; 512]].concat());
    assert_eq!(disk.unsynced_sectors(), 1);
}

#[test]
fn accesses_that_are_none_are_refused() {
    let disk = SimDisk::new(1 << 20);
    assert_eq!(write(&disk, 1, 7, 512), Err(StoreError::Invalid));
    assert_eq!(write(&disk, (1 << 20) - 512, 7, 1024), Err(StoreError::BeyondEnd));
    assert_eq!(block_on(disk.read(u64::MAX, 512)).map(|_| ()), Err(StoreError::BeyondEnd));
    let fixed = SimDisk::builder(1 << 20).read_only(true).discard(false).build();
    assert_eq!(write(&fixed, 0, 7, 512), Err(StoreError::ReadOnly));
    assert_eq!(block_on(fixed.discard(0, 512)), Err(StoreError::NotSupported));
}

#[test]
fn a_power_loss_keeps_what_was_synced_and_any_part_of_the_rest() {
    let mut outcomes = BTreeSet::new();
    for seed in 0..32 {
        let run = || {
            let disk = SimDisk::new(1 << 20);
            write(&disk, 0, 1, 4096).unwrap();
            block_on(disk.sync()).unwrap();
            write(&disk, 0, 2, 2048).unwrap();
            block_on(disk.write(2048, Bytes::from(vec![3; 512]), true)).unwrap();
            disk.power_loss(seed);
            assert_eq!(disk.unsynced_sectors(), 0);
            read(&disk, 0, 4096)
        };
        let left = run();
        assert_eq!(left, run(), "the seed decides");
        assert_eq!(left[2048..2560], [3; 512], "FUA is a promise");
        assert_eq!(left[2560..], [1; 1536]);
        let sectors: Vec<u8> = left[..2048].chunks(512).map(|sector| sector[0]).collect();
        assert!(left[..2048].chunks(512).all(|s| s.iter().all(|byte| *byte == s[0])));
        assert!(sectors.iter().all(|byte| [1, 2].contains(byte)));
        outcomes.insert(sectors);
    }
    assert!(outcomes.len() > 8, "many different tears");
}

#[test]
fn without_a_volatile_cache_nothing_is_lost() {
    let disk = SimDisk::builder(1 << 20).write_cache(false).build();
    write(&disk, 0, 5, 4096).unwrap();
    disk.power_loss(1);
    assert_eq!(read(&disk, 0, 4096), vec![5; 4096]);
}

#[test]
fn a_killed_process_loses_only_its_calls() {
    let disk = SimDisk::new(1 << 20);
    write(&disk, 0, 5, 4096).unwrap();
    let hold = disk.faults().hold(DiskOp::Write, When::BeforeEffect);
    let mut held = pin!(disk.write(4096, Bytes::from(vec![6; 512]), true));
    assert!(poll_once(held.as_mut()).is_pending());
    disk.kill();
    hold.release();
    assert_eq!(poll_once(held.as_mut()), Poll::Ready(Err(StoreError::Io)));
    assert_eq!(read(&disk, 0, 4096), vec![5; 4096]);
    assert_eq!(read(&disk, 4096, 512), vec![0; 512]);
    assert_eq!(disk.unsynced_sectors(), 8);
}

#[test]
fn discarded_blocks_are_gone() {
    let disk = SimDisk::new(1 << 20);
    assert_eq!(extents(&disk, 0, 1 << 20, 10), [(0, 1 << 20, false)]);
    write(&disk, BLOCK, 1, 4 * BLOCK as usize).unwrap();
    block_on(disk.sync()).unwrap();
    assert_eq!(disk.allocated_bytes(), 4 * BLOCK);
    // A discard from the middle of a block: the partial block reads as zeros
    // but stays mapped.
    block_on(disk.discard(BLOCK + 512, 2 * BLOCK)).unwrap();
    let mapped = [(BLOCK, BLOCK, true), (2 * BLOCK, BLOCK, false), (3 * BLOCK, 2 * BLOCK, true)];
    assert_eq!(extents(&disk, BLOCK, 4 * BLOCK, 10), mapped);
    assert_eq!(extents(&disk, BLOCK, 4 * BLOCK, 2), mapped[..2]);
    assert_eq!(extents(&disk, BLOCK + 512, 512, 9), [(BLOCK + 512, 512, true)]);
    assert_eq!(read(&disk, BLOCK, 512), vec![1; 512]);
    assert_eq!(read(&disk, BLOCK + 512, 2 * BLOCK as usize), vec![0; 2 * BLOCK as usize]);
    assert_eq!(read(&disk, 3 * BLOCK + 512, 512), vec![1; 512]);
    block_on(disk.discard(0, 1 << 20)).unwrap();
    block_on(disk.sync()).unwrap();
    assert_eq!((disk.allocated_bytes(), disk.unsynced_sectors()), (0, 0));
}

#[test]
fn a_discard_not_synced_may_come_undone() {
    let mut left = BTreeSet::new();
    for seed in 0..16 {
        let disk = SimDisk::new(1 << 20);
        write(&disk, 0, 1, 512).unwrap();
        block_on(disk.sync()).unwrap();
        block_on(disk.discard(0, BLOCK)).unwrap();
        disk.power_loss(seed);
        left.insert((read(&disk, 0, 512)[0], disk.allocated_bytes()));
    }
    assert_eq!(left, BTreeSet::from([(0, 0), (1, BLOCK)]));
}

#[test]
fn zeros_with_and_without_unmap() {
    let disk = SimDisk::new(1 << 20);
    write(&disk, 0, 1, 2 * BLOCK as usize).unwrap();
    block_on(disk.write_zeroes(0, BLOCK, true)).unwrap();
    block_on(disk.write_zeroes(BLOCK, BLOCK, false)).unwrap();
    assert_eq!(read(&disk, 0, 2 * BLOCK as usize), vec![0; 2 * BLOCK as usize]);
    assert_eq!(extents(&disk, 0, 2 * BLOCK, 9), [(0, BLOCK, false), (BLOCK, BLOCK, true)]);
}

#[test]
fn thin_space_runs_out() {
    let disk = SimDisk::builder(1 << 30).thin_limit_bytes(2 * BLOCK).build();
    write(&disk, 0, 1, 512).unwrap();
    write(&disk, 512, 1, 512).unwrap();
    assert_eq!(write(&disk, BLOCK, 1, 2 * BLOCK as usize), Err(StoreError::NoSpace));
    assert_eq!(read(&disk, BLOCK, 512), vec![0; 512]);
    write(&disk, 100 * BLOCK, 1, 512).unwrap();
    assert_eq!(write(&disk, BLOCK, 1, 512), Err(StoreError::NoSpace));
    assert_eq!(write(&disk, 0, 2, BLOCK as usize), Ok(()));
    block_on(disk.discard(0, BLOCK)).unwrap();
    assert_eq!(write(&disk, BLOCK, 1, 512), Ok(()));
    disk.set_thin_limit(None);
    assert_eq!(write(&disk, 0, 1, 512), Ok(()));
}

#[test]
fn a_bad_sector_heals_when_it_is_written() {
    let disk = SimDisk::new(1 << 20);
    write(&disk, 0, 1, 4096).unwrap();
    disk.spoil(1000, 1000);
    let failed = |offset, len| block_on(disk.read(offset, len)).is_err();
    assert!(failed(0, 4096) && failed(512, 512) && failed(1536, 512));
    assert!(!failed(0, 512) && !failed(2048, 2048));
    write(&disk, 1024, 2, 512).unwrap();
    assert!(failed(512, 512) && !failed(1024, 512) && failed(1536, 512));
    write(&disk, 0, 3, 4096).unwrap();
    assert_eq!(read(&disk, 0, 4096), vec![3; 4096]);
}

#[test]
fn a_resize_is_noticed_at_refresh() {
    let disk = SimDisk::new(1 << 20);
    disk.resize(2 << 20);
    assert_eq!(disk.geometry().capacity_bytes, 1 << 20);
    assert_eq!(write(&disk, 1 << 20, 1, 512), Err(StoreError::BeyondEnd));
    assert_eq!(block_on(disk.refresh()), Ok(2 << 20));
    write(&disk, 1 << 20, 1, 512).unwrap();
    disk.resize(1 << 20);
    assert_eq!(write(&disk, 1 << 20, 1, 512), Err(StoreError::Io));
    assert_eq!(block_on(disk.refresh()), Ok(1 << 20));
    disk.resize(2 << 20);
    block_on(disk.refresh()).unwrap();
    assert_eq!(read(&disk, 1 << 20, 512), vec![0; 512]);
}

#[test]
fn a_failed_flush_promises_nothing() {
    let disk = SimDisk::new(1 << 20);
    write(&disk, 0, 1, 512).unwrap();
    disk.faults().fail_next(DiskOp::Sync, StoreError::Io);
    assert_eq!(block_on(disk.sync()), Err(StoreError::Io));
    assert_eq!(disk.unsynced_sectors(), 1);
    block_on(disk.sync()).unwrap();
    assert_eq!((disk.unsynced_sectors(), disk.faults().calls(DiskOp::Sync)), (0, 2));
}
