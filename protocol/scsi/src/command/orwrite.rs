//! ORWRITE (16) (SBC-4 §5.13): sets bits in one atomic read-modify-write.

use super::{Cx, Outcome, Reply};
use bytes::Bytes;

pub(crate) async fn orwrite(cx: &Cx<'_>) -> Outcome {
    let range = cx.range();
    let span = cx.transfer_span(range)?;
    let data = cx.exact_data_out(span.len)?;
    if span.len == 0 {
        return Ok(Reply::GOOD);
    }
    let _alone = cx.disk.shared.ranges.exclude(range).await;
    let stored = cx.read_bytes(span).await?;
    let merged: Vec<u8> = stored.iter().zip(data).map(|(old, new)| old | new).collect();
    cx.write_bytes(span.offset, Bytes::from(merged), cx.write_through(cx.cdb().fua())).await?;
    Ok(Reply::GOOD)
}

#[cfg(test)]
mod tests {
    use crate::sense::{Asc, ScsiStatus};
    use crate::testing::Bench;

    #[test]
    fn bits_are_added() {
        let bench = Bench::new();
        bench.fill(0, 1, 0xA0);
        let mut cdb = [0u8; 16];
        cdb[0] = 0x8B;
        cdb[13] = 1;
        assert_eq!(bench.run(&cdb, &[0x0F; 512]).status, ScsiStatus::Good);
        assert_eq!(bench.content(0, 1), vec![0xAF; 512]);
        bench.refused(&cdb, &[0x0F; 100], Asc::INVALID_INFORMATION_UNIT);
        cdb[13] = 0;
        assert_eq!(bench.run(&cdb, b"").status, ScsiStatus::Good);
    }
}
