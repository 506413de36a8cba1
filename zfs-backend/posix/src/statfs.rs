//! Space and limits of a file system.

use crate::entry::Entry;
use crate::errno::OrStoreError;
use rustix::fs::StatVfsMountFlags;
use zgate_store::StoreResult;
use zgate_store::file_store::FsStat;

/// Returns space and limits of the file system that `entry` lies in.
pub(crate) fn statfs(entry: &Entry) -> StoreResult<FsStat> {
    let stat = rustix::fs::fstatvfs(&entry.fd).or_store()?;
    let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
    Ok(FsStat {
        total_bytes: bytes(stat.f_blocks),
        free_bytes: bytes(stat.f_bfree),
        available_bytes: bytes(stat.f_bavail),
        total_files: stat.f_files,
        free_files: stat.f_ffree,
        available_files: stat.f_favail,
        max_name_bytes: u32::try_from(stat.f_namemax).unwrap_or(255),
        read_only: stat.f_flag.contains(StatVfsMountFlags::RDONLY),
        // ZFS reports the recordsize here.
        preferred_io_bytes: stat.f_bsize,
    })
}
