//! What hangs together below: the storage whose failure stops everything that
//! lies on it. A ZFS pool with all its datasets and volumes; elsewhere one
//! device or file system.

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
    /// What belongs to no store that is served: the gateway's own files.
    #[must_use]
    pub fn own() -> Self {
        Self("the gateway's own files".to_owned())
    }

    /// The pool of a dataset, a snapshot or a volume: the first part of its name.
    #[must_use]
    pub fn of_dataset(name: &[u8]) -> Self {
        let pool = name.split(|byte| matches!(byte, b'/' | b'@')).next().unwrap_or_default();
        Self(format!("pool {}", String::from_utf8_lossy(pool)))
    }

    /// A mounted file system: of ZFS the pool of its source, else its device.
    #[must_use]
    pub fn of_mount(kind: &[u8], source: &[u8], device: u64) -> Self {
        if kind == b"zfs" { Self::of_dataset(source) } else { Self::of_device(device) }
    }

    /// A device by its number (`st_dev` of a file, `st_rdev` of its node).
    #[must_use]
    pub fn of_device(device: u64) -> Self {
        Self(format!("device {}:{}", major(device), minor(device)))
    }

    /// The volume that a device's path names, if it is one of ZFS
    /// (`/dev/zvol/POOL/...`).
    #[must_use]
    pub fn of_zvol_path(path: &Path) -> Option<Self> {
        let name = path.strip_prefix("/dev/zvol").ok()?;
        name.to_str().filter(|name| !name.is_empty()).map(|name| Self::of_dataset(name.as_bytes()))
    }

    /// The file system a file lies in. May wait for it.
    ///
    /// # Errors
    /// What fstat(2) reports.
    pub fn of_file(fd: &OwnedFd) -> io::Result<Self> {
        let device = fstat(fd)?.st_dev;
        let is_zfs = fstatfs(fd).is_ok_and(|found| found.f_type.cast_unsigned() == ZFS_MAGIC);
        let mounts = if is_zfs { std::fs::read("/proc/self/mountinfo")? } else { Vec::new() };
        let source = source_of(&mounts, device);
        Ok(source.map_or_else(|| Self::of_device(device), Self::of_dataset))
    }
}

impl fmt::Display for StoreName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The source of the file system with this number, from lines of
/// /proc/self/mountinfo (proc(5)). Names of pools have no characters that are
/// written there in another way.
fn source_of(mounts: &[u8], device: u64) -> Option<&[u8]> {
    let number = format!("{}:{}", major(device), minor(device));
    mounts.split(|&byte| byte == b'\n').find_map(|line| {
        let mut fields = line.split(|&byte| byte == b' ');
        if fields.nth(2)? != number.as_bytes() {
            return None;
        }
        let mut rest = fields.skip_while(|&field| field != b"-").skip(1);
        (rest.next()? == b"zfs").then_some(())?;
        rest.next()
    })
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
        let mounts = b"27 1 254:0 / / rw - ext4 /dev/vda rw\n\
            36 35 0:49 / /tank/a rw shared:1 - zfs tank/a rw\n";
        let device = rustix::fs::makedev(0, 49);
        assert_eq!(source_of(mounts, device), Some(&b"tank/a"[..]));
        assert_eq!(source_of(mounts, rustix::fs::makedev(254, 0)), None);
    }
}
