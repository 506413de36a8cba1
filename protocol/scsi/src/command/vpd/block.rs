//! Abilities of the block device: pages B0h, B1h and B2h (SBC-4 §6.6).

use crate::command::Cx;
use crate::limits::{
    MAX_ATOMIC_BYTES, MAX_COMPARE_AND_WRITE_BLOCKS, MAX_TRANSFER_BYTES, MAX_UNMAP_BLOCKS,
    MAX_UNMAP_DESCRIPTORS, MAX_WRITE_SAME_BYTES,
};
use crate::wire::put;

/// Returns Block Limits (SBC-4 §6.6.4). Offsets are those of the page minus its
/// four-byte header.
pub(super) fn limits(cx: &Cx<'_>) -> Vec<u8> {
    let block = cx.block_bytes();
    let blocks = |bytes: u64| u32::try_from(bytes / block).unwrap_or(u32::MAX);
    let geometry = &cx.geometry;
    let physical = u64::from(cx.disk.physical_block_bytes(geometry));
    let granularity = blocks(physical).max(1);
    let optimal = blocks(u64::from(geometry.optimal_io_bytes).min(MAX_TRANSFER_BYTES));
    let mut body = vec![0; 60];
    // WSNZ: WRITE SAME does not accept a length of zero.
    body[0] = 0x01;
    body[1] = MAX_COMPARE_AND_WRITE_BLOCKS;
    put(&mut body, 2, &u16::try_from(granularity).unwrap_or(u16::MAX).to_be_bytes());
    put(&mut body, 4, &blocks(MAX_TRANSFER_BYTES).to_be_bytes());
    put(&mut body, 8, &optimal.to_be_bytes());
    // No limit of PRE-FETCH is reported.
    if cx.disk.is_thin(geometry) {
        put(&mut body, 16, &MAX_UNMAP_BLOCKS.to_be_bytes());
        put(&mut body, 20, &MAX_UNMAP_DESCRIPTORS.to_be_bytes());
        let unit = u64::from(geometry.discard_granularity_bytes.unwrap_or(0));
        put(&mut body, 24, &blocks(unit).max(1).to_be_bytes());
        // UGAVALID, alignment 0.
        body[28] = 0x80;
    }
    put(&mut body, 32, &(MAX_WRITE_SAME_BYTES / block).to_be_bytes());
    put(&mut body, 40, &blocks(MAX_ATOMIC_BYTES).to_be_bytes());
    let (alignment, granularity) = cx.disk.atomic_unit_blocks(geometry);
    put(&mut body, 44, &alignment.to_be_bytes());
    put(&mut body, 48, &granularity.to_be_bytes());
    // No boundaries within an atomic write.
    body
}

/// Returns Block Device Characteristics (SBC-4 §6.6.2).
pub(super) fn characteristics(cx: &Cx<'_>) -> Vec<u8> {
    let mut body = vec![0; 60];
    // Non-rotating medium.
    put(&mut body, 0, &1u16.to_be_bytes());
    if cx.disk.config.sanitize {
        // WABEREQ and WACEREQ 01b: after erasing, reads work (SBC-4 §4.11.1).
        let erase = if cx.disk.is_thin(&cx.geometry) { 0x40 } else { 0x00 };
        body[3] = erase | 0x10;
    }
    // FUAB=1: FUA works; VBULS=1: VERIFY with BYTCHK=00b reads the medium.
    body[4] = 0x03;
    body
}

/// Returns Logical Block Provisioning (SBC-4 §6.6.7).
pub(super) fn provisioning(cx: &Cx<'_>) -> Vec<u8> {
    let thin = cx.disk.is_thin(&cx.geometry);
    let reads_zeros = thin && cx.geometry.discard_zeroes;
    let mut body = vec![0; 4];
    if cx.disk.provisioned(&cx.geometry).is_some() {
        body[0] = cx.disk.threshold_exponent();
    }
    if thin {
        // LBPU, LBPWS, LBPWS10; LBPRZ 001b if unmapped blocks read as zeros.
        body[1] = 0xE0 | (u8::from(reads_zeros) << 2);
        // PROVISIONING TYPE 010b: thin.
        body[2] = 0x02;
    }
    // Otherwise 000b: provisioning is not reported.
    body
}
