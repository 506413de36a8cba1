//! Examination of what opening a volume would find, without opening, creating or locking
//! anything: for checks of a configuration beside a gateway that serves it.

use crate::device::direct_demands;
use crate::file;
use crate::open::{
    check_new_size, check_size, no_direct, refuse_among_devices, unreachable_because, wrong_type,
};
use crate::options::{DirectIo, OpenError};
use rustix::fs::{AtFlags, CWD, FileType, Statx, StatxFlags};
use rustix::io::Errno;
use std::path::Path;

/// Options of opening that decide whether a volume can be opened.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Refuses writes.
    pub read_only: bool,
    /// Use of the page cache.
    pub direct: DirectIo,
    /// Size in bytes at which a missing file is created.
    pub create_bytes: Option<u64>,
}

/// The device or file behind a path, whatever its names are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Identity {
    /// A block device, by its major and minor number.
    Device(u32, u32),
    /// A file, by its inode and the numbers of the device of its file system.
    File(u64, u32, u32),
}

/// A device or file that was examined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Examined {
    /// The file or device itself.
    pub identity: Identity,
    /// Size in bytes that a file has, or gets; none for a device.
    pub size_bytes: Option<u64>,
}

/// Returns what opening the volume at `path` would find; none if it would create a file.
/// Facts that only opening tells (another user, a read-only device) are not examined. Blocks
/// for as long as the storage does.
///
/// # Errors
/// Those of [`crate::BlockVolume::open`].
pub fn examine(path: &Path, wanted: &Wanted) -> Result<Option<Examined>, OpenError> {
    check_new_size(path, wanted.create_bytes)?;
    let attributes = StatxFlags::BASIC_STATS | StatxFlags::DIOALIGN;
    let creates = wanted.create_bytes.filter(|_| !wanted.read_only);
    let found = match rustix::fs::statx(CWD, path, AtFlags::empty(), attributes) {
        Ok(found) => found,
        Err(Errno::NOENT) if creates.is_some() => {
            refuse_among_devices(path)?;
            return match path.parent().is_some_and(Path::is_dir) {
                true => Ok(None),
                false => Err(unreachable_because(path, Errno::NOENT)),
            };
        }
        Err(errno) => return Err(unreachable_because(path, errno)),
    };
    match FileType::from_raw_mode(found.stx_mode.into()) {
        FileType::BlockDevice => {
            let identity = Identity::Device(found.stx_rdev_major, found.stx_rdev_minor);
            Ok(Some(Examined { identity, size_bytes: None }))
        }
        FileType::RegularFile => {
            // An empty file gets its size when it is opened.
            let size_bytes = creates.filter(|_| found.stx_size == 0).unwrap_or(found.stx_size);
            check_size(path, size_bytes, unit_bytes(path, wanted.direct, &found)?)?;
            let identity = Identity::File(found.stx_ino, found.stx_dev_major, found.stx_dev_minor);
            Ok(Some(Examined { identity, size_bytes: Some(size_bytes) }))
        }
        other => Err(wrong_type(path, other)),
    }
}

/// Returns the unit of transfers of a file, in bytes.
fn unit_bytes(path: &Path, direct: DirectIo, found: &Statx) -> Result<u64, OpenError> {
    if direct != DirectIo::Always {
        return Ok(1);
    }
    let demands = direct_demands(found).unwrap_or_else(file::usual_alignment);
    demands
        .map(|alignment| alignment.offset_bytes.into())
        .ok_or_else(|| no_direct(path, file::NO_DIRECT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    fn wanted() -> Wanted {
        Wanted { read_only: false, direct: DirectIo::Auto, create_bytes: None }
    }

    #[test]
    fn what_cannot_be_opened_is_told_without_opening_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, bytes: u64| {
            let path = dir.path().join(name);
            File::create(&path).unwrap().set_len(bytes).unwrap();
            path
        };
        let (short, disk) = (file("short", 511), file("disk", 4096));
        for place in [dir.path(), Path::new("/dev/null")] {
            let error = examine(place, &wanted()).unwrap_err();
            assert!(matches!(error, OpenError::WrongType { .. }), "{error}");
        }
        let error = examine(&short, &wanted()).unwrap_err();
        assert!(matches!(error, OpenError::BadSize { size_bytes: 511, .. }), "{error}");
        let found = examine(&disk, &wanted()).unwrap().unwrap();
        assert_eq!(found.size_bytes, Some(4096));
        // Past the page cache it has whole units only; or its file system has no such way.
        let odd = file("odd", 4096 + 100);
        assert!(examine(&odd, &wanted()).is_ok());
        let error = examine(&odd, &Wanted { direct: DirectIo::Always, ..wanted() }).unwrap_err();
        assert!(
            matches!(error, OpenError::BadSize { .. } | OpenError::NoDirectIo { .. }),
            "{error}"
        );
    }

    #[test]
    fn a_size_makes_a_disk_of_an_empty_file_or_of_none() {
        let dir = tempfile::tempdir().unwrap();
        let (empty, absent) = (dir.path().join("empty"), dir.path().join("absent"));
        File::create(&empty).unwrap();
        let sized = Wanted { create_bytes: Some(8192), ..wanted() };
        let error = examine(&empty, &wanted()).unwrap_err();
        assert!(matches!(error, OpenError::BadSize { size_bytes: 0, .. }), "{error}");
        assert_eq!(examine(&empty, &sized).unwrap().unwrap().size_bytes, Some(8192));
        assert_eq!(examine(&absent, &sized).unwrap(), None);
        assert!(!absent.exists());
        // A reader gives no size and creates nothing, and no file is made in no directory.
        let reader = Wanted { read_only: true, ..sized };
        assert!(matches!(examine(&empty, &reader), Err(OpenError::BadSize { .. })));
        let nowhere = absent.join("disk");
        for (path, wanted) in [(&absent, reader), (&absent, wanted()), (&nowhere, sized)] {
            let error = examine(path, &wanted).unwrap_err();
            assert!(matches!(error, OpenError::Unreachable { .. }), "{error}");
        }
    }

    #[test]
    fn a_file_is_the_same_through_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let (disk, link, other) =
            (dir.path().join("disk"), dir.path().join("link"), dir.path().join("other"));
        for path in [&disk, &other] {
            File::create(path).unwrap().set_len(4096).unwrap();
        }
        std::os::unix::fs::symlink(&disk, &link).unwrap();
        let found = |path: &Path| examine(path, &wanted()).unwrap().unwrap().identity;
        assert_eq!(found(&disk), found(&link));
        assert_ne!(found(&disk), found(&other));
    }
}
