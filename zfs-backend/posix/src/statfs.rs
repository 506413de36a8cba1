//! Space and limits of a file system.

use crate::entry::Entry;
use crate::errno::OrStoreError;
use crate::file_systems::FileSystemTraits;
use crate::mounts::Mount;
use crate::name::MAX_NAME_BYTES;
use crate::xattr;
use rustix::fs::StatVfsMountFlags;
use std::ffi::CStr;
use zgate_store::file_store::{FsStat, StoreTraits};
use zgate_store::{StoreError, StoreResult};

/// Returns space, abilities and limits of the file system that `entry` lies in.
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
        max_name_bytes: longest_name_bytes(stat.f_namemax),
        case_insensitive: entry.mount.case_insensitive,
        read_only: stat.f_flag.contains(StatVfsMountFlags::RDONLY),
        // ZFS reports the recordsize here.
        preferred_io_bytes: stat.f_bsize,
        traits: traits_in(&entry.mount, stat.f_bsize),
    })
}

/// Returns abilities and limits of the file system of a mount, which reports this block size.
fn traits_in(mount: &Mount, block_bytes: u64) -> StoreTraits {
    let known = mount.traits;
    let has = |name: &CStr| {
        let asked = xattr::read_of(&mount.root, name);
        asked.is_ok() || asked == Err(StoreError::NoXattr)
    };
    StoreTraits {
        persistent_handles: mount.kernel_handles,
        max_file_bytes: known.max_file_bytes,
        max_links: known.max_links,
        xattrs: has(c"user.zgate"),
        acls: has(c"system.posix_acl_access"),
        clone_block_bytes: clone_block_bytes(known, block_bytes),
        chown_restricted: true,
        tells_files_apart: known.is_zfs() && mount.kernel_handles,
    }
}

/// Returns the block size in bytes that sharing blocks needs, if the file system can do it:
/// `block_bytes` is the one that it reports, on ZFS the recordsize of the dataset.
fn clone_block_bytes(traits: FileSystemTraits, block_bytes: u64) -> Option<u32> {
    traits.shares_blocks.then(|| u32::try_from(block_bytes).unwrap_or(4096))
}

/// Returns the length of the longest name that this store accepts: some file systems have
/// longer ones, as ZFS with `longname=on`.
fn longest_name_bytes(of_file_system: u64) -> u32 {
    of_file_system.min(MAX_NAME_BYTES as u64) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file_systems::traits_of;

    #[test]
    fn blocks_are_shared_in_the_size_that_the_file_system_reports() {
        const ZFS: u64 = 0x2fc1_2fc1;
        const EXT4: u64 = 0xef53;
        for record_bytes in [16 << 10, 1 << 20] {
            let found = clone_block_bytes(traits_of(ZFS), record_bytes);
            assert_eq!(found.map(u64::from), Some(record_bytes));
        }
        assert_eq!(clone_block_bytes(traits_of(EXT4), 4096), None);
    }

    #[test]
    fn no_name_is_promised_that_is_refused() {
        assert_eq!(longest_name_bytes(143), 143);
        assert_eq!(longest_name_bytes(255), 255);
        assert_eq!(longest_name_bytes(1023), 255);
    }
}
