//! VERIFY and WRITE AND VERIFY (SBC-4 §5.37 to §5.43 and §5.51 to §5.53).

use super::medium::{Span, first_difference, miscompare};
use super::write::store_data;
use super::{Cx, Failure, Outcome, Reply};
use crate::limits::STRIDE_BYTES;
use crate::sense::Sense;

/// BYTCHK (SBC-4 table 127).
#[derive(Clone, Copy, PartialEq, Eq)]
enum ByteCheck {
    /// Only checks whether the medium can be read.
    Medium,
    /// Compares with the data-out buffer.
    Compare,
    /// Compares every block with the one block sent.
    CompareOne,
}

fn byte_check(cx: &Cx<'_>) -> Result<ByteCheck, Failure> {
    match (cx.cdb().byte(1) >> 1) & 0x03 {
        0b00 => Ok(ByteCheck::Medium),
        0b01 => Ok(ByteCheck::Compare),
        0b11 => Ok(ByteCheck::CompareOne),
        _ => Err(Sense::invalid_cdb(1, Some(2)).into()),
    }
}

pub(crate) async fn verify(cx: &Cx<'_>) -> Outcome {
    let check = byte_check(cx)?;
    let range = cx.range();
    // MAXIMUM TRANSFER LENGTH holds without a transfer, too (SBC-4 §5.36).
    let span = cx.transfer_span(range)?;
    match check {
        ByteCheck::Medium => read_through(cx, span).await?,
        ByteCheck::Compare => {
            let _shared = cx.disk.shared.ranges.share(range).await;
            // Compare the data sent; the transport reports the residual.
            let sent = cx.offered_part(span)?;
            compare(cx, sent, &cx.command.data_out).await?;
        }
        ByteCheck::CompareOne => {
            if span.len > 0 {
                let block = cx.exact_data_out(cx.block_bytes())?;
                let _shared = cx.disk.shared.ranges.share(range).await;
                compare_repeated(cx, span, block).await?;
            }
        }
    }
    Ok(Reply::GOOD)
}

/// Checks that the medium can be read.
async fn read_through(cx: &Cx<'_>, span: Span) -> Result<(), Failure> {
    for piece in span.strides(STRIDE_BYTES) {
        cx.check_abort()?;
        cx.read_bytes(piece).await?;
    }
    Ok(())
}

/// Compares the medium with the front of `data`.
async fn compare(cx: &Cx<'_>, span: Span, data: &[u8]) -> Result<(), Failure> {
    let mut rest = data;
    for piece in span.strides(STRIDE_BYTES) {
        cx.check_abort()?;
        let stored = cx.read_bytes(piece).await?;
        let (expected, tail) = rest.split_at_checked(stored.len()).unwrap_or((rest, &[]));
        rest = tail;
        if let Some(at) = first_difference(&stored, expected) {
            return Err(miscompare(piece.offset - span.offset + at));
        }
    }
    Ok(())
}

async fn compare_repeated(cx: &Cx<'_>, span: Span, block: &[u8]) -> Result<(), Failure> {
    for piece in span.strides(STRIDE_BYTES) {
        cx.check_abort()?;
        let stored = cx.read_bytes(piece).await?;
        for (number, stored) in stored.chunks(block.len()).enumerate() {
            if let Some(at) = first_difference(stored, block) {
                let before = piece.offset - span.offset + (number * block.len()) as u64;
                return Err(miscompare(before + at));
            }
        }
    }
    Ok(())
}

/// Writes to the medium, then reads it back; with BYTCHK=01b also compares.
pub(crate) async fn write_and_verify(cx: &Cx<'_>) -> Outcome {
    let check = byte_check(cx)?;
    if check == ByteCheck::CompareOne {
        return Err(Sense::invalid_cdb(1, Some(2)).into());
    }
    let range = cx.range();
    let span = cx.transfer_span(range)?;
    let _shared = cx.disk.shared.ranges.share(range).await;
    // The medium is verified, not the cache (SBC-4 §5.51).
    let written = store_data(cx, span, true).await?;
    match check {
        ByteCheck::Compare => compare(cx, written, &cx.command.data_out).await?,
        _ => read_through(cx, written).await?,
    }
    Ok(Reply::GOOD)
}

#[cfg(test)]
mod tests {
    use super::{Cx, Failure, verify};
    use crate::command::table::{Lookup, lookup};
    use crate::disk::block_range::BlockRange;
    use crate::limits::MAX_TRANSFER_BYTES;
    use crate::sense::{Asc, ScsiStatus, Sense, SenseKey};
    use crate::testing::Bench;
    use crate::transport::Alone;
    use std::pin::pin;
    use std::task::{Context, Waker};

    #[test]
    fn differences_are_miscompares() {
        let bench = Bench::new();
        bench.fill(0, 2, 7);
        let cdb = [0x2F, 0x02, 0, 0, 0, 0, 0, 0, 2, 0];
        let mut data = vec![7; 1024];
        assert_eq!(bench.run(&cdb, &data).status, ScsiStatus::Good);
        data[600] = 8;
        let sense = bench.run(&cdb, &data).sense.unwrap();
        assert_eq!((sense.key, sense.asc), (SenseKey::Miscompare, Asc::MISCOMPARE));
        assert_eq!(sense.information, Some(600));
        // Without BYTCHK the data is irrelevant.
        let cdb = [0x2F, 0, 0, 0, 0, 0, 0, 0, 2, 0];
        assert_eq!(bench.run(&cdb, &data).status, ScsiStatus::Good);
    }

    #[test]
    fn one_block_is_compared_with_all() {
        let bench = Bench::new();
        bench.fill(0, 4, 7);
        let cdb = [0x2F, 0x06, 0, 0, 0, 0, 0, 0, 4, 0];
        assert_eq!(bench.run(&cdb, &[7; 512]).status, ScsiStatus::Good);
        bench.fill(3, 1, 8);
        assert_eq!(bench.run(&cdb, &[7; 512]).sense.unwrap().information, Some(3 * 512));
        bench.refused(&[0x2F, 0x04, 0, 0, 0, 0, 0, 0, 1, 0], b"", Asc::INVALID_FIELD_IN_CDB);
    }

    #[test]
    fn a_comparison_waits_for_an_atomic_write() {
        let bench = Bench::new();
        bench.fill(0, 4, 7);
        // BYTCHK, and the blocks that it wants.
        for (check, blocks) in [(0x02, 4), (0x06, 1)] {
            let range = BlockRange { lba: 3, blocks: 1 };
            let atomic = bench.block_on(bench.disk.shared.ranges.exclude(range));
            let cdb = [0x2F, check, 0, 0, 0, 0, 0, 0, 4, 0];
            let command = bench.command(&bench.nexus, &cdb, &vec![7; blocks * 512]);
            let mut comparison = pin!(bench.disk.execute(command));
            let mut context = Context::from_waker(Waker::noop());
            assert!(comparison.as_mut().poll(&mut context).is_pending(), "{check:02x}");
            drop(atomic);
            assert_eq!(bench.block_on(comparison).status, ScsiStatus::Good, "{check:02x}");
        }
    }

    #[test]
    fn no_verification_is_longer_than_a_transfer() {
        let bench = Bench::new();
        let blocks = u32::try_from(MAX_TRANSFER_BYTES / 512).unwrap() + 1;
        // The disk of the bench is smaller than that.
        let mut geometry = bench.disk.store().geometry();
        geometry.capacity_bytes = 2 * MAX_TRANSFER_BYTES;
        for check in [0x00, 0x02, 0x06] {
            let mut cdb = [0x8F, check, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            cdb[10..14].copy_from_slice(&blocks.to_be_bytes());
            let command = bench.command(&bench.nexus, &cdb, b"");
            let Lookup::Row(row) = lookup(&command.cdb) else { panic!("VERIFY (16) is known") };
            let (disk, luns, task) = (&bench.disk, None, &Alone);
            let cx = Cx { disk, luns, command: &command, row, geometry, task };
            let refused = bench.block_on(verify(&cx)).unwrap_err();
            assert_eq!(refused, Failure::Check(Sense::invalid_cdb(10, None)), "{check:02x}");
        }
    }

    #[test]
    fn write_and_verify_reaches_the_medium() {
        let bench = Bench::new();
        let cdb = [0x2E, 0x02, 0, 0, 0, 0, 0, 0, 1, 0];
        assert_eq!(bench.run(&cdb, &[3; 512]).status, ScsiStatus::Good);
        assert_eq!(bench.store.stable_writes(), 1);
        assert_eq!(bench.content(0, 1), vec![3; 512]);
    }
}
