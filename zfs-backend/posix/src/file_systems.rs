//! Limits and abilities of file systems by their magic number.

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
    /// Set if attributes may have to be fetched over a network: never read them
    /// on a core's thread.
    pub(crate) remote: bool,
}

/// Magic number of ZFS.
pub(crate) const ZFS: u64 = 0x2fc1_2fc1;
const LARGEST: u64 = i64::MAX as u64;

const fn local(
    magic: u64,
    max_file_bytes: u64,
    max_links: u32,
    shares_blocks: bool,
) -> FileSystemTraits {
    FileSystemTraits { magic, max_file_bytes, max_links, shares_blocks, remote: false }
}

const fn remote(magic: u64) -> FileSystemTraits {
    FileSystemTraits {
        magic,
        max_file_bytes: LARGEST,
        max_links: 255,
        shares_blocks: false,
        remote: true,
    }
}

const KNOWN: &[FileSystemTraits] = &[
    local(ZFS, LARGEST, i32::MAX as u32, true),
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
