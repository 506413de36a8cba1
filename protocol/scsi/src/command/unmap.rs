//! UNMAP (SBC-4 §5.35).

use super::{Cx, Outcome, Reply};
use crate::disk::block_range::BlockRange;
use crate::limits::{MAX_UNMAP_BLOCKS, MAX_UNMAP_DESCRIPTORS};
use crate::sense::{Asc, Sense};
use crate::wire::{be16, be32, be64};

const HEADER_BYTES: usize = 8;
const DESCRIPTOR_BYTES: usize = 16;

pub(crate) async fn unmap(cx: &Cx<'_>) -> Outcome {
    let length = cx.cdb().be16(7);
    if length == 0 {
        return Ok(Reply::GOOD);
    }
    let list = cx.parameter_list(u32::from(length))?;
    if list.len() < HEADER_BYTES {
        return Err(Asc::PARAMETER_LIST_LENGTH.into());
    }
    let end = list.len().min(HEADER_BYTES + usize::from(be16(list, 2)));
    // SBC-4 §5.35.2: descriptors that the list cuts off, and an incomplete last one, are
    // ignored.
    let ranges: Vec<BlockRange> = list[HEADER_BYTES..end]
        .chunks_exact(DESCRIPTOR_BYTES)
        .map(|one| BlockRange { lba: be64(one, 0), blocks: u64::from(be32(one, 8)) })
        .collect();
    let total: u64 = ranges.iter().map(|range| range.blocks).sum();
    if ranges.len() as u64 > u64::from(MAX_UNMAP_DESCRIPTORS) {
        return Err(Sense::invalid_parameter(2).into());
    }
    if total > u64::from(MAX_UNMAP_BLOCKS) {
        return Err(Sense::invalid_parameter(16).into());
    }
    // Check all ranges first, so that either all are unmapped or none.
    for range in &ranges {
        cx.span(*range)?;
    }
    if total > 0 {
        cx.disk.store.admit_change().await.map_err(Cx::write_failed)?;
    }
    for range in ranges {
        let span = cx.span(range)?;
        let _shared = cx.disk.shared.ranges.share(range).await;
        cx.check_abort()?;
        cx.disk.blocks_change(range);
        cx.deallocate(span).await?;
    }
    Ok(Reply::GOOD)
}

#[cfg(test)]
mod tests {
    use crate::sense::{Asc, ScsiStatus};
    use crate::testing::Bench;

    fn list(ranges: &[(u64, u32)]) -> Vec<u8> {
        let bytes = u16::try_from(ranges.len() * 16).unwrap();
        let mut list = Vec::new();
        list.extend((bytes + 6).to_be_bytes());
        list.extend(bytes.to_be_bytes());
        list.extend([0; 4]);
        for (lba, blocks) in ranges {
            list.extend(lba.to_be_bytes());
            list.extend(blocks.to_be_bytes());
            list.extend([0; 4]);
        }
        list
    }

    fn cdb(bytes: usize) -> [u8; 10] {
        let [high, low] = u16::try_from(bytes).unwrap().to_be_bytes();
        [0x42, 0, 0, 0, 0, 0, 0, high, low, 0]
    }

    #[test]
    fn unmapped_blocks_read_as_zeros() {
        let bench = Bench::new();
        bench.fill(0, 32, 9);
        let list = list(&[(1, 1), (8, 16)]);
        assert_eq!(bench.run(&cdb(list.len()), &list).status, ScsiStatus::Good);
        assert_eq!(bench.content(0, 1), vec![9; 512]);
        assert_eq!(bench.content(1, 1), vec![0; 512]);
        assert_eq!(bench.content(8, 16), vec![0; 16 * 512]);
        assert!(!bench.store.is_mapped(8 * 512));
        assert_eq!(bench.content(24, 8), vec![9; 8 * 512]);
        assert_eq!(bench.store.changes(), 1, "for the rate it is one command");
    }

    #[test]
    fn nothing_happens_when_one_range_is_wrong() {
        let bench = Bench::new();
        bench.fill(0, 8, 9);
        let list = list(&[(0, 8), (bench.blocks(), 1)]);
        bench.refused(&cdb(list.len()), &list, Asc::LBA_OUT_OF_RANGE);
        assert_eq!(bench.content(0, 8), vec![9; 8 * 512]);
    }

    #[test]
    fn an_aborted_one_unmaps_no_further_range() {
        let bench = Bench::new();
        bench.fill(0, 32, 9);
        let list = list(&[(0, 8), (16, 8)]);
        let is_aborted = || bench.content(0, 1)[0] == 0;
        let response = bench.run_until(is_aborted, &cdb(list.len()), &list);
        assert_eq!(response.status, ScsiStatus::TaskAborted);
        assert_eq!(bench.content(0, 8), vec![0; 8 * 512]);
        assert_eq!(bench.content(16, 8), vec![9; 8 * 512]);
    }

    #[test]
    fn empty_ranges_are_fine_and_short_lists_are_not() {
        let bench = Bench::new();
        let empty = list(&[(bench.blocks(), 0)]);
        assert_eq!(bench.run(&cdb(empty.len()), &empty).status, ScsiStatus::Good);
        assert_eq!(bench.run(&cdb(0), b"").status, ScsiStatus::Good);
        bench.refused(&cdb(7), &[0; 7], Asc::PARAMETER_LIST_LENGTH);
        let long = list(&[(0, u32::MAX)]);
        bench.refused(&cdb(long.len()), &long, Asc::INVALID_FIELD_IN_PARAMETERS);
    }

    #[test]
    fn descriptors_behind_the_end_of_the_list_are_ignored() {
        let bench = Bench::new();
        bench.fill(0, 32, 9);
        let list = list(&[(0, 8), (16, 8)]);
        assert_eq!(bench.run(&cdb(24 + 8), &list[..24 + 8]).status, ScsiStatus::Good);
        assert_eq!(bench.content(0, 8), vec![0; 8 * 512]);
        assert_eq!(bench.content(8, 24), vec![9; 24 * 512]);
        assert_eq!(bench.run(&cdb(8), &list[..8]).status, ScsiStatus::Good);
    }

    #[test]
    fn a_thick_disk_has_no_unmap() {
        let bench = Bench::with(|config| config.thin = false);
        bench.refused(&cdb(0), b"", Asc::INVALID_OPCODE);
    }
}
