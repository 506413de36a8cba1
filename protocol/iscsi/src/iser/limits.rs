//! Bounds on everything that a peer could make grow.

use crate::limits::{BHS_BYTES, DEFAULT_RECV_SEGMENT_BYTES, MAX_AHS_BYTES, MAX_IMMEDIATE_TASKS};

/// Bytes of the header in front of every message (RFC 7145 §9.1).
pub const HEADER_BYTES: usize = 28;
/// Longest data segment of a message, in bytes: the limit of login (RFC 7143
/// §13.12), and the value offered as TargetRecvDataSegmentLength.
pub const MAX_DATA_BYTES: u32 = DEFAULT_RECV_SEGMENT_BYTES;
/// Size of a receive that holds any message a peer may send, in bytes.
pub const RECEIVE_BYTES: usize =
    HEADER_BYTES + BHS_BYTES + MAX_AHS_BYTES + MAX_DATA_BYTES as usize + 3;
/// Most padding accepted after a data segment, in bytes.
pub const MAX_PADDING_BYTES: usize = 3;
/// Receives posted beyond one for each command of the window: immediate
/// commands, pings, and unsolicited data. If none is left, the peer's device
/// retries (RFC 7145 §8.1.1.3 requires a target that needs a bound to declare
/// MaxOutstandingUnexpectedPDUs, §6.7; Linux does not know that key).
pub const SPARE_RECEIVES: u32 = 48;
/// Commands after which the immediate data is forgotten of those that are no tasks (any more):
/// they were aborted, or never taken. Each may keep a receive.
pub const IMMEDIATE_KEPT: usize = 256;
/// Advertised buffers kept before those of tasks that ended without a response
/// (aborted ones) are removed.
pub const MAX_ADVERTISED: usize = 4096;

const _: () = assert!(SPARE_RECEIVES as usize > MAX_IMMEDIATE_TASKS);
const _: () = assert!(RECEIVE_BYTES <= 16 << 10, "it fits the pool's second size");
const _: () = assert!(MAX_ADVERTISED > crate::limits::MAX_COMMAND_WINDOW as usize);
