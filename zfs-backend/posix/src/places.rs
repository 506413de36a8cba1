//! Table of names under which objects without a kernel handle were last seen.

use dashmap::DashMap;
use zgate_store::NodeHandle;

/// Most names remembered of one object; older ones are dropped.
const MAX_NAMES: usize = 8;

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Handle of the directory.
    pub(crate) parent: NodeHandle,
    /// Name in the directory.
    pub(crate) name: Box<[u8]>,
}

/// Table of names. It grows by one record per object seen (some 150 bytes); a
/// record is removed when the object's last name is removed through the store.
#[derive(Default)]
pub(crate) struct PlaceTable(DashMap<NodeHandle, Vec<Place>, ahash::RandomState>);

impl PlaceTable {
    /// Remembers a name; the latest is tried first.
    pub(crate) fn remember(&self, node: &NodeHandle, parent: &NodeHandle, name: &[u8]) {
        let mut places = self.0.entry(*node).or_default();
        let known = places.iter().position(|place| place.parent == *parent && *place.name == *name);
        let place = match known {
            Some(index) if index + 1 == places.len() => return,
            Some(index) => places.remove(index),
            None => Place { parent: *parent, name: name.into() },
        };
        if places.len() == MAX_NAMES {
            places.remove(0);
        }
        places.push(place);
    }

    /// Forgets one name.
    pub(crate) fn forget_name(&self, node: &NodeHandle, parent: &NodeHandle, name: &[u8]) {
        if let Some(mut places) = self.0.get_mut(node) {
            places.retain(|place| place.parent != *parent || *place.name != *name);
        }
    }

    /// Forgets the object.
    pub(crate) fn forget(&self, node: &NodeHandle) {
        self.0.remove(node);
    }

    /// Returns the known names, latest first.
    pub(crate) fn of(&self, node: &NodeHandle) -> Vec<Place> {
        let mut places = self.0.get(node).map(|places| places.clone()).unwrap_or_default();
        places.reverse();
        places
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_name_comes_first_and_the_list_is_bounded() {
        let table = PlaceTable::default();
        let node = NodeHandle::new(&[1]).unwrap();
        let parent = NodeHandle::new(&[2]).unwrap();
        for name in 0..20u8 {
            table.remember(&node, &parent, &[name]);
        }
        table.remember(&node, &parent, &[15]);
        let places = table.of(&node);
        assert_eq!(places.len(), MAX_NAMES);
        assert_eq!(*places[0].name, [15]);
        assert_eq!(*places[1].name, [19]);
        table.forget_name(&node, &parent, &[15]);
        assert_eq!(*table.of(&node)[0].name, [19]);
        table.forget(&node);
        assert!(table.of(&node).is_empty());
    }
}
