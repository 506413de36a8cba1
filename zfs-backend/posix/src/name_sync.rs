//! Sync of names and attributes that a file system needs.

use crate::group_sync::GroupSync;
use std::collections::BTreeMap;
use zgate_store::file_store::NamedObject;
use zgate_store::{NodeHandle, StoreResult};

/// Most rounds of syncs, one after the other, of a group: objects of a longer chain of
/// renames share the last one.
const MAX_ROUNDS: usize = 8;

/// Object to sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Object {
    /// An object with its attributes and, if it is a directory, its entries.
    Node(NodeHandle),
    /// Any, if [`NameSync::OfAnyForNames`].
    Any,
}

/// Sync of an object, and the object that must be synced before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) object: Object,
    pub(crate) after: Option<Object>,
}

impl Step {
    /// A sync that may come before and after others.
    pub(crate) fn alone(object: Object) -> Self {
        Self { object, after: None }
    }
}

/// Returns the objects of these syncs in rounds: those of one can be synced at the same
/// time, and each object comes after the one that it must come after. Where renames go in
/// a circle there is no such order, and the objects share a round.
pub(crate) fn rounds(steps: &[Step]) -> Vec<Vec<Object>> {
    if steps.iter().all(|step| step.after.is_none()) {
        let mut objects: Vec<Object> = steps.iter().map(|step| step.object).collect();
        objects.sort_unstable();
        objects.dedup();
        return if objects.is_empty() { Vec::new() } else { vec![objects] };
    }
    let mut round_of: BTreeMap<Object, usize> = steps.iter().map(|one| (one.object, 0)).collect();
    let mut has_moved = true;
    while has_moved {
        has_moved = false;
        for Step { object, after } in steps {
            let before = after.as_ref().and_then(|before| round_of.get(before));
            let least = before.map_or(0, |before| (before + 1).min(MAX_ROUNDS - 1));
            if let Some(round) = round_of.get_mut(object).filter(|round| **round < least) {
                *round = least;
                has_moved = true;
            }
        }
    }
    let mut rounds = vec![Vec::new(); MAX_ROUNDS];
    for (object, round) in round_of {
        rounds[round].push(object);
    }
    rounds.retain(|objects| !objects.is_empty());
    rounds
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

    /// Returns whether the kernel reports a failed write-back once per descriptor. ZFS does
    /// not keep written data in the kernel's page cache, and tells each sync its own error.
    pub(crate) fn reports_losses_once(self) -> bool {
        self == Self::OfEach
    }

    /// Returns the syncs that make a change of names stable: of the directories one after
    /// the other.
    pub(crate) fn steps_of(self, of: NamedObject, dirs: &[NodeHandle]) -> Vec<Step> {
        let mut dir_before = None;
        let step = |object: Object| match object {
            Object::Node(node) if dirs.contains(&node) => {
                Step { object, after: dir_before.replace(object) }
            }
            _ => Step::alone(object),
        };
        self.objects_of(of, dirs).into_iter().map(step).collect()
    }

    /// Returns the objects whose sync makes a change of names stable.
    fn objects_of(self, of: NamedObject, dirs: &[NodeHandle]) -> Vec<Object> {
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
    pub(crate) group: GroupSync<Step>,
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

    /// A power loss between the two syncs leaves the name in both directories, not in none.
    #[test]
    fn the_directory_with_the_new_name_is_synced_first() {
        let [low, high, other] = [1, 2, 3].map(|byte| NodeHandle::new(&[byte]).unwrap());
        let rename = |from: NodeHandle, to: NodeHandle| {
            NameSync::OfEach.steps_of(NamedObject::Unchanged, &[to, from])
        };
        let in_rounds = |steps: &[Step]| -> Vec<Vec<NodeHandle>> {
            let node = |object: Object| match object {
                Object::Node(node) => node,
                Object::Any => unreachable!("each object is synced"),
            };
            let nodes = |round: Vec<Object>| round.into_iter().map(node).collect();
            rounds(steps).into_iter().map(nodes).collect()
        };
        assert_eq!(in_rounds(&rename(high, low)), [[low], [high]]);
        assert_eq!(in_rounds(&rename(low, high)), [[high], [low]]);
        // Renames of several clients share the syncs.
        let chain = [rename(low, high), rename(high, other)].concat();
        assert_eq!(in_rounds(&chain), [[other], [high], [low]]);
        let both = [rename(low, other), rename(high, other)].concat();
        assert_eq!(in_rounds(&both), [vec![other], vec![low, high]]);
        let circle = [rename(low, high), rename(high, low)].concat();
        assert_eq!(in_rounds(&circle), [[low, high]]);
    }

    #[test]
    fn what_needs_no_order_is_synced_at_the_same_time() {
        let [file, dir, other] = [1, 2, 3].map(|byte| NodeHandle::new(&[byte]).unwrap());
        let made = NameSync::OfEach.steps_of(NamedObject::Changed(file), &[dir]);
        let removed = NameSync::OfEach.steps_of(NamedObject::Unchanged, &[other]);
        let objects = [file, dir, other].map(Object::Node).to_vec();
        let steps = [made.clone(), removed, made].concat();
        assert_eq!(rounds(&steps), [objects], "each of them once");
        assert!(rounds(&[]).is_empty());
    }
}
