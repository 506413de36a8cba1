//! Bounds on connections of unknown hosts, and on TLS.

use std::time::Duration;

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

/// Name of RPC in the handshake of TLS (RFC 9289 §8.2).
pub(crate) const ALPN: &[u8] = b"sunrpc";
/// Time from the request for TLS to the end of the handshake.
pub(crate) const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(10);
/// Handshakes in progress, in total; connections that ask for more are closed.
pub(crate) const MAX_HANDSHAKES: usize = 256;
/// Handshakes in progress of one host: `nconnect=16` for four mounts at once.
pub(crate) const MAX_HANDSHAKES_PER_HOST: usize = 64;
/// Bytes accepted from a peer before the end of its handshake: a chain of
/// certificates takes a few KiB.
pub(crate) const MAX_HANDSHAKE_BYTES: usize = 32 << 10;
/// Buffer for ciphertext of one connection, in bytes.
pub(crate) const TLS_RECEIVE_BYTES: usize = 32 << 10;
/// Most bytes encrypted before they are sent.
pub(crate) const SEAL_BYTES: usize = 64 << 10;
/// Bytes that the kernel encrypts with the keys of one connection, which then ends:
/// AES-GCM's keys last for about 388 GB (RFC 8446 §5.5), and older kernels take no
/// others.
pub(crate) const MAX_KERNEL_BYTES: u64 = 256 << 30;
/// Time before the expiry of a certificate from which it is announced.
pub(crate) const EXPIRY_NOTICE: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// The same for a revocation list, which is made anew every few days.
pub(crate) const CRL_EXPIRY_NOTICE: Duration = Duration::from_secs(24 * 60 * 60);
/// Authorities of client certificates: each one costs a verification for each
/// handshake.
pub(crate) const MAX_CLIENT_AUTHORITIES: usize = 32;
/// Names of a client certificate that are looked at.
pub(crate) const MAX_CERTIFICATE_NAMES: usize = 64;

const _: () = assert!(MAX_HANDSHAKES_PER_HOST < MAX_HANDSHAKES);
// 2^24.5 records of 16 KiB.
const _: () = assert!(MAX_KERNEL_BYTES < (1 << 24) * (16 << 10) * 14 / 10);
// A record of TLS fits (RFC 8446 §5.2).
const _: () = assert!(TLS_RECEIVE_BYTES > (16 << 10) + 256 + 5);
