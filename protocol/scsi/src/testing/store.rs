//! A small block store in memory that can fail, pause and count.

use super::executor;
use bytes::Bytes;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use zgate_store::block_store::{BlockGeometry, Extent, ExtentKind};
use zgate_store::file_store::StoreFuture;
use zgate_store::{BlockStore, Payload, StoreError, StoreResult};

const CAPACITY: usize = 2 << 20;
const UNIT: usize = 4096;

#[derive(Debug)]
struct Medium {
    bytes: Vec<u8>,
    mapped: Vec<bool>,
    write_failure: Option<StoreError>,
}

#[derive(Debug)]
pub(crate) struct MemoryStore {
    medium: Mutex<Medium>,
    syncs: AtomicUsize,
    stable_writes: AtomicUsize,
    /// Number of commands that discarded or wrote zeros.
    changes: AtomicUsize,
    pauses: AtomicBool,
    write_cache: AtomicBool,
}

impl Default for MemoryStore {
    fn default() -> Self {
        let medium = Medium {
            bytes: vec![0; CAPACITY],
            mapped: vec![false; CAPACITY / UNIT],
            write_failure: None,
        };
        Self {
            medium: Mutex::new(medium),
            syncs: AtomicUsize::new(0),
            stable_writes: AtomicUsize::new(0),
            changes: AtomicUsize::new(0),
            pauses: AtomicBool::new(false),
            write_cache: AtomicBool::new(true),
        }
    }
}

impl MemoryStore {
    fn medium(&self) -> MutexGuard<'_, Medium> {
        self.medium.lock().unwrap()
    }

    pub(crate) fn syncs(&self) -> usize {
        self.syncs.load(Ordering::Relaxed)
    }

    pub(crate) fn stable_writes(&self) -> usize {
        self.stable_writes.load(Ordering::Relaxed)
    }

    pub(crate) fn changes(&self) -> usize {
        self.changes.load(Ordering::Relaxed)
    }

    pub(crate) fn fail_writes(&self, error: Option<StoreError>) {
        self.medium().write_failure = error;
    }

    pub(crate) fn pause_calls(&self, pauses: bool) {
        self.pauses.store(pauses, Ordering::Relaxed);
    }

    pub(crate) fn set_write_cache(&self, write_cache: bool) {
        self.write_cache.store(write_cache, Ordering::Relaxed);
    }

    pub(crate) fn is_mapped(&self, offset: u64) -> bool {
        self.medium().mapped[usize::try_from(offset).unwrap() / UNIT]
    }

    pub(crate) fn fill(&self, offset: u64, len: u64, byte: u8) {
        let data = vec![byte; usize::try_from(len).unwrap()];
        self.medium().write(offset, &data);
    }

    pub(crate) fn content(&self, offset: u64, len: u64) -> Vec<u8> {
        let start = usize::try_from(offset).unwrap();
        self.medium().bytes[start..start + usize::try_from(len).unwrap()].to_vec()
    }

    async fn pause(&self) {
        executor::pause(&self.pauses).await;
    }
}

impl Medium {
    fn write(&mut self, offset: u64, data: &[u8]) {
        let start = usize::try_from(offset).unwrap();
        self.bytes[start..start + data.len()].copy_from_slice(data);
        for unit in start / UNIT..(start + data.len()).div_ceil(UNIT) {
            self.mapped[unit] = true;
        }
    }

    fn zero(&mut self, offset: u64, len: u64, unmap: bool) {
        let start = usize::try_from(offset).unwrap();
        let end = start + usize::try_from(len).unwrap();
        self.bytes[start..end].fill(0);
        if unmap {
            for unit in start.div_ceil(UNIT)..end / UNIT {
                self.mapped[unit] = false;
            }
        }
    }

    fn check(&self) -> StoreResult<()> {
        self.write_failure.map_or(Ok(()), Err)
    }
}

impl BlockStore for MemoryStore {
    fn geometry(&self) -> BlockGeometry {
        BlockGeometry {
            capacity_bytes: CAPACITY as u64,
            physical_block_bytes: UNIT as u32,
            optimal_io_bytes: 65536,
            discard_granularity_bytes: Some(UNIT as u32),
            discard_zeroes: true,
            write_cache: self.write_cache.load(Ordering::Relaxed),
            read_only: false,
        }
    }

    fn read<'a>(&'a self, offset: u64, len: usize) -> StoreFuture<'a, Payload> {
        Box::pin(async move {
            self.pause().await;
            let start = usize::try_from(offset).unwrap();
            let medium = self.medium();
            Ok(Payload::Bytes(Bytes::copy_from_slice(&medium.bytes[start..start + len])))
        })
    }

    fn read_to_send<'a>(&'a self, offset: u64, len: usize) -> StoreFuture<'a, Payload> {
        self.read(offset, len)
    }

    fn write<'a>(&'a self, offset: u64, data: Bytes, fua: bool) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            self.pause().await;
            let mut medium = self.medium();
            medium.check()?;
            medium.write(offset, &data);
            if fua {
                self.stable_writes.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        })
    }

    fn sync<'a>(&'a self) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            self.pause().await;
            self.syncs.fetch_add(1, Ordering::Relaxed);
            self.medium().check()
        })
    }

    fn admit_change<'a>(&'a self) -> StoreFuture<'a, ()> {
        self.changes.fetch_add(1, Ordering::Relaxed);
        Box::pin(async { Ok(()) })
    }

    fn discard<'a>(&'a self, offset: u64, len: u64) -> StoreFuture<'a, ()> {
        self.write_zeroes(offset, len, true)
    }

    fn write_zeroes<'a>(&'a self, offset: u64, len: u64, may_unmap: bool) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            self.pause().await;
            let mut medium = self.medium();
            medium.check()?;
            medium.zero(offset, len, may_unmap);
            Ok(())
        })
    }

    fn extents<'a>(&'a self, offset: u64, len: u64, max: usize) -> StoreFuture<'a, Vec<Extent>> {
        Box::pin(async move {
            let medium = self.medium();
            let (unit, end) = (UNIT as u64, offset + len);
            let mut extents: Vec<Extent> = Vec::new();
            let mut at = offset;
            while at < end {
                let mapped = medium.mapped[usize::try_from(at / unit).unwrap()];
                let kind = if mapped { ExtentKind::Mapped } else { ExtentKind::Deallocated };
                let until = ((at / unit + 1) * unit).min(end);
                let full = extents.len() == max;
                match extents.last_mut() {
                    Some(last) if last.kind == kind => last.len += until - at,
                    _ if full => break,
                    _ => extents.push(Extent { offset: at, len: until - at, kind }),
                }
                at = until;
            }
            Ok(extents)
        })
    }

    fn prefetch<'a>(&'a self, _offset: u64, _len: u64) -> StoreFuture<'a, ()> {
        Box::pin(async { Ok(()) })
    }

    fn refresh<'a>(&'a self) -> StoreFuture<'a, u64> {
        Box::pin(async { Ok(CAPACITY as u64) })
    }
}
