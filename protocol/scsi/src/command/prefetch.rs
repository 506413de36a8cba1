//! PRE-FETCH (10) and (16) (SBC-4 §5.15).

use super::{Cx, Outcome, Reply};
use crate::disk::block_range::BlockRange;

/// Passes a hint to the store. Returns GOOD, because CONDITION MET would claim
/// that all blocks fit into the cache.
pub(crate) async fn prefetch(cx: &Cx<'_>) -> Outcome {
    let mut range = cx.range();
    if range.blocks == 0 {
        // SBC-4 §5.15.1: until the end of the medium.
        let rest = cx.capacity_blocks().saturating_sub(range.lba);
        cx.span(range)?;
        range = BlockRange { blocks: rest, ..range };
    }
    let span = cx.span(range)?;
    if span.len > 0 {
        cx.disk.store.prefetch(span.offset, span.len).await.map_err(Cx::read_failed)?;
    }
    Ok(Reply::GOOD)
}

#[cfg(test)]
mod tests {
    use crate::sense::{Asc, ScsiStatus};
    use crate::testing::Bench;

    #[test]
    fn ranges_are_checked() {
        let bench = Bench::new();
        let good = bench.run(&[0x34, 0x02, 0, 0, 0, 0, 0x03, 0, 8, 0], b"");
        assert_eq!(good.status, ScsiStatus::Good);
        let rest = bench.run(&[0x34, 0, 0, 0, 0, 1, 0, 0, 0, 0], b"");
        assert_eq!(rest.status, ScsiStatus::Good);
        bench.refused(&[0x34, 0, 0xFF, 0, 0, 0, 0, 0, 0, 0], b"", Asc::LBA_OUT_OF_RANGE);
    }
}
