//! Stores of an engine, numbered in the order of their first use.

use crate::queue::StoreSlot;
use crate::store_name::StoreName;
use std::sync::{Mutex, PoisonError};

/// All stores so far. There are only as many as pools, devices, pairs of them with
/// calls in between, and those with calls in the background, so none is removed, and
/// a store that returns gets the same number.
#[derive(Debug)]
pub(crate) struct Stores(Mutex<Vec<StoreName>>);

/// Number of the store for all files outside served stores.
pub(crate) const OWN: StoreSlot = StoreSlot(0);

impl Default for Stores {
    fn default() -> Self {
        Self(Mutex::new(vec![StoreName::own()]))
    }
}

impl Stores {
    /// Returns the number of the store with this name.
    pub(crate) fn slot(&self, name: &StoreName) -> StoreSlot {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = names.iter().position(|known| known == name);
        StoreSlot(known.unwrap_or_else(|| {
            names.push(name.clone());
            names.len() - 1
        }))
    }

    /// Returns the name of a store.
    pub(crate) fn name(&self, slot: StoreSlot) -> StoreName {
        let names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        names.get(slot.0).cloned().unwrap_or_else(StoreName::own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_keeps_its_number() {
        let stores = Stores::default();
        let (tank, dozer) = (StoreName::of_dataset(b"tank/a"), StoreName::of_dataset(b"dozer"));
        let slot = stores.slot(&tank);
        assert_ne!(slot, stores.slot(&dozer));
        assert_eq!(slot, stores.slot(&StoreName::of_dataset(b"tank/b")));
        assert_eq!(stores.name(slot), tank);
        assert_eq!(stores.slot(&StoreName::own()), OWN);
    }
}
