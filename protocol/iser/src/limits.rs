//! Every bound that a peer could push against, in one place.

use zgate_iscsi::limits::{
    BHS_BYTES, DEFAULT_RECV_SEGMENT_BYTES, MAX_AHS_BYTES, MAX_IMMEDIATE_TASKS,
};

/// Bytes of the header in front of every message (RFC 7145 §9.1).
pub const HEADER_BYTES: usize = 28;
/// Longest data segment of a message, in bytes: what login may use anyway
/// (RFC 7143 §13.12), and what TargetRecvDataSegmentLength offers.
pub const MAX_DATA_BYTES: u32 = DEFAULT_RECV_SEGMENT_BYTES;
/// Size of a receive that holds any message a peer may send, in bytes.
pub const RECEIVE_BYTES: usize =
    HEADER_BYTES + BHS_BYTES + MAX_AHS_BYTES + MAX_DATA_BYTES as usize + 3;
/// Most padding accepted behind a data segment, in bytes.
pub const MAX_PADDING_BYTES: usize = 3;
/// Receives posted beyond one for each command of the window: immediate
/// commands, pings, and unsolicited data. When they run short, the peer's
/// device tries again (RFC 7145 §8.1.1.3 has a target that needs a bound declare
/// MaxOutstandingUnexpectedPDUs, §6.7; Linux knows no such key).
pub const SPARE_RECEIVES: u32 = 48;
/// Advertised buffers kept before those of tasks that ended without a response
/// (aborted ones) are looked for.
pub const MAX_ADVERTISED: usize = 4096;

const _: () = assert!(SPARE_RECEIVES as usize > MAX_IMMEDIATE_TASKS);
const _: () = assert!(RECEIVE_BYTES <= 16 << 10, "it fits the pool's second size");
const _: () = assert!(MAX_ADVERTISED > zgate_iscsi::limits::MAX_COMMAND_WINDOW as usize);
