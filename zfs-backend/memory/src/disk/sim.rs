//! A simulated disk.

use super::builder::SimDiskBuilder;
use super::media::{Media, SECTOR_BYTES, Sector, SectorData};
use crate::faults::Faults;
use bytes::Bytes;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use zgate_store::block_store::{BlockGeometry, Extent};
use zgate_store::{BlockStore, Payload, StoreError, StoreFuture, StoreResult};

/// Operations of [`BlockStore`] that can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "each is named after the method it stands for")]
pub enum DiskOp {
    Read,
    Write,
    Sync,
    Discard,
    WriteZeroes,
    Extents,
    Prefetch,
    Refresh,
}

/// A disk in memory. Clones share it.
#[derive(Clone, Debug)]
pub struct SimDisk {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    faults: Faults<DiskOp>,
}

#[derive(Debug)]
struct State {
    geometry: BlockGeometry,
    /// Size of the simulated device; the geometry follows on `refresh`.
    actual_bytes: u64,
    media: Media,
    /// Sectors that cannot be read until they are written again.
    bad: Vec<Range<Sector>>,
    thin_limit_bytes: Option<u64>,
    /// Number of power losses and kills so far: an operation that began before
    /// one fails.
    life: u64,
}

impl SimDisk {
    /// Creates a disk of `capacity_bytes` with blocks of 4 KiB and a volatile
    /// cache.
    #[must_use]
    pub fn new(capacity_bytes: u64) -> Self {
        Self::builder(capacity_bytes).build()
    }

    /// Returns a builder, for other properties.
    pub fn builder(capacity_bytes: u64) -> SimDiskBuilder {
        SimDiskBuilder::new(capacity_bytes)
    }

    pub(crate) fn assemble(geometry: BlockGeometry, thin_limit_bytes: Option<u64>) -> Self {
        let state = State {
            geometry,
            actual_bytes: geometry.capacity_bytes,
            media: Media::new(geometry.physical_block_bytes),
            bad: Vec::new(),
            thin_limit_bytes,
            life: 0,
        };
        Self { shared: Arc::new(Shared { state: Mutex::new(state), faults: Faults::default() }) }
    }

    /// Returns the faults that can be set for this disk.
    #[must_use]
    pub fn faults(&self) -> Faults<DiskOp> {
        self.shared.faults.clone()
    }

    /// Simulates a power loss: of every sector not synced since its last write,
    /// one of the versions written since, or none, has reached the media.
    /// `seed` chooses. Held calls fail with [`StoreError::Io`].
    pub fn power_loss(&self, seed: u64) {
        let mut state = self.state();
        state.life += 1;
        state.media.power_loss(seed);
    }

    /// Simulates the death of the writing process while the machine stays up:
    /// all written data is still there, as volatile as before. Held calls fail
    /// with [`StoreError::Io`].
    pub fn kill(&self) {
        self.state().life += 1;
    }

    /// Makes reads of the range fail with [`StoreError::Io`] until it is
    /// written; the range is widened to whole sectors.
    pub fn spoil(&self, offset: u64, len: u64) {
        let sectors = offset / SECTOR_BYTES..offset.saturating_add(len).div_ceil(SECTOR_BYTES);
        self.state().bad.push(sectors);
    }

    /// Changes the actual space, in bytes; `None`: no limit.
    pub fn set_thin_limit(&self, bytes: Option<u64>) {
        self.state().thin_limit_bytes = bytes;
    }

    /// Resizes the simulated device; data beyond the end is lost. The store
    /// detects the new size on [`BlockStore::refresh`]; until then, accesses
    /// beyond a smaller size fail with [`StoreError::Io`].
    pub fn resize(&self, capacity_bytes: u64) {
        let mut state = self.state();
        state.actual_bytes = capacity_bytes / SECTOR_BYTES * SECTOR_BYTES;
        let end = state.actual_bytes / SECTOR_BYTES;
        state.media.cut(end);
    }

    /// Returns the number of sectors of 512 bytes that a power loss may change.
    #[must_use]
    pub fn unsynced_sectors(&self) -> usize {
        self.state().media.unsynced()
    }

    /// Returns the allocated space in bytes.
    #[must_use]
    pub fn allocated_bytes(&self) -> u64 {
        self.state().allocated_bytes()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs one operation: faults before, effect, faults after.
    fn run<'a, T: Send + 'a>(
        &'a self,
        op: DiskOp,
        effect: impl FnOnce(&mut State) -> StoreResult<T> + Send + 'a,
    ) -> StoreFuture<'a, T> {
        Box::pin(async move {
            let life = self.state().life;
            self.shared.faults.before(op).await?;
            let result = {
                let mut state = self.state();
                if state.life != life {
                    return Err(StoreError::Io);
                }
                effect(&mut state)
            };
            self.shared.faults.after(op).await?;
            if self.state().life == life { result } else { Err(StoreError::Io) }
        })
    }
}

impl State {
    /// Returns the sectors of a range, which must consist of whole sectors of
    /// this disk.
    fn sectors(&self, offset: u64, len: u64) -> StoreResult<Range<Sector>> {
        let end = offset.checked_add(len).ok_or(StoreError::BeyondEnd)?;
        if end > self.geometry.capacity_bytes {
            return Err(StoreError::BeyondEnd);
        }
        if !offset.is_multiple_of(SECTOR_BYTES) || !len.is_multiple_of(SECTOR_BYTES) {
            return Err(StoreError::Invalid);
        }
        if end > self.actual_bytes {
            return Err(StoreError::Io);
        }
        Ok(offset / SECTOR_BYTES..end / SECTOR_BYTES)
    }

    fn sectors_to_change(&self, offset: u64, len: u64) -> StoreResult<Range<Sector>> {
        let sectors = self.sectors(offset, len)?;
        if self.geometry.read_only { Err(StoreError::ReadOnly) } else { Ok(sectors) }
    }

    fn allocated_bytes(&self) -> u64 {
        let all = 0..self.actual_bytes / SECTOR_BYTES;
        self.media.mapped_blocks(all) * u64::from(self.geometry.physical_block_bytes)
    }

    /// Refuses a write that exceeds the thin limit.
    fn require_space(&self, sectors: &Range<Sector>) -> StoreResult<()> {
        let Some(limit) = self.thin_limit_bytes else { return Ok(()) };
        let more = self.media.blocks_to_map(sectors.clone());
        let wanted = more * u64::from(self.geometry.physical_block_bytes);
        if more > 0 && self.allocated_bytes() + wanted > limit {
            return Err(StoreError::NoSpace);
        }
        Ok(())
    }

    fn read(&self, offset: u64, len: usize) -> StoreResult<Payload> {
        let sectors = self.sectors(offset, len as u64)?;
        let hit = |bad: &Range<Sector>| bad.start < sectors.end && sectors.start < bad.end;
        if self.bad.iter().any(hit) {
            return Err(StoreError::Io);
        }
        Ok(Payload::Bytes(Bytes::from(self.media.read(offset, len))))
    }

    fn write(&mut self, offset: u64, data: &[u8], fua: bool) -> StoreResult<()> {
        let sectors = self.sectors_to_change(offset, data.len() as u64)?;
        self.require_space(&sectors)?;
        self.heal(&sectors);
        let through = fua || !self.geometry.write_cache;
        for (sector, bytes) in sectors.zip(data.chunks(SECTOR_BYTES as usize)) {
            self.media.put(sector, Some(SectorData::new(bytes)), through);
        }
        Ok(())
    }

    fn zero(&mut self, offset: u64, len: u64) -> StoreResult<()> {
        let sectors = self.sectors_to_change(offset, len)?;
        self.require_space(&sectors)?;
        self.heal(&sectors);
        for sector in sectors {
            self.media.put(sector, Some(SectorData::zeros()), !self.geometry.write_cache);
        }
        Ok(())
    }

    fn discard(&mut self, offset: u64, len: u64) -> StoreResult<()> {
        let sectors = self.sectors_to_change(offset, len)?;
        self.heal(&sectors);
        self.media.discard(sectors, !self.geometry.write_cache);
        Ok(())
    }

    /// Makes written sectors readable again.
    fn heal(&mut self, written: &Range<Sector>) {
        let parts = std::mem::take(&mut self.bad).into_iter().flat_map(|bad| {
            let before = bad.start..bad.end.min(written.start);
            let after = bad.start.max(written.end)..bad.end;
            [before, after]
        });
        self.bad = parts.filter(|part| !part.is_empty()).collect();
    }
}

impl BlockStore for SimDisk {
    fn geometry(&self) -> BlockGeometry {
        self.state().geometry
    }

    fn read<'a>(&'a self, offset: u64, len: usize) -> StoreFuture<'a, Payload> {
        self.run(DiskOp::Read, move |disk| disk.read(offset, len))
    }

    fn read_to_send<'a>(&'a self, offset: u64, len: usize) -> StoreFuture<'a, Payload> {
        self.read(offset, len)
    }

    fn write<'a>(&'a self, offset: u64, data: Bytes, fua: bool) -> StoreFuture<'a, ()> {
        self.run(DiskOp::Write, move |disk| disk.write(offset, &data, fua))
    }

    fn sync<'a>(&'a self) -> StoreFuture<'a, ()> {
        self.run(DiskOp::Sync, |disk| {
            disk.media.sync();
            Ok(())
        })
    }

    fn admit_change<'a>(&'a self) -> StoreFuture<'a, ()> {
        Box::pin(async { Ok(()) })
    }

    fn discard<'a>(&'a self, offset: u64, len: u64) -> StoreFuture<'a, ()> {
        self.run(DiskOp::Discard, move |disk| {
            if disk.geometry.discard_granularity_bytes.is_none() {
                return Err(StoreError::NotSupported);
            }
            disk.discard(offset, len)
        })
    }

    fn write_zeroes<'a>(&'a self, offset: u64, len: u64, may_unmap: bool) -> StoreFuture<'a, ()> {
        self.run(DiskOp::WriteZeroes, move |disk| {
            if may_unmap && disk.geometry.discard_granularity_bytes.is_some() {
                disk.discard(offset, len)
            } else {
                disk.zero(offset, len)
            }
        })
    }

    fn extents<'a>(&'a self, offset: u64, len: u64, max: usize) -> StoreFuture<'a, Vec<Extent>> {
        self.run(DiskOp::Extents, move |disk| {
            disk.sectors(offset, len)?;
            Ok(disk.media.extents(offset, len, max))
        })
    }

    fn prefetch<'a>(&'a self, offset: u64, len: u64) -> StoreFuture<'a, ()> {
        self.run(DiskOp::Prefetch, move |disk| disk.sectors(offset, len).map(|_| ()))
    }

    fn refresh<'a>(&'a self) -> StoreFuture<'a, u64> {
        self.run(DiskOp::Refresh, |disk| {
            disk.geometry.capacity_bytes = disk.actual_bytes;
            Ok(disk.actual_bytes)
        })
    }
}
