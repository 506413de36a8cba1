//! Places that were chosen for volumes that may be in the making.

use crate::limits::MAX_CHOSEN_PLACES;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Gateway and parent.
type Names = (String, String);

/// Gateways and parents by the names of volumes. A request whose answer is late may make its
/// volume after the next one has looked for it: the next one asks the same place, which makes
/// the volume once, also if another one has more room by then.
#[derive(Clone, Debug, Default)]
pub(super) struct ChosenPlaces(Arc<Mutex<BTreeMap<String, Names>>>);

impl ChosenPlaces {
    /// Returns the place that was chosen for a volume.
    pub(super) fn of(&self, volume: &str) -> Option<Names> {
        self.known().get(volume).cloned()
    }

    /// Remembers the place of a volume that is about to be made. Of too many, one is forgotten.
    pub(super) fn keep(&self, volume: &str, gateway: &str, parent: &str) {
        let mut known = self.known();
        if known.len() >= MAX_CHOSEN_PLACES && !known.contains_key(volume) {
            known.pop_first();
        }
        known.insert(volume.to_owned(), (gateway.to_owned(), parent.to_owned()));
    }

    /// Forgets the place of a volume that is made, or surely is not.
    pub(super) fn forget(&self, volume: &str) {
        self.known().remove(volume);
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, Names>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_places_are_remembered() {
        let chosen = ChosenPlaces::default();
        for number in 0..2 * MAX_CHOSEN_PLACES {
            chosen.keep(&format!("v{number:04}"), "g", "tank/k8s");
        }
        assert_eq!(chosen.known().len(), MAX_CHOSEN_PLACES);
        let last = format!("v{:04}", 2 * MAX_CHOSEN_PLACES - 1);
        assert_eq!(chosen.of(&last), Some(("g".to_owned(), "tank/k8s".to_owned())));
        chosen.forget(&last);
        assert_eq!(chosen.of(&last), None);
    }
}
