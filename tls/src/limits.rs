//! Bounds on peers that use TLS.

use std::time::Duration;

/// Name of RPC in the handshake of TLS (RFC 9289 §8.2).
pub const ALPN: &[u8] = b"sunrpc";
/// Time from the request for TLS to the end of the handshake.
pub const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(10);
/// Handshakes in progress, in total; connections that ask for more are closed.
pub const MAX_HANDSHAKES: usize = 256;
/// Handshakes in progress of one host: `nconnect=16` for four mounts at once.
pub const MAX_HANDSHAKES_PER_HOST: usize = 64;
/// Bytes accepted from a peer before the end of its handshake: a chain of
/// certificates takes a few KiB.
pub const MAX_HANDSHAKE_BYTES: usize = 32 << 10;
/// Buffer for ciphertext of one connection, in bytes.
pub const TLS_RECEIVE_BYTES: usize = 32 << 10;
/// Receives of one read of a session: a peer whose records carry next to nothing
/// costs no more time at once.
pub const MAX_RECEIVES_PER_READ: usize = 8;
/// Time before the expiry of a certificate from which it is announced.
pub const EXPIRY_NOTICE: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// The same for a revocation list, which is made anew every few days.
pub const CRL_EXPIRY_NOTICE: Duration = Duration::from_secs(24 * 60 * 60);
/// Authorities of client certificates: each one costs a verification for each
/// handshake.
pub const MAX_CLIENT_AUTHORITIES: usize = 32;
/// Verifications of one chain that ask whether it is revoked: each but the first is at
/// the time before something of it, or its list, has expired.
pub const MAX_REVOCATION_CHECKS: usize = 8;
/// Names of a client certificate that are looked at.
pub const MAX_CERTIFICATE_NAMES: usize = 64;

const _: () = assert!(MAX_HANDSHAKES_PER_HOST < MAX_HANDSHAKES);
// A record of TLS fits (RFC 8446 §5.2).
const _: () = assert!(TLS_RECEIVE_BYTES > (16 << 10) + 256 + 5);
