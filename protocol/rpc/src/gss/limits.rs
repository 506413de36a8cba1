//! Bounds on contexts of RPCSEC_GSS and their calls.

use crate::limits::{MAX_AUTH_BYTES, MAX_RECORD_BYTES};

/// Highest sequence number of a call (RFC 2203 §5.3.3.1).
pub const MAX_SEQUENCE: u32 = 0x8000_0000;

/// Sequence numbers below the highest one seen that a call may still have. A
/// user's calls over several connections overtake each other: eight connections
/// with all slots of a session in use fit.
pub const SEQUENCE_WINDOW: u32 = 1024;

/// Longest handle of a context that is read, in bytes; ours have eight.
pub const MAX_HANDLE_BYTES: usize = 128;

/// Longest token of a context that is being established, in bytes: Windows
/// limits its own to 48,000 bytes (group memberships make them long).
pub const MAX_TOKEN_BYTES: usize = 64 << 10;

/// Most contexts of all hosts.
pub const MAX_CONTEXTS: usize = 16_384;

/// Most contexts of one host: an IPv4 address or an IPv6 network of 64 bits.
/// Each of its users has one, and a few more while old ones run out.
pub const MAX_CONTEXTS_PER_HOST: usize = 4096;

/// Time after its last call at which a context is removed, in seconds. The
/// client then makes a new one.
pub const CONTEXT_IDLE_SECONDS: u64 = 4 * 3600;

/// Most contexts that wait for another token of their client. Kerberos needs
/// one token only.
pub const MAX_PENDING: usize = 256;

/// Most of them of one host.
pub const MAX_PENDING_PER_HOST: usize = 16;

/// Time that a client has for its next token, in seconds.
pub const PENDING_SECONDS: u64 = 30;

/// Most exchanges of tokens in which the server begins a context with a client's
/// callback service. Kerberos needs one.
pub const MAX_INIT_EXCHANGES: u32 = 4;

/// Smallest window of a callback service that is used. Calls in progress are
/// fewer; implementations have 32 and more.
pub const MIN_OUTGOING_WINDOW: u32 = 8;

const _: () = assert!(SEQUENCE_WINDOW.is_multiple_of(64));
const _: () = assert!(SEQUENCE_WINDOW < MAX_SEQUENCE / 2);
const _: () = assert!(MAX_CONTEXTS_PER_HOST <= MAX_CONTEXTS / 4);
const _: () = assert!(MAX_PENDING_PER_HOST <= MAX_PENDING / 4);
const _: () = assert!(MAX_HANDLE_BYTES + 5 * 4 <= MAX_AUTH_BYTES);
const _: () = assert!(MAX_TOKEN_BYTES < MAX_RECORD_BYTES);
