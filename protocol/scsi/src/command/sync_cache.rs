//! SYNCHRONIZE CACHE (10) and (16) (SBC-4 §5.33).

use super::{Cx, Outcome, Reply};

/// Brings all written data to stable storage, whatever range was named. IMMED=1
/// is also completed only then: an earlier GOOD could be false.
pub(crate) async fn synchronize_cache(cx: &Cx<'_>) -> Outcome {
    cx.span(cx.range())?;
    cx.sync().await?;
    Ok(Reply::GOOD)
}

#[cfg(test)]
mod tests {
    use crate::sense::{Asc, ScsiStatus, SenseKey};
    use crate::testing::Bench;
    use zgate_store::StoreError;

    #[test]
    fn the_store_is_synced() {
        let bench = Bench::new();
        assert_eq!(bench.run(&[0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0], b"").status, ScsiStatus::Good);
        assert_eq!(bench.store.syncs(), 1);
        bench.refused(&[0x35, 0, 0xFF, 0, 0, 0, 0, 0, 1, 0], b"", Asc::LBA_OUT_OF_RANGE);
        bench.store.fail_writes(Some(StoreError::Io));
        let sense = bench.run(&[0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0], b"").sense.unwrap();
        assert_eq!(sense.key, SenseKey::MediumError);
    }
}
