//! Bounds on data from an RPC-over-RDMA peer.

/// Inline threshold without negotiation, in bytes (RFC 8166 §3.3.3).
pub const DEFAULT_INLINE_BYTES: u32 = 1024;

/// Largest inline threshold that private data can express, in bytes: the size
/// is sent in KiB minus one, in one byte (RFC 8797 §4.2).
pub const MAX_INLINE_BYTES: u32 = 256 << 10;

/// Default limit of inline messages received, in bytes: the default limit of
/// the Linux client for sending.
pub const PREFERRED_INLINE_BYTES: u32 = 4096;

/// Most segments of a read list.
pub const MAX_READ_SEGMENTS: usize = 256;

/// Most write chunks of one call: one for each READ of the longest COMPOUND
/// that clients send.
pub const MAX_WRITE_CHUNKS: usize = 16;

/// Most segments of one write or reply chunk.
pub const MAX_CHUNK_SEGMENTS: usize = 256;

/// Longest call, RDMA Reads and inline parts together, in bytes: a 4 MiB WRITE
/// and room for the rest of its COMPOUND, as over TCP.
pub const MAX_CALL_BYTES: usize = (4 << 20) + (64 << 10);

/// Longest part of a call outside separate bulk data, in bytes.
pub const MAX_STREAM_BYTES: usize = MAX_CALL_BYTES;

/// Most credits granted to one connection.
pub const MAX_CREDITS: u32 = 256;

/// Beginning of every transport header, in bytes: xid, version, credits, procedure.
pub const FIXED_HEADER_BYTES: usize = 16;

/// Shortest transport header of a call or a reply, in bytes: with three empty lists.
pub const MIN_HEADER_BYTES: usize = FIXED_HEADER_BYTES + 3 * 4;

/// Bytes of a segment on the wire.
pub const SEGMENT_BYTES: usize = 16;

const _: () = assert!(MAX_INLINE_BYTES == 1024 * 256);
const _: () = assert!(PREFERRED_INLINE_BYTES >= DEFAULT_INLINE_BYTES);
const _: () = assert!(PREFERRED_INLINE_BYTES.is_multiple_of(1024));
// The largest read list fits into the largest inline message.
const _: () =
    assert!(MIN_HEADER_BYTES + MAX_READ_SEGMENTS * (SEGMENT_BYTES + 8) < MAX_INLINE_BYTES as usize);
const _: () = assert!(MAX_CALL_BYTES < u32::MAX as usize);
