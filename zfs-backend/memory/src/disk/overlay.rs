//! Volatile cache of a disk: for every sector all versions since the last
//! flush. A power loss may leave any of them on the media.

use super::media::{Sector, SectorData};
use std::collections::BTreeMap;
use std::ops::Range;

/// Most versions kept of one sector; beyond it the oldest is dropped.
const MAX_VERSIONS: usize = 8;

/// Unflushed versions of sectors, oldest first; `None` is a discard.
#[derive(Clone, Debug, Default)]
pub(crate) struct Overlay {
    sectors: BTreeMap<Sector, Vec<Option<SectorData>>>,
}

impl Overlay {
    /// Returns the number of sectors whose last write is not on the media.
    pub(crate) fn len(&self) -> usize {
        self.sectors.len()
    }

    /// Adds a version.
    pub(crate) fn push(&mut self, sector: Sector, version: Option<SectorData>) {
        let versions = self.sectors.entry(sector).or_default();
        if versions.len() == MAX_VERSIONS {
            versions.remove(0);
        }
        versions.push(version);
    }

    /// Returns the version that a reader sees; if the outer `Option` is `None`,
    /// read the media.
    pub(crate) fn latest(&self, sector: Sector) -> Option<Option<&SectorData>> {
        self.sectors.get(&sector)?.last().map(Option::as_ref)
    }

    /// Drops sectors whose content was written directly to the media.
    pub(crate) fn forget(&mut self, sectors: Range<Sector>) {
        let known: Vec<Sector> = self.sectors.range(sectors).map(|(sector, _)| *sector).collect();
        for sector in known {
            self.sectors.remove(&sector);
        }
    }

    /// Returns the sectors of the range with their latest versions.
    pub(crate) fn range(
        &self,
        sectors: Range<Sector>,
    ) -> impl Iterator<Item = (Sector, Option<&SectorData>)> {
        self.sectors
            .range(sectors)
            .filter_map(|(sector, versions)| Some((*sector, versions.last()?.as_ref())))
    }

    /// Empties the cache and returns the sectors to write to the media.
    pub(crate) fn flush(&mut self) -> impl Iterator<Item = (Sector, Option<SectorData>)> + use<> {
        std::mem::take(&mut self.sectors)
            .into_iter()
            .filter_map(|(sector, mut versions)| Some((sector, versions.pop()?)))
    }

    /// Empties the cache as a power loss does: for every sector, one of the
    /// versions, or none, goes to the media. The same seed makes the same
    /// choice.
    pub(crate) fn lose(
        &mut self,
        seed: u64,
    ) -> impl Iterator<Item = (Sector, Option<SectorData>)> + use<> {
        let mut random = SplitMix(seed);
        std::mem::take(&mut self.sectors).into_iter().filter_map(move |(sector, mut versions)| {
            let chosen = (random.next() % (versions.len() as u64 + 1)) as usize;
            (chosen < versions.len()).then(|| (sector, versions.swap_remove(chosen)))
        })
    }
}

/// A splitmix64 generator: small, and good enough to choose sectors.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(byte: u8) -> Option<SectorData> {
        Some(SectorData::filled(byte))
    }

    #[test]
    fn readers_see_the_latest_version() {
        let mut overlay = Overlay::default();
        assert_eq!(overlay.latest(7), None);
        overlay.push(7, data(1));
        overlay.push(7, data(2));
        assert_eq!(overlay.latest(7), Some(data(2).as_ref()));
        overlay.push(7, None);
        assert_eq!(overlay.latest(7), Some(None));
        assert_eq!(overlay.flush().collect::<Vec<_>>(), [(7, None)]);
        assert_eq!(overlay.len(), 0);
    }

    #[test]
    fn a_power_loss_may_leave_any_version() {
        let mut left = std::collections::BTreeSet::new();
        for seed in 0..64 {
            let mut overlay = Overlay::default();
            overlay.push(0, data(1));
            overlay.push(0, data(2));
            left.insert(overlay.lose(seed).next().map(|(_, version)| version.unwrap().byte(0)));
        }
        assert_eq!(left.into_iter().collect::<Vec<_>>(), [None, Some(1), Some(2)]);
    }
}
