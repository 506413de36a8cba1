//! WRITE (6), (10), (12), (16) and WRITE ATOMIC (16) (SBC-4 §5.44 to §5.50).

use super::medium::Span;
use super::{Cx, Failure, Outcome, Reply};
use crate::limits::MAX_ATOMIC_BYTES;
use crate::sense::Sense;

/// Writes the blocks that the initiator sent. If it sent fewer than the CDB
/// names, the transport reports the residual, and the rest of the range is
/// unchanged (SPC-4 §4.2.5.5).
pub(crate) async fn write(cx: &Cx<'_>) -> Outcome {
    let range = cx.range();
    let span = cx.transfer_span(range)?;
    let _shared = cx.disk.shared.ranges.share(range).await;
    store_data(cx, span, cx.row.length > 6 && cx.cdb().fua()).await?;
    Ok(Reply::GOOD)
}

/// Writes the part of the span for which there is data.
pub(crate) async fn store_data(cx: &Cx<'_>, span: Span, fua: bool) -> Result<Span, Failure> {
    let written = cx.offered_part(span)?;
    let data = cx.command.data_out.slice(..written.size());
    cx.write_bytes(written.offset, data, cx.write_through(fua)).await?;
    Ok(written)
}

/// Performs WRITE ATOMIC: no other command sees a part of the write. Atomicity
/// over a power loss depends on the store.
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
    let _alone = cx.disk.shared.ranges.exclude(range).await;
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
    fn fewer_whole_blocks_than_named_are_written() {
        let bench = Bench::new();
        bench.fill(4, 2, 9);
        assert_eq!(bench.run(&WRITE_TWO, &[1; 512]).status, ScsiStatus::Good);
        assert_eq!(bench.content(4, 1), vec![1; 512]);
        assert_eq!(bench.content(5, 1), vec![9; 512]);
    }

    /// Sends every command with data-out an amount that is not whole blocks:
    /// none returns GOOD, and none writes.
    #[test]
    fn data_that_does_not_fit_is_refused() {
        let mut ten = [0u8; 10];
        ten[8] = 2;
        let mut twelve = [0u8; 12];
        twelve[9] = 2;
        let mut sixteen = [0u8; 16];
        sixteen[13] = 2;
        let with = |cdb: &[u8], opcode: u8| [&[opcode], &cdb[1..]].concat();
        let mut commands = vec![vec![0x0A, 0, 0, 0, 2, 0]];
        commands.extend([0x2A, 0x2E, 0x41].map(|opcode| with(&ten, opcode)));
        commands.extend([0xAA, 0xAE].map(|opcode| with(&twelve, opcode)));
        let long = [0x8A, 0x8E, 0x89, 0x8B, 0x93];
        commands.extend(long.map(|opcode| with(&sixteen, opcode)));
        // Verified by comparison, so that the data is relevant.
        for opcode in [0x2F, 0xAF, 0x8F] {
            let cdb = match opcode {
                0x2F => with(&ten, opcode),
                0xAF => with(&twelve, opcode),
                _ => with(&sixteen, opcode),
            };
            commands.push([&[cdb[0], 0x02], &cdb[2..]].concat());
        }
        let mut atomic = [0u8; 16];
        (atomic[0], atomic[13]) = (0x9C, 8);
        commands.push(atomic.to_vec());
        let bench = Bench::new();
        bench.fill(0, 16, 9);
        for cdb in commands {
            for bytes in [1, 200, 511, 513, 700, 1023] {
                bench.refused(&cdb, &vec![1; bytes], Asc::INVALID_INFORMATION_UNIT);
            }
        }
        assert_eq!(bench.content(0, 16), vec![9; 16 * 512]);
    }

    /// Required by libiscsi's suite: the residual alone reports that nothing
    /// was sent.
    #[test]
    fn no_data_at_all_writes_nothing() {
        let bench = Bench::new();
        bench.fill(4, 2, 9);
        assert_eq!(bench.run(&WRITE_TWO, b"").status, ScsiStatus::Good);
        assert_eq!(bench.content(4, 2), vec![9; 1024]);
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
        bench.refused(&cdb, &[1; 512], Asc::INVALID_INFORMATION_UNIT);
        assert_eq!(bench.run(&cdb, &[1; 4096]).status, ScsiStatus::Good);
        assert_eq!(bench.content(0, 8), vec![1; 4096]);
        // A partial physical block could tear.
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
