//! Conversion of statx(2) to the store's attributes.

use crate::mounts::Mount;
use rustix::fs::{FileType, Statx, StatxAttributes, StatxFlags, StatxTimestamp};
use zgate_store::{Attr, FileKind, Timestamp};

/// Unit of the number of blocks in stat(2) and statx(2).
pub(crate) const BLOCK_BYTES: u64 = 512;

/// Returns the kind of object from the mode.
pub(crate) fn kind_of(stat: &Statx) -> FileKind {
    match FileType::from_raw_mode(u32::from(stat.stx_mode)) {
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        FileType::BlockDevice => FileKind::BlockDevice,
        FileType::CharacterDevice => FileKind::CharDevice,
        FileType::Fifo => FileKind::Fifo,
        FileType::Socket => FileKind::Socket,
        FileType::RegularFile | FileType::Unknown => FileKind::Regular,
    }
}

/// Returns the device number as one word.
pub(crate) fn device_of(stat: &Statx) -> u64 {
    (u64::from(stat.stx_dev_major) << 32) | u64::from(stat.stx_dev_minor)
}

/// Returns the creation time in nanoseconds, 0 if the file system keeps none.
pub(crate) fn birth_of(stat: &Statx) -> u64 {
    match birth_time(stat) {
        Some(born) => crate::change::from_ctime(born),
        None => 0,
    }
}

/// Converts a time stamp.
pub(crate) fn timestamp(raw: StatxTimestamp) -> Timestamp {
    Timestamp { seconds: raw.tv_sec, nanoseconds: raw.tv_nsec }
}

fn birth_time(stat: &Statx) -> Option<Timestamp> {
    (stat.stx_mask & StatxFlags::BTIME.bits() != 0).then(|| timestamp(stat.stx_btime))
}

/// Builds all attributes of an object of `mount`, with its change number.
pub(crate) fn attr_of(stat: &Statx, mount: &Mount, change: u64) -> Attr {
    let covers = stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT);
    let covered = if covers { mount.covered_fileid } else { None };
    Attr {
        kind: kind_of(stat),
        mode: u32::from(stat.stx_mode) & 0o7777,
        nlink: stat.stx_nlink,
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        size: stat.stx_size,
        used_bytes: stat.stx_blocks.saturating_mul(BLOCK_BYTES),
        rdev: (stat.stx_rdev_major, stat.stx_rdev_minor),
        fsid: mount.fsid,
        fileid: stat.stx_ino,
        mounted_on_fileid: covered.unwrap_or(stat.stx_ino),
        atime: timestamp(stat.stx_atime),
        mtime: timestamp(stat.stx_mtime),
        ctime: timestamp(stat.stx_ctime),
        btime: birth_time(stat),
        change,
        preferred_io_bytes: stat.stx_blksize,
    }
}
