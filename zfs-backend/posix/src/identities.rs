//! Identities of objects: the same in all stores that serve an object.
//!
//! An identity is a handle without what differs between stores, the signature and the
//! generation, and with the device number of the file system in place of its key where the
//! key does not tell it from all others: everywhere but on ZFS. Identities are not stored,
//! as device numbers may be others after a restart.

use crate::handle::{HandleCodec, Verified};
use ahash::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use zgate_io::mountinfo::MountLine;
use zgate_store::NodeHandle;

/// First byte of the identity of an object in a file system known by its key.
const BY_KEY: u8 = 1;
/// The same, by its device number.
const BY_DEVICE: u8 = 2;
/// The same, of an object with an in-tree handle.
const IN_TREE: u8 = 3;

/// Device numbers of the file systems of a store, except those of ZFS, by their keys in
/// handles; clones share them. Off ZFS a copy of a disk has the key of the original (ext4),
/// a directory may have another one than the whole (btrfs), and so may each mount point.
#[derive(Clone, Debug, Default)]
pub struct MountedDevices(Arc<Known>);

#[derive(Debug, Default)]
struct Known {
    by_key: RwLock<HashMap<u64, u64>>,
    /// Set once there is one: a store that is on ZFS alone takes no lock.
    any: AtomicBool,
}

impl MountedDevices {
    /// Adds a file system that is mounted.
    pub(crate) fn note(&self, key: u64, line: &MountLine) {
        if line.kind == b"zfs" {
            return;
        }
        let mut by_key = self.0.by_key.write().unwrap_or_else(PoisonError::into_inner);
        // Two handles of one store must not have one identity: the state of an open is used
        // with the handle by which it was opened.
        let is_known = by_key.values().any(|device| *device == line.device);
        if is_known && !by_key.contains_key(&key) {
            return;
        }
        // Of two with one key, handles lead to the one that was found first.
        by_key.entry(key).or_insert(line.device);
        self.0.any.store(true, Ordering::Release);
    }

    /// Removes file systems that are mounted nowhere any more.
    pub(crate) fn keep(&self, lines: &[MountLine]) {
        if !self.0.any.load(Ordering::Acquire) {
            return;
        }
        let mut by_key = self.0.by_key.write().unwrap_or_else(PoisonError::into_inner);
        by_key.retain(|_, device| lines.iter().any(|line| line.device == *device));
    }

    fn of(&self, key: u64) -> Option<u64> {
        if !self.0.any.load(Ordering::Acquire) {
            return None;
        }
        self.0.by_key.read().unwrap_or_else(PoisonError::into_inner).get(&key).copied()
    }
}

/// Identities of the objects of a store, also while the store is closed.
#[derive(Clone)]
pub struct Identities {
    codec: HandleCodec,
    devices: MountedDevices,
}

impl Identities {
    pub(crate) fn new(codec: HandleCodec, devices: MountedDevices) -> Self {
        Self { codec, devices }
    }

    /// Returns the identity of the object of a handle, see
    /// [`zgate_store::FileStore::identity`].
    #[must_use]
    pub fn of(&self, node: &NodeHandle) -> Option<NodeHandle> {
        match self.codec.verify(node).ok()? {
            Verified::Kernel { key, named, .. } => match self.devices.of(key) {
                Some(device) => NodeHandle::of_parts(&[&[BY_DEVICE], &device.to_le_bytes(), named]),
                None => NodeHandle::of_parts(&[&[BY_KEY], &key.to_le_bytes(), named]),
            },
            Verified::InTree(object) => {
                let numbers = [object.device, object.inode, object.birth].map(u64::to_le_bytes);
                NodeHandle::of_parts(&[&[IN_TREE], numbers.as_flattened()])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handle::InTreeHandle;
    use zgate_io::file_handle::KernelHandle;
    use zgate_io::mountinfo;

    fn file(last: u8) -> KernelHandle {
        KernelHandle::from_parts(1, &[1, 2, 3, 4, 5, 6, 7, last]).unwrap()
    }

    /// Lines of mounts, each of a type of file system and a device number.
    fn lines(mounts: &[(&str, u32)]) -> Vec<MountLine> {
        let line =
            |(kind, device): (&str, u32)| format!("27 1 0:{device} / /x rw - {kind} source rw\n");
        let text: String = mounts.iter().copied().map(line).collect();
        mountinfo::parse(text.as_bytes())
    }

    fn store(secret: u8, mounts: &[(u64, &MountLine)]) -> (HandleCodec, Identities) {
        let codec = HandleCodec::new(Some([secret; 16]), u64::from(secret));
        let devices = MountedDevices::default();
        mounts.iter().for_each(|&(key, line)| devices.note(key, line));
        (codec, Identities::new(codec, devices))
    }

    #[test]
    fn an_object_has_one_identity_in_all_stores() {
        let unsigned = HandleCodec::new(None, 3);
        let of_unsigned = Identities::new(unsigned, MountedDevices::default());
        let stores = [store(1, &[]), store(2, &[]), (unsigned, of_unsigned)];
        let objects: [&dyn Fn(&HandleCodec) -> NodeHandle; 5] = [
            &|codec| codec.kernel(42, &file(8)).unwrap(),
            &|codec| codec.kernel(43, &file(8)).unwrap(),
            &|codec| codec.kernel(42, &file(9)).unwrap(),
            &|codec| codec.in_tree(InTreeHandle { device: 1, inode: 2, birth: 3 }).unwrap(),
            &|codec| codec.in_tree(InTreeHandle { device: 1, inode: 2, birth: 4 }).unwrap(),
        ];
        let mut known = Vec::new();
        for object in objects {
            let [one, other, unsigned] =
                [0, 1, 2].map(|at: usize| stores[at].1.of(&object(&stores[at].0)));
            assert!(one.is_some() && one == other && one == unsigned);
            assert!(!known.contains(&one));
            known.push(one);
            // Handles of another store, and unsigned ones, cannot be had from this one.
            for (codec, _) in &stores[1..] {
                assert_eq!(stores[0].1.of(&object(codec)), None);
            }
        }
    }

    #[test]
    fn file_systems_are_known_by_their_keys_on_zfs_and_by_their_devices_elsewhere() {
        let lines = lines(&[("ext4", 7), ("ext4", 8), ("zfs", 7), ("zfs", 8)]);
        let identity = |key, line: &MountLine| {
            let (codec, identities) = store(1, &[(key, line)]);
            identities.of(&codec.kernel(key, &file(8)).unwrap()).unwrap()
        };
        let [one, copy, dataset, again] = [0, 1, 2, 3].map(|at: usize| &lines[at]);
        assert_ne!(identity(42, one), identity(42, copy), "a copy of the disk");
        assert_eq!(identity(42, one), identity(43, one), "two directories of one file system");
        assert_eq!(identity(42, dataset), identity(42, again), "mounted once more");
        assert_ne!(identity(42, dataset), identity(43, dataset));
        assert_ne!(identity(7, one), identity(7, dataset));
    }

    #[test]
    fn devices_are_known_while_they_are_mounted() {
        let mounted = lines(&[("ext4", 7), ("tmpfs", 8), ("zfs", 9)]);
        let devices = MountedDevices::default();
        for (key, line) in (1_u64..).zip(&mounted) {
            devices.note(key, line);
        }
        let known = || [1, 2, 3].map(|key| devices.of(key).is_some());
        assert_eq!(known(), [true, true, false]);
        devices.note(1, &mounted[1]);
        let first = devices.of(1);
        devices.keep(&mounted[..1]);
        assert_eq!((known(), devices.of(1)), ([true, false, false], first));
    }
}
