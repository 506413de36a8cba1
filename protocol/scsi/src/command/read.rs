//! READ (6), (10), (12) and (16) (SBC-3 §5.9 to §5.12).

use super::{Cx, Outcome, Reply};

/// Reads blocks; the store's payload is passed on without a copy.
pub(crate) async fn read(cx: &Cx<'_>) -> Outcome {
    let range = cx.range();
    let span = cx.transfer_span(range)?;
    if span.len == 0 {
        return Ok(Reply::GOOD);
    }
    let fua = cx.row.length > 6 && cx.cdb().fua();
    if fua && cx.disk.state().mode.write_cache() {
        // SBC-3 §4.15: the data read must be on the medium.
        cx.sync_aside().await?;
    }
    let _shared = cx.disk.shared.ranges.share(range).await;
    let store = &cx.disk.store;
    let read = match cx.task.takes_spans() {
        true => store.read_to_send(span.offset, span.size()),
        false => store.read(span.offset, span.size()),
    };
    let payload = read.await.map_err(Cx::read_failed)?;
    Ok(Reply::payload(payload))
}

#[cfg(test)]
mod tests {
    use crate::sense::{Asc, ScsiStatus};
    use crate::testing::Bench;

    #[test]
    fn reads_what_was_written() {
        let bench = Bench::new();
        bench.fill(0, 4, 0xA5);
        let response = bench.run(&[0x28, 0, 0, 0, 0, 0, 0, 0, 4, 0], b"");
        assert_eq!(response.status, ScsiStatus::Good);
        assert_eq!(bench.data(&response), vec![0xA5; 4 * 512]);
    }

    #[test]
    fn the_end_of_the_medium_is_a_border() {
        let bench = Bench::new();
        let last = u32::try_from(bench.blocks() - 1).unwrap().to_be_bytes();
        let mut cdb = [0x28, 0, last[0], last[1], last[2], last[3], 0, 0, 1, 0];
        assert_eq!(bench.run(&cdb, b"").status, ScsiStatus::Good);
        cdb[8] = 2;
        bench.refused(&cdb, b"", Asc::LBA_OUT_OF_RANGE);
        // Nothing to read, but beyond the capacity.
        bench.refused(&[0x28, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0], b"", Asc::LBA_OUT_OF_RANGE);
    }

    #[test]
    fn protection_information_is_refused() {
        let bench = Bench::new();
        bench.refused(&[0x28, 0x20, 0, 0, 0, 0, 0, 0, 1, 0], b"", Asc::INVALID_FIELD_IN_CDB);
    }

    #[test]
    fn blocks_of_4096_bytes_are_counted_as_such() {
        let bench = Bench::with(|config| config.logical_block_bytes = 4096);
        bench.fill(8, 8, 3);
        let response = bench.run(&[0x28, 0, 0, 0, 0, 1, 0, 0, 1, 0], b"");
        assert_eq!(bench.data(&response), vec![3; 4096]);
        let capacity = bench.data(&bench.run(&[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], b""));
        assert_eq!(capacity, [0, 0, 1, 0xFF, 0, 0, 0x10, 0]);
        let write = [0x2A, 0, 0, 0, 0, 2, 0, 0, 1, 0];
        assert_eq!(bench.run(&write, &[4; 4096]).status, ScsiStatus::Good);
        assert_eq!(bench.content(16, 8), vec![4; 4096]);
    }

    #[test]
    fn a_read_with_fua_empties_the_cache_first() {
        let bench = Bench::new();
        bench.run(&[0x28, 0x08, 0, 0, 0, 0, 0, 0, 1, 0], b"");
        assert_eq!(bench.store.syncs(), 1);
    }
}
