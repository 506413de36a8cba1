//! Sync of names and attributes that a file system needs.

use crate::group_sync::GroupSync;
use zgate_store::file_store::NamedObject;
use zgate_store::{NodeHandle, StoreResult};

/// Object to sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Object {
    /// An object with its attributes and, if it is a directory, its entries.
    Node(NodeHandle),
    /// Any, if [`NameSync::OfAnyForNames`].
    Any,
}

/// Sync needed to bring changes of names and attributes to stable storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameSync {
    /// None: memory is the only storage.
    Nothing,
    /// A sync of each changed object. A journal includes all earlier changes, so
    /// that the first sync does the work.
    OfEach,
    /// A sync of any object for all changes of names so far, with the attributes
    /// that follow from them: the intent log of ZFS. Other changes of attributes
    /// and sizes wait in a list of their own object until that one is synced.
    OfAnyForNames,
}

impl NameSync {
    /// Returns the sync for a type of file system (proc(5), mountinfo).
    pub(crate) fn of_kind(kind: &[u8]) -> Self {
        match kind {
            b"tmpfs" | b"ramfs" => Self::Nothing,
            b"zfs" => Self::OfAnyForNames,
            _ => Self::OfEach,
        }
    }

    /// Returns the objects whose sync makes a change of names stable.
    pub(crate) fn objects_of(self, of: NamedObject, dirs: &[NodeHandle]) -> Vec<Object> {
        match (self, of) {
            (Self::Nothing, _) | (Self::OfAnyForNames, NamedObject::Stable) => Vec::new(),
            (Self::OfAnyForNames, NamedObject::Unchanged) => vec![Object::Any],
            (Self::OfAnyForNames, NamedObject::Changed(node)) => vec![Object::Node(node)],
            (Self::OfEach, of) => {
                let node = match of {
                    NamedObject::Changed(node) => Some(node),
                    NamedObject::Unchanged | NamedObject::Stable => None,
                };
                node.iter().chain(dirs).map(|node| Object::Node(*node)).collect()
            }
        }
    }
}

/// Group sync of the names of a mount.
#[derive(Debug)]
pub(crate) struct Names {
    pub(crate) how: NameSync,
    pub(crate) group: GroupSync<Object>,
}

impl Names {
    pub(crate) fn new(kind: &[u8]) -> Self {
        Self { how: NameSync::of_kind(kind), group: GroupSync::default() }
    }

    /// Refuses a change that would wait behind a sync that hangs.
    pub(crate) fn check(&self) -> StoreResult<()> {
        self.group.check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_sync_takes_is_told_by_the_file_system() {
        assert_eq!(NameSync::of_kind(b"zfs"), NameSync::OfAnyForNames);
        assert_eq!(NameSync::of_kind(b"tmpfs"), NameSync::Nothing);
        assert_eq!(NameSync::of_kind(b"ext4"), NameSync::OfEach);
    }

    #[test]
    fn an_intent_log_needs_one_sync_for_a_change_of_names() {
        use NamedObject::{Changed, Stable, Unchanged};
        let [file, dir, other] = [1, 2, 3].map(|byte| NodeHandle::new(&[byte]).unwrap());
        let (zfs, ext4) = (NameSync::OfAnyForNames, NameSync::OfEach);
        let nodes =
            |nodes: &[NodeHandle]| nodes.iter().copied().map(Object::Node).collect::<Vec<_>>();
        // A new file; a new file with a verifier; a removal; a new name elsewhere.
        for (of, dirs, each, any) in [
            (Changed(file), &[dir][..], nodes(&[file, dir]), nodes(&[file])),
            (Stable, &[dir], nodes(&[dir]), vec![]),
            (Unchanged, &[dir], nodes(&[dir]), vec![Object::Any]),
            (Unchanged, &[dir, other], nodes(&[dir, other]), vec![Object::Any]),
        ] {
            assert_eq!(ext4.objects_of(of, dirs), each, "{of:?}");
            assert_eq!(zfs.objects_of(of, dirs), any, "{of:?}");
            assert_eq!(NameSync::Nothing.objects_of(of, dirs), vec![]);
        }
    }
}
