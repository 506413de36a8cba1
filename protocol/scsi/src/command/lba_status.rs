//! GET LBA STATUS (SBC-4 §5.6), from the extents of the store.

use super::medium::Span;
use super::{Cx, Failure, Outcome, Reply};
use crate::disk::block_range::BlockRange;
use crate::limits::MAX_LBA_STATUS_DESCRIPTORS;
use crate::sense::{Asc, Sense};
use zgate_store::block_store::{Extent, ExtentKind};

const DESCRIPTOR_BYTES: usize = 16;
const HEADER_BYTES: usize = 8;

/// A run of blocks in one provisioning status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Status {
    range: BlockRange,
    deallocated: bool,
}

pub(crate) async fn get_lba_status(cx: &Cx<'_>) -> Outcome {
    let lba = cx.cdb().be64(2);
    let allocation = cx.cdb().be32(10);
    if lba >= cx.capacity_blocks() {
        return Err(Sense::illegal(Asc::LBA_OUT_OF_RANGE).with_information(lba).into());
    }
    let room = usize::try_from(allocation).unwrap_or(usize::MAX).saturating_sub(HEADER_BYTES);
    let wanted = (room / DESCRIPTOR_BYTES).clamp(1, MAX_LBA_STATUS_DESCRIPTORS);
    let statuses = statuses(cx, lba, wanted).await?;
    let bytes = statuses.len() * DESCRIPTOR_BYTES + 4;
    let mut data = Vec::with_capacity(bytes + 4);
    data.extend(u32::try_from(bytes).unwrap_or(u32::MAX).to_be_bytes());
    data.extend([0; 4]);
    for status in statuses {
        data.extend(status.range.lba.to_be_bytes());
        data.extend(u32::try_from(status.range.blocks).unwrap_or(u32::MAX).to_be_bytes());
        data.extend([u8::from(status.deallocated), 0, 0, 0]);
    }
    Ok(Reply::data(data, allocation))
}

async fn statuses(cx: &Cx<'_>, lba: u64, wanted: usize) -> Result<Vec<Status>, Failure> {
    let rest = BlockRange { lba, blocks: cx.capacity_blocks() - lba };
    if !cx.disk.is_thin(&cx.geometry) {
        let mapped = Status { range: rest, deallocated: false };
        return Ok(split(vec![mapped], wanted));
    }
    let span = cx.span(rest)?;
    // Neighbouring extents may merge, so request more than needed.
    let asked = (wanted * 2).min(2 * MAX_LBA_STATUS_DESCRIPTORS);
    let extents =
        cx.disk.store.extents(span.offset, span.len, asked).await.map_err(Cx::read_failed)?;
    let statuses = in_blocks(&extents, span, cx.block_bytes());
    Ok(split(statuses, wanted))
}

/// Converts extents to runs of whole blocks. A block that is stored in part is
/// mapped.
fn in_blocks(extents: &[Extent], span: Span, block: u64) -> Vec<Status> {
    let mut statuses: Vec<Status> = Vec::new();
    let mut at = span.offset / block;
    let mut covered = span.offset;
    for extent in extents {
        if extent.len == 0 || extent.offset > covered {
            break;
        }
        let end = extent.offset.saturating_add(extent.len).min(span.offset + span.len);
        covered = covered.max(end);
        let deallocated = extent.kind == ExtentKind::Deallocated;
        // A deallocated run ends at its last whole block; a partial block
        // belongs to its mapped neighbour.
        let until = if deallocated { end / block } else { end.div_ceil(block) };
        if until <= at {
            continue;
        }
        let range = BlockRange { lba: at, blocks: until - at };
        at = until;
        match statuses.last_mut() {
            Some(last) if last.deallocated == deallocated => last.range.blocks += range.blocks,
            _ => statuses.push(Status { range, deallocated }),
        }
    }
    if statuses.is_empty() {
        // At least one descriptor is required; if the store knows nothing, the
        // block counts as mapped.
        let range = BlockRange { lba: span.offset / block, blocks: 1 };
        statuses.push(Status { range, deallocated: false });
    }
    statuses
}

/// Splits runs that are longer than a descriptor can express.
fn split(statuses: Vec<Status>, wanted: usize) -> Vec<Status> {
    const LONGEST: u64 = u32::MAX as u64;
    let pieces = statuses.into_iter().flat_map(|status| {
        let count = status.range.blocks.div_ceil(LONGEST);
        (0..count).map(move |number| {
            let before = number * LONGEST;
            let range = BlockRange {
                lba: status.range.lba + before,
                blocks: (status.range.blocks - before).min(LONGEST),
            };
            Status { range, ..status }
        })
    });
    pieces.take(wanted).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Bench;
    use crate::wire::{be32, be64};

    fn cdb(lba: u8, allocation: u8) -> [u8; 16] {
        let mut cdb = [0u8; 16];
        cdb[0] = 0x9E;
        cdb[1] = 0x12;
        cdb[9] = lba;
        cdb[13] = allocation;
        cdb
    }

    #[test]
    fn extents_become_descriptors() {
        let bench = Bench::new();
        bench.fill(8, 8, 1);
        let data = bench.data(&bench.run(&cdb(0, 200), b""));
        assert_eq!(be32(&data, 0), 4 + 3 * 16);
        assert_eq!((be64(&data, 8), be32(&data, 16), data[20]), (0, 8, 1));
        assert_eq!((be64(&data, 24), be32(&data, 32), data[36]), (8, 8, 0));
        let rest = u32::try_from(bench.blocks() - 16).unwrap();
        assert_eq!((be64(&data, 40), be32(&data, 48), data[52]), (16, rest, 1));
        // The first descriptor starts at the LBA of the CDB.
        let data = bench.data(&bench.run(&cdb(10, 24), b""));
        assert_eq!((data.len(), be64(&data, 8), be32(&data, 16)), (24, 10, 6));
    }

    #[test]
    fn the_end_is_out_of_range() {
        let bench = Bench::new();
        let mut cdb = cdb(0, 24);
        cdb[2..10].copy_from_slice(&bench.blocks().to_be_bytes());
        bench.refused(&cdb, b"", Asc::LBA_OUT_OF_RANGE);
    }

    #[test]
    fn shared_blocks_are_mapped() {
        let extents = [
            Extent { offset: 0, len: 700, kind: ExtentKind::Deallocated },
            Extent { offset: 700, len: 400, kind: ExtentKind::Mapped },
            Extent { offset: 1100, len: 948, kind: ExtentKind::Deallocated },
        ];
        let statuses = in_blocks(&extents, Span { offset: 0, len: 2048 }, 512);
        let told: Vec<_> =
            statuses.iter().map(|s| (s.range.lba, s.range.blocks, s.deallocated)).collect();
        assert_eq!(told, [(0, 1, true), (1, 2, false), (3, 1, true)]);
    }

    #[test]
    fn long_runs_are_split() {
        let range = BlockRange { lba: 0, blocks: u64::from(u32::MAX) + 5 };
        let pieces = split(vec![Status { range, deallocated: true }], 8);
        assert_eq!(pieces.len(), 2);
        assert_eq!(pieces[1].range, BlockRange { lba: u64::from(u32::MAX), blocks: 5 });
    }
}
