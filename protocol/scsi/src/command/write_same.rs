//! WRITE SAME (10) and (16) (SBC-4 §5.54, §5.55). WSNZ=1: a length of zero
//! is refused.

use super::{Cx, Outcome, Reply};
use crate::limits::MAX_WRITE_SAME_BYTES;
use crate::sense::Sense;

pub(crate) async fn write_same(cx: &Cx<'_>) -> Outcome {
    let range = cx.range();
    let span = cx.span(range)?;
    if span.len == 0 || span.len > MAX_WRITE_SAME_BYTES {
        return Err(cx.invalid_length());
    }
    let unmap = cx.cdb().byte(1) & 0x08 != 0;
    if unmap && !cx.disk.is_thin(&cx.geometry) {
        return Err(Sense::invalid_cdb(1, Some(3)).into());
    }
    let no_data = cx.row.length == 16 && cx.cdb().byte(1) & 0x01 != 0;
    let pattern = match no_data {
        true => None,
        false => Some(cx.exact_data_out(cx.block_bytes())?.clone()),
    };
    // SBC-4 §4.7.3.4.4: blocks may only be unmapped if they then read as the
    // data to be written.
    let pattern = pattern.filter(|block| block.iter().any(|&byte| byte != 0));
    if pattern.is_none() {
        cx.disk.store.admit_change().await.map_err(Cx::write_failed)?;
    }
    let _shared = cx.disk.shared.ranges.share(range).await;
    match pattern {
        Some(block) => cx.write_pattern(span, &block).await?,
        None if unmap && cx.geometry.discard_zeroes => cx.deallocate(span).await?,
        None => cx
            .disk
            .store
            .write_zeroes(span.offset, span.len, false)
            .await
            .map_err(Cx::write_failed)?,
    }
    if cx.write_through(false) {
        cx.sync().await?;
    }
    Ok(Reply::GOOD)
}

#[cfg(test)]
mod tests {
    use crate::limits::STRIDE_BYTES;
    use crate::sense::{Asc, ScsiStatus};
    use crate::testing::Bench;

    fn cdb16(flags: u8, lba: u8, blocks: u8) -> [u8; 16] {
        let mut cdb = [0u8; 16];
        cdb[0] = 0x93;
        cdb[1] = flags;
        cdb[9] = lba;
        cdb[13] = blocks;
        cdb
    }

    #[test]
    fn one_block_fills_many() {
        let bench = Bench::new();
        let mut block = [1; 512];
        block[511] = 2;
        assert_eq!(bench.run(&cdb16(0, 3, 100), &block).status, ScsiStatus::Good);
        let expected: Vec<u8> = block.repeat(100);
        assert_eq!(bench.content(3, 100), expected);
        assert_eq!(bench.content(2, 1), vec![0; 512]);
    }

    #[test]
    fn an_aborted_one_writes_no_further_stride() {
        let bench = Bench::new();
        let mut cdb = cdb16(0, 0, 0);
        cdb[10..14].copy_from_slice(&u32::try_from(bench.blocks()).unwrap().to_be_bytes());
        let last = bench.blocks() - 1;
        assert!(bench.blocks() * 512 > STRIDE_BYTES);
        let is_aborted = || bench.content(0, 1)[0] == 7;
        let response = bench.run_until(is_aborted, &cdb, &[7; 512]);
        assert_eq!(response.status, ScsiStatus::TaskAborted);
        assert_eq!(bench.content(last, 1), vec![0; 512]);
        assert_eq!(bench.run(&cdb, &[7; 512]).status, ScsiStatus::Good);
        assert_eq!(bench.content(last, 1), vec![7; 512]);
    }

    #[test]
    fn unmapping_needs_zeros() {
        let bench = Bench::new();
        bench.fill(0, 64, 9);
        assert_eq!(bench.run(&cdb16(0x08, 0, 64), &[0; 512]).status, ScsiStatus::Good);
        assert_eq!(bench.content(0, 64), vec![0; 64 * 512]);
        assert!(!bench.store.is_mapped(0));
        assert_eq!(bench.store.changes(), 1);
        // Other data is written, regardless of UNMAP.
        assert_eq!(bench.run(&cdb16(0x08, 0, 8), &[5; 512]).status, ScsiStatus::Good);
        assert_eq!(bench.content(0, 8), vec![5; 8 * 512]);
    }

    #[test]
    fn no_data_out_means_zeros() {
        let bench = Bench::new();
        bench.fill(0, 8, 9);
        assert_eq!(bench.run(&cdb16(0x01, 0, 8), b"").status, ScsiStatus::Good);
        assert_eq!(bench.content(0, 8), vec![0; 8 * 512]);
    }

    #[test]
    fn what_cannot_be_done_is_refused() {
        let bench = Bench::new();
        bench.refused(&cdb16(0, 0, 0), &[0; 512], Asc::INVALID_FIELD_IN_CDB);
        bench.refused(&cdb16(0x10, 0, 1), &[0; 512], Asc::INVALID_FIELD_IN_CDB);
        bench.refused(&cdb16(0, 0, 1), &[0; 256], Asc::INVALID_INFORMATION_UNIT);
        bench.refused(&cdb16(0, 0, 1), &[0; 1024], Asc::INVALID_INFORMATION_UNIT);
        let thick = Bench::with(|config| config.thin = false);
        thick.refused(&cdb16(0x08, 0, 1), &[0; 512], Asc::INVALID_FIELD_IN_CDB);
    }
}
