//! Bounds on requests of an initiator. Those that concern initiators are
//! reported in VPD page B0h, RECEIVE COPY RESULTS or VPD page 8Fh.

/// Largest transfer of one command, in bytes (B0h MAXIMUM TRANSFER LENGTH). At
/// least the 65536 blocks of 512 bytes that hosts use together with a WRITE
/// SAME of that length.
pub const MAX_TRANSFER_BYTES: u64 = 32 << 20;
/// Most logical blocks one UNMAP command may name (B0h MAXIMUM UNMAP LBA COUNT).
pub const MAX_UNMAP_BLOCKS: u32 = 1 << 20;
/// Most descriptors of one UNMAP command (B0h MAXIMUM UNMAP BLOCK DESCRIPTOR COUNT).
pub const MAX_UNMAP_DESCRIPTORS: u32 = 256;
/// Most logical blocks of one COMPARE AND WRITE (B0h MAXIMUM COMPARE AND WRITE LENGTH).
pub const MAX_COMPARE_AND_WRITE_BLOCKS: u8 = 255;
/// Largest range of one WRITE SAME, in bytes (B0h MAXIMUM WRITE SAME LENGTH).
pub const MAX_WRITE_SAME_BYTES: u64 = 1 << 30;
/// Largest WRITE ATOMIC, in bytes (B0h MAXIMUM ATOMIC TRANSFER LENGTH).
pub const MAX_ATOMIC_BYTES: u64 = 1 << 20;
/// Bytes read, written or compared at once by commands that process a range in
/// steps (WRITE SAME, VERIFY, EXTENDED COPY, SANITIZE).
pub const STRIDE_BYTES: u64 = 1 << 20;
/// Most extents requested from the store for one GET LBA STATUS.
pub const MAX_LBA_STATUS_DESCRIPTORS: usize = 1024;
/// Largest parameter list accepted by any command, in bytes.
pub const MAX_PARAMETER_LIST_BYTES: u32 = 64 << 10;
/// Unit attentions kept for one I_T nexus; the oldest are dropped.
pub const MAX_UNIT_ATTENTIONS: usize = 16;
/// Most I_T nexuses that a logical unit remembers.
pub const MAX_NEXUSES: usize = 1024;
/// Most registered I_T nexuses of one logical unit.
pub const MAX_REGISTRATIONS: usize = 256;
/// Longest TransportID accepted, in bytes (iSCSI names have at most 223).
pub const MAX_TRANSPORT_ID_BYTES: usize = 264;
/// EXTENDED COPY: most CSCD (target) descriptors in one parameter list.
pub const MAX_CSCD_DESCRIPTORS: u16 = 8;
/// EXTENDED COPY: most segment descriptors in one parameter list.
pub const MAX_SEGMENT_DESCRIPTORS: u16 = 64;
/// EXTENDED COPY: most bytes of both descriptor lists together.
pub const MAX_DESCRIPTOR_LIST_BYTES: u32 = 2048;
/// EXTENDED COPY: most bytes that one segment may copy.
pub const MAX_SEGMENT_BYTES: u32 = 256 << 20;
/// Most copy results kept for one I_T nexus until they are fetched or
/// displaced.
pub const MAX_COPY_RESULTS: usize = 16;
/// Most ROD tokens that one logical unit remembers; the oldest are dropped.
pub const MAX_ROD_TOKENS: usize = 64;
/// Most block range descriptors of POPULATE TOKEN and WRITE USING TOKEN.
pub const MAX_TOKEN_RANGES: u16 = 64;
/// Most bytes that one POPULATE TOKEN may represent or one WRITE USING TOKEN
/// may copy.
pub const MAX_TOKEN_BYTES: u64 = 4 << 30;
/// Optimal number of bytes of one WRITE USING TOKEN (8Fh OPTIMAL TRANSFER
/// COUNT).
pub const OPTIMAL_TOKEN_BYTES: u64 = 64 << 20;
/// Validity of an unused ROD token in seconds, reported as the default. This
/// crate has no clock: tokens expire by number instead.
pub const TOKEN_INACTIVITY_SECONDS: u32 = 60;
/// Largest physical block reported in READ CAPACITY (16): some hosts accept
/// no more than 4 KiB. Larger ones show in the B0h granularities.
pub const MAX_REPORTED_PHYSICAL_BLOCK_BYTES: u32 = 4096;
/// Space behind a thin logical unit is counted in sets of this many bytes
/// (B2h THRESHOLD EXPONENT).
pub const THRESHOLD_SET_BYTES: u64 = 1 << 20;
/// SANITIZE OVERWRITE: most passes.
pub const MAX_OVERWRITE_PASSES: u8 = 31;

const _: () = assert!(MAX_TRANSFER_BYTES.is_multiple_of(STRIDE_BYTES));
const _: () = assert!(MAX_ATOMIC_BYTES <= MAX_TRANSFER_BYTES);
const _: () = assert!(2 * (MAX_COMPARE_AND_WRITE_BLOCKS as u64) * 4096 <= MAX_TRANSFER_BYTES);
const _: () = assert!(MAX_UNMAP_DESCRIPTORS * 16 + 8 <= MAX_PARAMETER_LIST_BYTES);
const _: () = assert!(MAX_DESCRIPTOR_LIST_BYTES + 16 <= MAX_PARAMETER_LIST_BYTES);
// One list may hold the maximum of one kind together with one of the other
// kind.
const _: () = assert!((MAX_CSCD_DESCRIPTORS as u32 + 1) * 32 + 28 <= MAX_DESCRIPTOR_LIST_BYTES);
const _: () = assert!((MAX_SEGMENT_DESCRIPTORS as u32 + 1) * 28 + 32 <= MAX_DESCRIPTOR_LIST_BYTES);
