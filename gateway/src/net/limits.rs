//! Bounds on connections of unknown hosts, and on what is encrypted.

/// Share of all connections for hosts that no export names together, and the
/// same share for connections that have not logged in to a target.
const OUTSIDERS_PART: usize = 4;
/// Connections of one host that no export names, or that are not logged in. A
/// host of IPv6 has a /64 ([`zgate_store::HostKey`]).
pub(crate) const MAX_OUTSIDER_CONNECTIONS_PER_HOST: usize = 64;

/// Returns the most connections for outsiders of one kind, out of `total`.
pub(crate) fn outsider_connections(total: usize) -> usize {
    (total / OUTSIDERS_PART).max(1)
}

/// Most bytes encrypted before they are sent.
pub(crate) const SEAL_BYTES: usize = 64 << 10;
/// Bytes that the kernel encrypts with the keys of one connection, which then ends:
/// AES-GCM's keys last for about 388 GB (RFC 8446 §5.5), and older kernels take no
/// others.
pub(crate) const MAX_KERNEL_BYTES: u64 = 256 << 30;

// 2^24.5 records of 16 KiB.
const _: () = assert!(MAX_KERNEL_BYTES < (1 << 24) * (16 << 10) * 14 / 10);
