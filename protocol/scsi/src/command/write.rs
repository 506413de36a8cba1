//! WRITE (6), (10), (12), (16) and WRITE ATOMIC (16) (SBC-4 §5.44 to §5.50).

use super::medium::Span;
use super::{Cx, Failure, Outcome, Reply};
use crate::limits::MAX_ATOMIC_BYTES;
use crate::sense::Sense;

/// Writes the whole blocks the initiator sent. When it sent fewer than the
/// CDB names, the transport reports the residual (SPC-4 §4.2.5.5 leaves the
/// rest of the range alone).
pub(crate) async fn write(cx: &Cx<'_>) -> Outcome {
    let range = cx.range();
    let span = cx.transfer_span(range)?;
    let _shared = cx.disk.ranges.share(range).await;
    store_data(cx, span, cx.row.length > 6 && cx.cdb().fua()).await?;
    Ok(Reply::GOOD)
}

/// The part of the span for which there is data goes to the store.
pub(crate) async fn store_data(cx: &Cx<'_>, span: Span, fua: bool) -> Result<Span, Failure> {
    let data = &cx.command.data_out;
    let whole = data.len() as u64 / cx.block_bytes() * cx.block_bytes();
    let written = Span { offset: span.offset, len: span.len.min(whole) };
    let data = data.slice(..written.size());
    cx.write_bytes(written.offset, data, cx.write_through(fua)).await?;
    Ok(written)
}

/// Nobody sees a part of the write. Whether it is also all or nothing over
/// a loss of power is up to the store.
pub(crate) async fn write_atomic(cx: &Cx<'_>) -> Outcome {
    let range = cx.range();
    let span = cx.span(range)?;
    if span.len > MAX_ATOMIC_BYTES {
        return Err(Sense::invalid_cdb(12, None).into());
    }
    let (alignment, granularity) = cx.disk.atomic_unit_blocks(&cx.geometry);
    if !range.lba.is_multiple_of(u64::from(alignment.max(1))) {
        return Err(Sense::invalid_cdb(2, None).into());
    }
    if !range.blocks.is_multiple_of(u64::from(granularity.max(1))) {
        return Err(Sense::invalid_cdb(12, None).into());
    }
    let data = cx.exact_data_out(span.len)?.clone();
    let _alone = cx.disk.ranges.exclude(range).await;
    cx.write_bytes(span.offset, data, cx.write_through(cx.cdb().fua())).await?;
    Ok(Reply::GOOD)
}

#[cfg(test)]
mod tests {
    use crate::sense::{Asc, ScsiStatus, SenseKey};
    use crate::testing::Bench;
    use zgate_store::StoreError;

    const WRITE_TWO: [u8; 10] = [0x2A, 0, 0, 0, 0, 4, 0, 0, 2, 0];

    #[test]
    fn fua_and_a_disabled_cache_write_through() {
        let bench = Bench::new();
        bench.run(&WRITE_TWO, &[1; 1024]);
        assert_eq!(bench.store.stable_writes(), 0);
        let mut cdb = WRITE_TWO;
        cdb[1] = 0x08;
        bench.run(&cdb, &[2; 1024]);
        assert_eq!(bench.store.stable_writes(), 1);
        assert_eq!(bench.content(4, 2), vec![2; 1024]);
    }

    #[test]
    fn too_little_data_writes_whole_blocks_only() {
        let bench = Bench::new();
        bench.fill(4, 2, 9);
        assert_eq!(bench.run(&WRITE_TWO, &[1; 700]).status, ScsiStatus::Good);
        assert_eq!(bench.content(4, 1), vec![1; 512]);
        assert_eq!(bench.content(5, 1), vec![9; 512]);
    }

    #[test]
    fn a_full_pool_is_data_protect() {
        let bench = Bench::new();
        bench.store.fail_writes(Some(StoreError::NoSpace));
        let sense = bench.run(&WRITE_TWO, &[1; 1024]).sense.unwrap();
        assert_eq!((sense.key, sense.asc.0), (SenseKey::DataProtect, 0x2707));
    }

    #[test]
    fn an_atomic_write_takes_exactly_its_data() {
        let bench = Bench::new();
        let mut cdb = [0u8; 16];
        cdb[0] = 0x9C;
        cdb[13] = 8;
        bench.refused(&cdb, &[1; 512], Asc::INVALID_FIELD_IN_CDB);
        assert_eq!(bench.run(&cdb, &[1; 4096]).status, ScsiStatus::Good);
        assert_eq!(bench.content(0, 8), vec![1; 4096]);
        // In part of a physical block it could tear.
        cdb[9] = 1;
        bench.refused(&cdb, &[1; 4096], Asc::INVALID_FIELD_IN_CDB);
        (cdb[9], cdb[13]) = (0, 7);
        bench.refused(&cdb, &[1; 3584], Asc::INVALID_FIELD_IN_CDB);
    }

    #[test]
    fn a_read_only_disk_refuses() {
        let bench = Bench::with(|config| config.read_only = true);
        let sense = bench.run(&WRITE_TWO, &[1; 1024]).sense.unwrap();
        assert_eq!((sense.key, sense.asc), (SenseKey::DataProtect, Asc::WRITE_PROTECTED));
    }
}
