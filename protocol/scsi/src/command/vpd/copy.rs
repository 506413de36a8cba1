//! Third-party Copy, page 8Fh (SPC-4 §7.8.17).

use crate::command::Cx;
use crate::command::copy_results::CONCURRENT_COPIES;
use crate::command::table::ROWS;
use crate::command::token::ROD_TYPE_CHANGE_VULNERABLE;
use crate::limits::{
    MAX_CSCD_DESCRIPTORS, MAX_DESCRIPTOR_LIST_BYTES, MAX_SEGMENT_BYTES, MAX_SEGMENT_DESCRIPTORS,
    MAX_TOKEN_BYTES, MAX_TOKEN_RANGES, OPTIMAL_TOKEN_BYTES, TOKEN_INACTIVITY_SECONDS,
};
use crate::wire::put;

fn descriptor(data: &mut Vec<u8>, kind: u16, body: &[u8]) {
    // Descriptors are multiples of four bytes long.
    let padded = body.len().next_multiple_of(4);
    data.extend(kind.to_be_bytes());
    data.extend(u16::try_from(padded).unwrap_or(u16::MAX).to_be_bytes());
    data.extend(body);
    data.resize(data.len() + padded - body.len(), 0);
}

pub(super) fn third_party_copy(cx: &Cx<'_>) -> Vec<u8> {
    let mut data = Vec::new();
    descriptor(&mut data, 0x0000, &block_device_rod_limits(cx));
    descriptor(&mut data, 0x0001, &supported_commands());
    descriptor(&mut data, 0x0004, &parameter_data());
    // Supported descriptors: identification CSCD, block to block segments.
    descriptor(&mut data, 0x0008, &[3, 0x02, 0x0A, 0xE4]);
    // Supported CSCD descriptor IDs: only those of the list.
    descriptor(&mut data, 0x000C, &[0, 0]);
    descriptor(&mut data, 0x0106, &rod_token_features());
    descriptor(&mut data, 0x0108, &supported_rod_types());
    descriptor(&mut data, 0x8001, &general_copy_operations());
    data
}

/// Returns Block Device ROD Token Limits, a descriptor of type 0000h, whose
/// amounts of data are logical blocks.
fn block_device_rod_limits(cx: &Cx<'_>) -> Vec<u8> {
    let block = cx.block_bytes();
    let mut body = vec![0; 32];
    put(&mut body, 6, &MAX_TOKEN_RANGES.to_be_bytes());
    put(&mut body, 8, &TOKEN_INACTIVITY_SECONDS.to_be_bytes());
    put(&mut body, 12, &TOKEN_INACTIVITY_SECONDS.to_be_bytes());
    put(&mut body, 16, &(MAX_TOKEN_BYTES / block).to_be_bytes());
    put(&mut body, 24, &(OPTIMAL_TOKEN_BYTES / block).to_be_bytes());
    body
}

/// Returns operation codes with their service actions, from the command table.
fn supported_commands() -> Vec<u8> {
    let mut list = Vec::new();
    for opcode in [0x83u8, 0x84] {
        let actions: Vec<u8> = ROWS
            .iter()
            .filter(|row| row.opcode == opcode)
            .filter_map(|row| row.service_action)
            .collect();
        list.push(opcode);
        list.push(u8::try_from(actions.len()).unwrap_or(u8::MAX));
        list.extend(actions);
    }
    let mut body = vec![u8::try_from(list.len()).unwrap_or(u8::MAX)];
    body.extend(list);
    body
}

fn parameter_data() -> Vec<u8> {
    let mut body = vec![0; 28];
    put(&mut body, 4, &MAX_CSCD_DESCRIPTORS.to_be_bytes());
    put(&mut body, 6, &MAX_SEGMENT_DESCRIPTORS.to_be_bytes());
    put(&mut body, 8, &MAX_DESCRIPTOR_LIST_BYTES.to_be_bytes());
    body
}

/// Returns ROD Token Features, a descriptor of type 0106h, whose amounts of data
/// are bytes.
fn rod_token_features() -> Vec<u8> {
    let mut body = vec![0; 44];
    put(&mut body, 12, &TOKEN_INACTIVITY_SECONDS.to_be_bytes());
    put(&mut body, 16, &TOKEN_INACTIVITY_SECONDS.to_be_bytes());
    put(&mut body, 20, &TOKEN_INACTIVITY_SECONDS.to_be_bytes());
    // One device type specific descriptor: disk.
    put(&mut body, 42, &48u16.to_be_bytes());
    let mut disk = vec![0; 48];
    put(&mut disk, 2, &44u16.to_be_bytes());
    put(&mut disk, 6, &1u16.to_be_bytes());
    put(&mut disk, 8, &MAX_TOKEN_BYTES.to_be_bytes());
    put(&mut disk, 16, &OPTIMAL_TOKEN_BYTES.to_be_bytes());
    body.extend(disk);
    body
}

fn supported_rod_types() -> Vec<u8> {
    let mut body = vec![0; 68];
    put(&mut body, 2, &64u16.to_be_bytes());
    put(&mut body, 4, &ROD_TYPE_CHANGE_VULNERABLE.to_be_bytes());
    // TOKEN_IN, TOKEN_OUT; ECPY_INT=0.
    body[8] = 0x03;
    // PREFERENCE INDICATOR.
    put(&mut body, 10, &1u16.to_be_bytes());
    body
}

fn general_copy_operations() -> Vec<u8> {
    let mut body = vec![0; 32];
    put(&mut body, 0, &u32::from(CONCURRENT_COPIES).to_be_bytes());
    put(&mut body, 4, &u32::from(CONCURRENT_COPIES).to_be_bytes());
    put(&mut body, 8, &MAX_SEGMENT_BYTES.to_be_bytes());
    // DATA SEGMENT GRANULARITY: 512 bytes, as a power of two.
    body[12] = 9;
    body
}

#[cfg(test)]
mod tests {
    use crate::testing::Bench;
    use crate::wire::{be16, be32, be64};

    /// Returns the descriptors of the page: their types and their bodies.
    fn descriptors(bench: &Bench) -> Vec<(u16, Vec<u8>)> {
        let data = bench.data(&bench.run(&[0x12, 1, 0x8F, 0x04, 0, 0], b""));
        let (mut at, mut found) = (4, Vec::new());
        while at < data.len() {
            let end = at + 4 + usize::from(be16(&data, at + 2));
            found.push((be16(&data, at), data[at + 4..end].to_vec()));
            at = end;
        }
        found
    }

    #[test]
    fn descriptors_follow_one_another_and_tokens_go_both_ways() {
        let found = descriptors(&Bench::new());
        let kinds: Vec<u16> = found.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds, [0x0000, 0x0001, 0x0004, 0x0008, 0x000C, 0x0106, 0x0108, 0x8001]);
        let types = &found[6].1;
        // ROD TYPE, then TOKEN_IN and TOKEN_OUT, then PREFERENCE.
        assert_eq!(be32(types, 4), super::ROD_TYPE_CHANGE_VULNERABLE);
        assert_eq!((types[8], be16(types, 10)), (0x03, 1));
    }

    #[test]
    fn the_limits_of_tokens_are_blocks_and_bytes() {
        for block in [512, 4096] {
            let bench = Bench::with(|config| config.logical_block_bytes = block);
            let found = descriptors(&bench);
            let (blocks, bytes) = (&found[0].1, &found[5].1[44..]);
            // The most, then the best for one command.
            for (in_blocks, in_bytes) in [(16, 8), (24, 16)] {
                let expected = be64(blocks, in_blocks) * u64::from(block);
                assert_eq!(be64(bytes, in_bytes), expected, "blocks of {block} bytes");
            }
        }
    }
}
