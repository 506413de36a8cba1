//! Limits and abilities of file systems by their magic number.

/// Wait of a call for attributes, rights or the name of an object at hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitsFor {
    /// None: the kernel has them in memory. A core's thread may make such calls.
    Nothing,
    /// For a lock of the file system, which is held while its content is replaced, and as
    /// long as its pool takes for that. Only workers make such calls.
    ///
    /// OpenZFS: `zfs_enter` takes the teardown lock, which a rollback and a receive hold.
    Lock,
    /// For a network. Only jobs of workers make such calls. Other hosts change the objects
    /// at any time.
    Network,
}

/// Limits and abilities of one type of file system.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileSystemTraits {
    magic: u64,
    /// Largest file in bytes.
    pub(crate) max_file_bytes: u64,
    /// Most hard links to one file.
    pub(crate) max_links: u32,
    /// Set if blocks can be shared between files.
    pub(crate) shares_blocks: bool,
    /// Wait of a call on an object at hand.
    pub(crate) waits_for: WaitsFor,
}

impl FileSystemTraits {
    /// Returns whether it is ZFS.
    pub(crate) fn is_zfs(&self) -> bool {
        self.magic == ZFS
    }

    /// Returns the traits of a file system that differs in this alone.
    #[cfg(test)]
    pub(crate) fn waiting_for(self, waits_for: WaitsFor) -> Self {
        Self { waits_for, ..self }
    }
}

/// Magic number of ZFS.
const ZFS: u64 = 0x2fc1_2fc1;
const LARGEST: u64 = i64::MAX as u64;

const fn local(
    magic: u64,
    max_file_bytes: u64,
    max_links: u32,
    shares_blocks: bool,
) -> FileSystemTraits {
    let waits_for = WaitsFor::Nothing;
    FileSystemTraits { magic, max_file_bytes, max_links, shares_blocks, waits_for }
}

const fn remote(magic: u64) -> FileSystemTraits {
    FileSystemTraits {
        magic,
        max_file_bytes: LARGEST,
        max_links: 255,
        shares_blocks: false,
        waits_for: WaitsFor::Network,
    }
}

const KNOWN: &[FileSystemTraits] = &[
    FileSystemTraits { waits_for: WaitsFor::Lock, ..local(ZFS, LARGEST, i32::MAX as u32, true) },
    local(0xef53, (1 << 44) - 4096, 65_000, false), // ext4, 4 KiB blocks
    local(0x5846_5342, LARGEST, i32::MAX as u32, true), // XFS
    local(0x9123_683e, LARGEST, 65_535, true),      // btrfs
    local(0xca45_1a4e, LARGEST, i32::MAX as u32, true), // bcachefs
    local(0x0102_1994, LARGEST, i32::MAX as u32, false), // tmpfs
    remote(0x6969),                                 // NFS
    remote(0x00c3_6400),                            // CephFS
    remote(0x0bd0_0bd0),                            // Lustre
    remote(0x6573_5546),                            // FUSE
    remote(0xff53_4d42),                            // CIFS
    remote(0xfe53_4d42),                            // SMB2
    remote(0x0102_1997),                            // 9p
];

/// Returns the limits and abilities of the file system with this magic number.
pub(crate) fn traits_of(magic: u64) -> FileSystemTraits {
    KNOWN
        .iter()
        .find(|known| known.magic == magic)
        .copied()
        .unwrap_or(local(magic, LARGEST, 32_000, false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_call_on_zfs_or_over_a_network_is_one_for_a_core() {
        const EXT4: u64 = 0xef53;
        const NFS: u64 = 0x6969;
        let found = [ZFS, NFS, EXT4].map(|magic| traits_of(magic).waits_for);
        assert_eq!(found, [WaitsFor::Lock, WaitsFor::Network, WaitsFor::Nothing]);
        assert!(traits_of(ZFS).is_zfs() && !traits_of(EXT4).is_zfs());
    }
}
