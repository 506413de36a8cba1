//! The content of a disk: media and, above it, the volatile cache.

use super::overlay::Overlay;
use std::collections::BTreeMap;
use std::ops::Range;
use zgate_store::block_store::{Extent, ExtentKind};

/// Unit of tearing in bytes: a power loss keeps or loses whole sectors.
pub(crate) const SECTOR_BYTES: u64 = 512;
const SECTOR: usize = SECTOR_BYTES as usize;

/// Number of a sector.
pub(crate) type Sector = u64;

/// Content of a sector. A sector of zeros takes no memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SectorData(Option<Box<[u8; SECTOR]>>);

impl SectorData {
    /// Builds a sector from at most its size in bytes; the rest is filled with
    /// zeros.
    pub(crate) fn new(bytes: &[u8]) -> Self {
        if bytes.iter().all(|&byte| byte == 0) {
            return Self(None);
        }
        let mut data = Box::new([0; SECTOR]);
        let count = bytes.len().min(SECTOR);
        data[..count].copy_from_slice(&bytes[..count]);
        Self(Some(data))
    }

    /// Returns a sector of zeros.
    pub(crate) fn zeros() -> Self {
        Self(None)
    }

    fn copy_to(&self, target: &mut [u8]) {
        match &self.0 {
            Some(data) => target.copy_from_slice(&data[..target.len()]),
            None => target.fill(0),
        }
    }

    #[cfg(test)]
    pub(crate) fn filled(byte: u8) -> Self {
        Self::new(&[byte; SECTOR])
    }

    #[cfg(test)]
    pub(crate) fn byte(&self, index: usize) -> u8 {
        self.0.as_ref().map_or(0, |data| data[index])
    }
}

/// Content of a disk. Space is allocated in blocks: a block is mapped if one of
/// its sectors is.
#[derive(Clone, Debug)]
pub(crate) struct Media {
    stable: BTreeMap<Sector, SectorData>,
    cache: Overlay,
    sectors_per_block: u64,
}

impl Media {
    /// Creates a medium without mapped blocks.
    pub(crate) fn new(block_bytes: u32) -> Self {
        let sectors_per_block = (u64::from(block_bytes) / SECTOR_BYTES).max(1);
        Self { stable: BTreeMap::new(), cache: Overlay::default(), sectors_per_block }
    }

    /// Returns the number of sectors that are only in the cache.
    pub(crate) fn unsynced(&self) -> usize {
        self.cache.len()
    }

    /// Reads whole sectors.
    pub(crate) fn read(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        let first = offset / SECTOR_BYTES;
        let sectors = first..first + (len as u64).div_ceil(SECTOR_BYTES);
        let mut copy = |sector: Sector, data: Option<&SectorData>| {
            let start = ((sector - first) * SECTOR_BYTES) as usize;
            let end = (start + SECTOR).min(len);
            match data {
                Some(data) => data.copy_to(&mut out[start..end]),
                None => out[start..end].fill(0),
            }
        };
        for (sector, data) in self.stable.range(sectors.clone()) {
            copy(*sector, Some(data));
        }
        for (sector, data) in self.cache.range(sectors) {
            copy(sector, data);
        }
        out
    }

    /// Writes one sector, into the cache or through it.
    pub(crate) fn put(&mut self, sector: Sector, data: Option<SectorData>, through: bool) {
        if through {
            self.cache.forget(sector..sector + 1);
            self.store(sector, data);
        } else {
            self.cache.push(sector, data);
        }
    }

    fn store(&mut self, sector: Sector, data: Option<SectorData>) {
        match data {
            Some(data) => self.stable.insert(sector, data),
            None => self.stable.remove(&sector),
        };
    }

    /// Unmaps the whole blocks of the range and zeroes the rest where it is
    /// mapped.
    pub(crate) fn discard(&mut self, sectors: Range<Sector>, through: bool) {
        let per_block = self.sectors_per_block;
        let whole = sectors.start.next_multiple_of(per_block)..sectors.end / per_block * per_block;
        for sector in self.mapped_sectors(sectors) {
            let data = (!whole.contains(&sector)).then(SectorData::zeros);
            self.put(sector, data, through);
        }
    }

    fn mapped_sectors(&self, sectors: Range<Sector>) -> Vec<Sector> {
        let cached = self.cache.range(sectors.clone());
        let mut mapped: Vec<Sector> =
            cached.filter_map(|(sector, data)| data.map(|_| sector)).collect();
        let below = self.stable.range(sectors).map(|(sector, _)| *sector);
        mapped.extend(below.filter(|sector| self.cache.latest(*sector).is_none()));
        mapped.sort_unstable();
        mapped
    }

    /// Writes the cache to the media.
    pub(crate) fn sync(&mut self) {
        for (sector, data) in self.cache.flush() {
            self.store(sector, data);
        }
    }

    /// Simulates a power loss: of every sector in the cache one version, or
    /// none, has reached the media.
    pub(crate) fn power_loss(&mut self, seed: u64) {
        for (sector, data) in self.cache.lose(seed) {
            self.store(sector, data);
        }
    }

    /// Removes everything from `sector` on.
    pub(crate) fn cut(&mut self, sector: Sector) {
        self.stable.split_off(&sector);
        self.cache.forget(sector..Sector::MAX);
    }

    /// Returns the number of mapped blocks in the range of sectors.
    pub(crate) fn mapped_blocks(&self, sectors: Range<Sector>) -> u64 {
        let mut blocks: Vec<u64> = self
            .mapped_sectors(sectors)
            .into_iter()
            .map(|sector| sector / self.sectors_per_block)
            .collect();
        blocks.dedup();
        blocks.len() as u64
    }

    /// Returns the number of blocks that a write to the range would map.
    pub(crate) fn blocks_to_map(&self, sectors: Range<Sector>) -> u64 {
        let per_block = self.sectors_per_block;
        let blocks = sectors.start / per_block..sectors.end.div_ceil(per_block);
        let whole = blocks.start * per_block..blocks.end * per_block;
        (blocks.end - blocks.start) - self.mapped_blocks(whole)
    }

    /// Lists how the range is stored: at most `max` extents, in bytes.
    pub(crate) fn extents(&self, offset: u64, len: u64, max: usize) -> Vec<Extent> {
        let (mut at, end) = (offset, offset + len);
        let mut extents = Vec::new();
        while at < end && extents.len() < max {
            let (kind, until) = self.run_at(at, end);
            let until = until.min(end);
            extents.push(Extent { offset: at, len: until - at, kind });
            at = until;
        }
        extents
    }

    /// Returns how `at` is stored, and where that changes (`end` or later if it
    /// does not change before).
    fn run_at(&self, at: u64, end: u64) -> (ExtentKind, u64) {
        let block_bytes = self.sectors_per_block * SECTOR_BYTES;
        let first = at / block_bytes;
        let last = end.div_ceil(block_bytes);
        let mut block = first;
        match self.next_mapped_block(first, last) {
            Some(found) if found == first => {
                while block < last && self.next_mapped_block(block, block + 1).is_some() {
                    block += 1;
                }
                (ExtentKind::Mapped, block * block_bytes)
            }
            Some(found) => (ExtentKind::Deallocated, found * block_bytes),
            None => (ExtentKind::Deallocated, end),
        }
    }

    fn next_mapped_block(&self, first: u64, end: u64) -> Option<u64> {
        let sectors = first * self.sectors_per_block..end * self.sectors_per_block;
        let cached = self.cache.range(sectors.clone()).find(|(_, data)| data.is_some());
        let below = self
            .stable
            .range(sectors)
            .map(|(sector, _)| *sector)
            .find(|sector| self.cache.latest(*sector).is_none());
        let sector = match (cached.map(|(sector, _)| sector), below) {
            (Some(one), Some(other)) => one.min(other),
            (one, other) => one.or(other)?,
        };
        Some(sector / self.sectors_per_block)
    }
}
