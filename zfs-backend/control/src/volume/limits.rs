//! Limits on what a request may put into properties of a volume.

/// Longest name of a volume, snapshot or owner, in bytes.
pub const MAX_NAME_BYTES: usize = 128;
/// Longest name of a node, in bytes: it is part of a property's name, which ZFS
/// limits to 256 bytes.
pub const MAX_NODE_BYTES: usize = 200;
/// Most nodes with access to a volume.
pub const MAX_NODES_PER_VOLUME: usize = 1024;
/// Most addresses of a node.
pub const MAX_NODE_ADDRESSES: usize = 16;
/// Least limit on reads and writes per second.
pub const MIN_IOPS: u64 = 10;
/// Largest limit on reads and writes per second.
pub const MAX_IOPS: u64 = 100_000_000;
/// Least limit on bytes per second.
pub const MIN_BYTES_PER_SECOND: u64 = 1 << 20;
/// Largest limit on bytes per second.
pub const MAX_BYTES_PER_SECOND: u64 = 1 << 40;
/// Age up to which a dataset without the mark of a volume may be one in the making, in
/// seconds: ZFS makes a dataset first, and sets its properties in later transactions.
pub(super) const IN_THE_MAKING_SECONDS: u64 = 120;
/// Most space that a dataset occupies which nobody has written to, in bytes, with the
/// parity of wide RAID-Z.
pub(super) const MAX_EMPTY_BYTES: u64 = 256 << 10;
/// Longest value of a native property, in bytes.
pub(super) const MAX_VALUE_BYTES: usize = 32;
/// Most snapshots in one `zfs destroy`.
pub(super) const MAX_DESTROYED_AT_ONCE: usize = 64;
/// Most datasets or snapshots in one question to `zfs`.
pub(super) const MAX_ASKED_AT_ONCE: usize = 64;
/// Most clones that are promoted when a volume is deleted.
pub(super) const MAX_PROMOTIONS: usize = 64;
/// Beginning of the name of a property with a node's access; the node's name
/// follows.
pub(super) const ACCESS: &str = "zgate:access:";
/// Longest property's name of ZFS, in bytes.
const MAX_PROPERTY_NAME_BYTES: usize = 256;

const _: () = assert!(ACCESS.len() + MAX_NODE_BYTES < MAX_PROPERTY_NAME_BYTES);
