//! Logical units on zvols whose content was replaced below the gateway.

use super::luns::unit::Unit;
use super::service::IscsiService;
use crate::exports::replaced::ReplacedDatasets;
use std::path::Path;
use zgate_block::BackingKind;
use zgate_control::DatasetName;

impl IscsiService {
    /// Counts what initiators discarded as content again, in the units on zvols that may have
    /// been replaced; returns the number of units. A size that came back is adopted as any
    /// other (`luns/watch`). Waits for no storage.
    pub(crate) fn content_replaced(&self, replaced: &ReplacedDatasets<'_>) -> usize {
        let (rules, mut concerned) = (self.rules(), 0);
        for unit in rules.catalog.units().filter(|unit| is_on_zvol(unit)) {
            if may_be_replaced(&unit.config.path, replaced) {
                unit.volume.content_replaced();
                concerned += 1;
            }
        }
        concerned
    }

    /// Returns whether a unit is on a zvol.
    pub(crate) fn serves_zvols(&self) -> bool {
        self.rules().catalog.units().any(|unit| is_on_zvol(unit))
    }
}

fn is_on_zvol(unit: &Unit) -> bool {
    unit.volume.kind() == BackingKind::Zvol
}

/// Returns whether the zvol at a path may be one of these. The kernel knows for certain, but may
/// keep whoever asks waiting for a pool that hangs.
fn may_be_replaced(path: &Path, replaced: &ReplacedDatasets<'_>) -> bool {
    let Some(name) = DatasetName::of_device(path) else { return true };
    if replaced.has(name.as_str().as_bytes()) {
        return true;
    }
    // The name may also be that of a partition of the zvol.
    let zvol = name.as_str().rsplit_once("-part").map(|(zvol, _)| zvol);
    zvol.is_some_and(|zvol| replaced.has(zvol.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zvol_is_known_by_its_path_and_any_may_be_behind_another_path() {
        let names: [DatasetName; 1] = ["lab/vm/a b".parse().unwrap()];
        let named = ReplacedDatasets::named(&names);
        let is_replaced = |path: &str| may_be_replaced(Path::new(path), &named);
        assert!(is_replaced("/dev/zvol/lab/vm/a+b") && is_replaced("/dev/zvol/lab/vm/a+b-part1"));
        assert!(!is_replaced("/dev/zvol/lab/vm/a") && !is_replaced("/dev/zvol/lab/vm/c-part1"));
        assert!(is_replaced("/dev/zd0"));
        assert!(may_be_replaced(Path::new("/dev/zvol/lab/vm/c"), &ReplacedDatasets::Any));
    }
}
