//! Figures of volumes. Kubernetes drops an answer without any, and its condition with it:
//! while nobody can tell them, a volume has those that it had last.

use crate::limits::MAX_KNOWN_USAGES;
use crate::proto::VolumeUsage;
use crate::proto::volume_usage::Unit;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Fields that `stat -f` prints: size of a block; blocks in all, free, free for
/// users; inodes in all, free.
pub(super) const FORMAT: &str = "%S %b %f %a %c %d";

/// Reads what `stat -f` has printed.
pub(super) fn read(text: &str) -> Option<Vec<VolumeUsage>> {
    let fields: Option<Vec<i64>> =
        text.split_whitespace().map(|field| field.parse().ok()).collect();
    let [block, blocks, free, available, inodes, free_inodes] = fields?[..] else { return None };
    let bytes = |count: i64| count.saturating_mul(block);
    let one = |unit: Unit, total: i64, used: i64, available: i64| VolumeUsage {
        unit: unit.into(),
        total,
        used: used.max(0),
        available,
    };
    Some(vec![
        one(Unit::Bytes, bytes(blocks), bytes(blocks.saturating_sub(free)), bytes(available)),
        one(Unit::Inodes, inodes, inodes.saturating_sub(free_inodes), free_inodes),
    ])
}

/// Returns the figures of a volume of which only the size is known.
pub(super) fn of_size(size_bytes: u64) -> Vec<VolumeUsage> {
    let total = size_bytes.cast_signed();
    vec![VolumeUsage { total, unit: Unit::Bytes.into(), ..VolumeUsage::default() }]
}

/// Figures that volumes had last.
#[derive(Clone, Debug, Default)]
pub(super) struct LastUsage(Arc<Mutex<BTreeMap<String, Vec<VolumeUsage>>>>);

impl LastUsage {
    /// Returns the figures of a volume: those of now, or else the last ones. A volume that
    /// never had any has zeros.
    pub(super) fn or_last(
        &self,
        volume_id: &str,
        now: Option<Vec<VolumeUsage>>,
    ) -> Vec<VolumeUsage> {
        let mut known = self.known();
        let Some(now) = now else {
            return known.get(volume_id).cloned().unwrap_or_else(|| of_size(0));
        };
        if known.len() >= MAX_KNOWN_USAGES && !known.contains_key(volume_id) {
            known.pop_first();
        }
        known.insert(volume_id.to_owned(), now.clone());
        now
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, Vec<VolumeUsage>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_is_read() {
        let read = read("4096 100 60 50 10 4\n").unwrap();
        assert_eq!((read[0].total, read[0].used, read[0].available), (409_600, 163_840, 204_800));
        assert_eq!((read[1].total, read[1].used, read[1].available), (10, 6, 4));
        assert!(super::read("1 2").is_none() && super::read("a b c d e f").is_none());
    }

    #[test]
    fn there_are_always_figures_and_few_volumes_are_remembered() {
        let last = LastUsage::default();
        assert_eq!(last.or_last("a", None), of_size(0));
        assert_eq!(last.or_last("a", Some(of_size(5))), of_size(5));
        assert_eq!(last.or_last("a", None), of_size(5));
        for number in 0..2 * MAX_KNOWN_USAGES {
            last.or_last(&format!("b{number}"), Some(of_size(7)));
        }
        assert_eq!(last.known().len(), MAX_KNOWN_USAGES);
    }
}
