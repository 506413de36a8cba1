//! Bounds on data from an RPC peer.

/// Longest opaque body of a credential or verifier, in bytes (RFC 5531 §8.2).
pub const MAX_AUTH_BYTES: usize = 400;

/// Longest machine name in AUTH_SYS, in bytes (RFC 5531 appendix A).
pub const MAX_MACHINE_NAME_BYTES: usize = 255;

/// Most supplementary groups in AUTH_SYS (RFC 5531 appendix A).
pub const MAX_AUTH_SYS_GROUPS: usize = 16;

/// Largest record accepted on a stream, all fragments together, in bytes: a
/// 4 MiB WRITE and room for the rest of its COMPOUND.
pub const MAX_RECORD_BYTES: usize = (4 << 20) + (64 << 10);

/// Most fragments of one record: a peer that cuts the largest record into
/// pieces of 4 KiB is slow, not hostile.
pub const MAX_FRAGMENTS: usize = 1056;

const _: () =
    assert!(MAX_AUTH_BYTES >= 4 + 4 + MAX_MACHINE_NAME_BYTES + 1 + 12 + 4 * MAX_AUTH_SYS_GROUPS);
const _: () = assert!(MAX_RECORD_BYTES < 1 << 31);

/// Most calls in the duplicate request cache.
pub const MAX_DRC_ENTRIES: usize = 16_384;

/// Most calls in it from one client address, running and finished.
pub const MAX_DRC_ENTRIES_PER_CLIENT: usize = 2048;

/// Most bytes in it, counting 256 for each call besides its reply.
pub const MAX_DRC_BYTES: usize = 16 << 20;

/// Most bytes in it for one client address.
pub const MAX_DRC_BYTES_PER_CLIENT: usize = 2 << 20;

/// Longest reply it keeps, in bytes.
pub const MAX_DRC_REPLY_BYTES: usize = 16 << 10;

/// Most copies of one running call that wait for its reply. A client repeats a
/// call over one new connection at a time; when a third copy arrives, the oldest
/// is dropped without a reply.
pub const MAX_DRC_COPIES: usize = 2;

const _: () = assert!(MAX_DRC_COPIES > 0);
const _: () = assert!(MAX_DRC_ENTRIES_PER_CLIENT < MAX_DRC_ENTRIES);
const _: () = assert!(MAX_DRC_REPLY_BYTES < MAX_DRC_BYTES_PER_CLIENT / 8);
const _: () = assert!(MAX_DRC_BYTES_PER_CLIENT <= MAX_DRC_BYTES / 8);
