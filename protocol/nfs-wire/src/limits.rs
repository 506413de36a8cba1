//! Bounds on lengths and counts in decoding, for server and client.

/// Longest file handle of NFSv4 in bytes (RFC 8881 §3.1, NFS4_FHSIZE).
pub const MAX_FH_BYTES: usize = 128;
/// Longest file handle of NFSv3 in bytes (RFC 1813 §2.4).
pub const MAX_FH3_BYTES: usize = 64;
/// Longest opaque owner or client id string (RFC 8881 §3.1, NFS4_OPAQUE_LIMIT).
pub const MAX_OPAQUE_BYTES: usize = 1024;
/// Longest path component accepted on the wire, in bytes; the store's own
/// limit (usually 255) is checked after decoding, so that a longer name gets
/// NFS4ERR_NAMETOOLONG instead of a refusal to decode.
pub const MAX_COMPONENT_BYTES: usize = 4096;
/// Longest symbolic link target in bytes (PATH_MAX).
pub const MAX_LINK_BYTES: usize = 4096;
/// Longest COMPOUND tag in bytes.
pub const MAX_TAG_BYTES: usize = 1024;
/// Most operations in a COMPOUND of minor version 0.
pub const MAX_OPS: usize = 128;
/// Most words of an attribute bitmap.
pub const MAX_BITMAP_WORDS: usize = 64;
/// Most bytes of one fattr4 value list (ACLs make it long).
pub const MAX_FATTR_BYTES: usize = 64 << 10;
/// Longest owner, group or ACE principal string in bytes.
pub const MAX_PRINCIPAL_BYTES: usize = 1024;
/// Largest transfer of one READ or WRITE in bytes.
pub const MAX_TRANSFER_BYTES: usize = 4 << 20;
/// Largest extended attribute value in bytes (XATTR_SIZE_MAX).
pub const MAX_XATTR_BYTES: usize = 64 << 10;
/// Most stateids in one TEST_STATEID.
pub const MAX_TEST_STATEIDS: usize = 4096;
/// Longest path in MOUNT in bytes (RFC 1813 §5.1.2, MNTPATHLEN).
pub const MAX_MOUNT_PATH_BYTES: usize = 1024;
/// Longest host or group name in MOUNT in bytes (RFC 1813 §5.1.2, MNTNAMLEN).
pub const MAX_MOUNT_NAME_BYTES: usize = 255;

const _: () = assert!(MAX_FH3_BYTES <= MAX_FH_BYTES);
const _: () = assert!(MAX_TRANSFER_BYTES + (16 << 10) < zgate_rpc::limits::MAX_RECORD_BYTES);
