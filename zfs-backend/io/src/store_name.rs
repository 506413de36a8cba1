//! Name of the storage that fails as a unit: a ZFS pool with all its datasets
//! and volumes; elsewhere one device or file system.

use crate::mountinfo::{self, MountLine};
use rustix::fs::{fstat, fstatfs, major, minor};
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

/// The name of a store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StoreName(String);

/// statfs(2): `f_type` of ZFS.
const ZFS_MAGIC: u64 = 0x2fc1_2fc1;

impl StoreName {
    /// Returns the name for files outside all served stores: the gateway's own.
    #[must_use]
    pub fn own() -> Self {
        Self("the gateway's own files".to_owned())
    }

    /// Returns the pool of a dataset, a snapshot or a volume: the first part of
    /// its name.
    #[must_use]
    pub fn of_dataset(name: &[u8]) -> Self {
        let pool = name.split(|byte| matches!(byte, b'/' | b'@')).next().unwrap_or_default();
        Self(format!("pool {}", String::from_utf8_lossy(pool)))
    }

    /// Names a mounted file system: a ZFS file system by the pool of its
    /// source, any other by its device.
    #[must_use]
    pub fn of_mount(kind: &[u8], source: &[u8], device: u64) -> Self {
        if kind == b"zfs" { Self::of_dataset(source) } else { Self::of_device(device) }
    }

    /// Names a device by its number (`st_dev` of a file, `st_rdev` of its
    /// node).
    #[must_use]
    pub fn of_device(device: u64) -> Self {
        Self(format!("device {}:{}", major(device), minor(device)))
    }

    /// Names the pool of a device path, if it is a ZFS volume
    /// (`/dev/zvol/POOL/...`). udev writes `+` for a blank.
    #[must_use]
    pub fn of_zvol_path(path: &Path) -> Option<Self> {
        let name = path.strip_prefix("/dev/zvol").ok()?.to_str()?.replace('+', " ");
        (!name.is_empty()).then(|| Self::of_dataset(name.as_bytes()))
    }

    /// Names the storage of calls that may wait for either of two stores; their
    /// order makes no difference.
    #[must_use]
    pub(crate) fn of_pair(one: &Self, other: &Self) -> Self {
        let (first, second) = if one.0 <= other.0 { (one, other) } else { (other, one) };
        Self(format!("calls between {first} and {second}"))
    }

    /// Names the storage of calls in the background of a store.
    #[must_use]
    pub(crate) fn of_background(store: &Self) -> Self {
        Self(format!("calls in the background of {store}"))
    }

    /// Names the file system that a file lies in. May wait for that file
    /// system.
    ///
    /// # Errors
    /// The error of fstat(2).
    pub fn of_file(fd: &OwnedFd) -> io::Result<Self> {
        let device = fstat(fd)?.st_dev;
        let is_zfs = fstatfs(fd).is_ok_and(|found| found.f_type.cast_unsigned() == ZFS_MAGIC);
        let mounts = if is_zfs { mountinfo::read()? } else { Vec::new() };
        let source = source_of(&mounts, device);
        Ok(source.map_or_else(|| Self::of_device(device), Self::of_dataset))
    }
}

impl fmt::Display for StoreName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns the source of the file system with this number, if it is ZFS.
fn source_of(mounts: &[MountLine], device: u64) -> Option<&[u8]> {
    let mount = mounts.iter().find(|mount| mount.device == device)?;
    (mount.kind == b"zfs").then_some(&mount.source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_a_pool_is_one_store() {
        let pool = StoreName::of_mount(b"zfs", b"tank", 77);
        assert_eq!(pool, StoreName::of_mount(b"zfs", b"tank/vm/a", 78));
        assert_eq!(pool, StoreName::of_mount(b"zfs", b"tank@daily", 79));
        assert_eq!(Some(pool), StoreName::of_zvol_path(Path::new("/dev/zvol/tank/vm/disk0")));
        assert_eq!(StoreName::of_zvol_path(Path::new("/dev/sda")), None);
        let blank = StoreName::of_mount(b"zfs", b"my tank/a", 80);
        assert_eq!(Some(blank), StoreName::of_zvol_path(Path::new("/dev/zvol/my+tank/vm")));
    }

    #[test]
    fn other_file_systems_are_told_by_their_devices() {
        let one = StoreName::of_mount(b"ext4", b"/dev/sda1", 0x0801);
        assert_eq!(one, StoreName::of_device(0x0801));
        assert_ne!(one, StoreName::of_mount(b"ext4", b"/dev/sda1", 0x0802));
        let file = OwnedFd::from(tempfile::tempfile().unwrap());
        let device = fstat(&file).unwrap().st_dev;
        assert_eq!(StoreName::of_file(&file).unwrap(), StoreName::of_device(device));
    }

    #[test]
    fn a_dataset_is_found_by_its_number() {
        let mounts = mountinfo::parse(
            b"27 1 254:0 / / rw - ext4 /dev/vda rw\n\
            36 35 0:49 / /tank/a rw shared:1 - zfs tank/a rw\n",
        );
        let device = rustix::fs::makedev(0, 49);
        assert_eq!(source_of(&mounts, device), Some(&b"tank/a"[..]));
        assert_eq!(source_of(&mounts, rustix::fs::makedev(254, 0)), None);
    }
}
