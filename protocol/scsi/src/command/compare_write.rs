//! COMPARE AND WRITE (SBC-4 §5.4): no other command writes to the range between
//! the comparison and the write.

use super::medium::{first_difference, miscompare};
use super::{Cx, Outcome, Reply};
use crate::limits::MAX_COMPARE_AND_WRITE_BLOCKS;
use crate::sense::Sense;

pub(crate) async fn compare_and_write(cx: &Cx<'_>) -> Outcome {
    let range = cx.range();
    let span = cx.span(range)?;
    // No blocks, but data: the initiator probably meant 256 blocks, which the
    // field cannot hold.
    let does_not_fit = range.blocks == 0 && cx.command.data_out_offered_bytes > 0;
    if does_not_fit || range.blocks > u64::from(MAX_COMPARE_AND_WRITE_BLOCKS) {
        return Err(Sense::invalid_cdb(13, None).into());
    }
    let data = cx.exact_data_out(2 * span.len)?;
    if span.len == 0 {
        return Ok(Reply::GOOD);
    }
    let expected = data.slice(..span.size());
    let replacement = data.slice(span.size()..);
    let _alone = cx.disk.shared.ranges.exclude(range).await;
    let stored = cx.read_bytes(span).await?;
    if let Some(at) = first_difference(&stored, &expected) {
        return Err(miscompare(at));
    }
    cx.write_bytes(span.offset, replacement, cx.write_through(cx.cdb().fua())).await?;
    Ok(Reply::GOOD)
}

#[cfg(test)]
mod tests {
    use crate::sense::{Asc, ScsiStatus, SenseKey};
    use crate::testing::Bench;

    fn cdb(blocks: u8) -> [u8; 16] {
        let mut cdb = [0u8; 16];
        cdb[0] = 0x89;
        cdb[13] = blocks;
        cdb
    }

    #[test]
    fn writes_only_over_what_was_expected() {
        let bench = Bench::new();
        bench.fill(0, 2, 1);
        let mut data = vec![1; 1024];
        data.extend([2; 1024]);
        assert_eq!(bench.run(&cdb(2), &data).status, ScsiStatus::Good);
        assert_eq!(bench.content(0, 2), vec![2; 1024]);
        let sense = bench.run(&cdb(2), &data).sense.unwrap();
        assert_eq!((sense.key, sense.information), (SenseKey::Miscompare, Some(0)));
        assert_eq!(bench.content(0, 2), vec![2; 1024]);
    }

    #[test]
    fn the_data_must_be_two_buffers() {
        let bench = Bench::new();
        bench.refused(&cdb(0), &[0; 2048], Asc::INVALID_FIELD_IN_CDB);
        bench.refused(&cdb(1), &[0; 2048], Asc::INVALID_INFORMATION_UNIT);
        bench.refused(&cdb(3), &[0; 2048], Asc::INVALID_INFORMATION_UNIT);
    }

    #[test]
    fn two_at_once_do_not_both_win() {
        let bench = Bench::new();
        let mut first = vec![0; 512];
        first.extend([1; 512]);
        let mut second = vec![0; 512];
        second.extend([2; 512]);
        let (first, second) = bench.run_both((&cdb(1), &first), (&cdb(1), &second));
        let good = [&first, &second].iter().filter(|r| r.status == ScsiStatus::Good).count();
        assert_eq!(good, 1);
    }

    #[test]
    fn nor_do_they_where_the_unit_is_opened_again_in_between() {
        let bench = Bench::new();
        let after = bench.reopened();
        after.settle(&after.nexus);
        bench.store.pause_calls(true);
        let data = |byte: u8| [[0; 512], [byte; 512]].concat();
        let first = bench.disk.execute(bench.command(&bench.nexus, &cdb(1), &data(1)));
        let second = after.disk.execute(after.command(&after.nexus, &cdb(1), &data(2)));
        let (first, second) = bench.block_on(futures_util::future::join(first, second));
        assert_eq!(first.status, ScsiStatus::Good);
        assert_eq!(second.sense.unwrap().key, SenseKey::Miscompare);
    }
}
