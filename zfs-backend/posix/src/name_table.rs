//! Table of names under which objects without a kernel handle were last seen.

use dashmap::DashMap;
use zgate_store::NodeHandle;

/// Most names remembered of one object; older ones are dropped.
const MAX_NAMES: usize = 8;

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KnownName {
    /// Handle of the directory.
    pub(crate) parent: NodeHandle,
    /// Name in the directory.
    pub(crate) name: Box<[u8]>,
}

/// Table of names. It grows by one record per object seen (some 150 bytes); a
/// record is removed when the object's last name is removed through the store.
#[derive(Default)]
pub(crate) struct NameTable(DashMap<NodeHandle, Vec<KnownName>, ahash::RandomState>);

impl NameTable {
    /// Remembers a name; the latest is tried first.
    pub(crate) fn remember(&self, node: &NodeHandle, parent: &NodeHandle, name: &[u8]) {
        let mut names = self.0.entry(*node).or_default();
        let index = names.iter().position(|known| known.parent == *parent && *known.name == *name);
        let name = match index {
            Some(index) if index + 1 == names.len() => return,
            Some(index) => names.remove(index),
            None => KnownName { parent: *parent, name: name.into() },
        };
        if names.len() == MAX_NAMES {
            names.remove(0);
        }
        names.push(name);
    }

    /// Forgets one name.
    pub(crate) fn forget_name(&self, node: &NodeHandle, parent: &NodeHandle, name: &[u8]) {
        if let Some(mut names) = self.0.get_mut(node) {
            names.retain(|known| known.parent != *parent || *known.name != *name);
        }
    }

    /// Forgets the object.
    pub(crate) fn forget(&self, node: &NodeHandle) {
        self.0.remove(node);
    }

    /// Returns the known names, latest first.
    pub(crate) fn of(&self, node: &NodeHandle) -> Vec<KnownName> {
        let mut names = self.0.get(node).map(|names| names.clone()).unwrap_or_default();
        names.reverse();
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_name_comes_first_and_the_list_is_bounded() {
        let table = NameTable::default();
        let node = NodeHandle::new(&[1]).unwrap();
        let parent = NodeHandle::new(&[2]).unwrap();
        for name in 0..20u8 {
            table.remember(&node, &parent, &[name]);
        }
        table.remember(&node, &parent, &[15]);
        let names = table.of(&node);
        assert_eq!(names.len(), MAX_NAMES);
        assert_eq!(*names[0].name, [15]);
        assert_eq!(*names[1].name, [19]);
        table.forget_name(&node, &parent, &[15]);
        assert_eq!(*table.of(&node)[0].name, [19]);
        table.forget(&node);
        assert!(table.of(&node).is_empty());
    }
}
