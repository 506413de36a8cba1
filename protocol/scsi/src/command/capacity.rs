//! READ CAPACITY (10) and (16) (SBC-4 §5.19, §5.20).

use super::{Cx, Outcome, Reply};
use crate::wire::put;

pub(crate) fn read_capacity_10(cx: &Cx<'_>) -> Outcome {
    let last = cx.capacity_blocks().saturating_sub(1);
    // SBC-4 §5.19.2: too large a capacity refers the host to READ CAPACITY
    // (16).
    let last = u32::try_from(last).unwrap_or(u32::MAX);
    let mut data = Vec::with_capacity(8);
    data.extend(last.to_be_bytes());
    data.extend(cx.disk.block_bytes().to_be_bytes());
    Ok(Reply::data(data, u32::MAX))
}

pub(crate) fn read_capacity_16(cx: &Cx<'_>) -> Outcome {
    let mut data = vec![0; 32];
    put(&mut data, 0, &cx.capacity_blocks().saturating_sub(1).to_be_bytes());
    put(&mut data, 8, &cx.disk.block_bytes().to_be_bytes());
    let thin = cx.disk.is_thin(&cx.geometry);
    let reads_zeros = thin && cx.geometry.discard_zeroes;
    put(
        &mut data,
        13,
        &[
            cx.disk.physical_exponent(&cx.geometry),
            (u8::from(thin) << 7) | (u8::from(reads_zeros) << 6),
        ],
    );
    Ok(Reply::data(data, cx.cdb().be32(10)))
}

#[cfg(test)]
mod tests {
    use crate::testing::Bench;
    use crate::wire::{be32, be64};

    fn cdb16(allocation: u8) -> [u8; 16] {
        let mut cdb = [0u8; 16];
        cdb[0] = 0x9E;
        cdb[1] = 0x10;
        cdb[13] = allocation;
        cdb
    }

    #[test]
    fn both_tell_the_last_block() {
        let bench = Bench::new();
        let short = bench.data(&bench.run(&[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], b""));
        assert_eq!(u64::from(be32(&short, 0)), bench.blocks() - 1);
        assert_eq!(be32(&short, 4), 512);
        let long = bench.data(&bench.run(&cdb16(32), b""));
        assert_eq!((be64(&long, 0), be32(&long, 8)), (bench.blocks() - 1, 512));
        // 4 KiB physical blocks; thin, and unmapped blocks read as zeros.
        assert_eq!((long[13], long[14]), (3, 0xC0));
    }

    #[test]
    fn the_allocation_length_cuts() {
        let bench = Bench::new();
        for allocation in 0..32 {
            let data = bench.data(&bench.run(&cdb16(allocation), b""));
            assert_eq!(data.len(), usize::from(allocation));
        }
    }
}
