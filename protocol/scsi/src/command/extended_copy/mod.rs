//! EXTENDED COPY (LID1) (SPC-4 §6.5): copies blocks between logical units of
//! this target, in the form that ESXi and Windows use.

mod copier;
mod parameters;

pub(crate) use copier::{DiskOffset, Stopped, copy};

use super::{Cx, Failure, Outcome, Reply};
use crate::disk::Disk;
use crate::disk::background::Progress;
use crate::disk::block_range::BlockRange;
use crate::disk::copy_result::{CopyResult, keep};
use crate::sense::{Asc, Sense, SenseKey};
use parameters::{Parameters, Segment, parse};
use std::sync::Arc;

/// A logical unit named by a CSCD descriptor.
pub(crate) enum Unit<'a> {
    /// The unit that received the command.
    Own(&'a Disk),
    /// Another unit of the same target.
    Other(Arc<Disk>),
}

impl Unit<'_> {
    pub(crate) fn disk(&self) -> &Disk {
        match self {
            Self::Own(disk) => disk,
            Self::Other(disk) => disk,
        }
    }
}

pub(crate) async fn extended_copy(cx: &Cx<'_>) -> Outcome {
    let length = cx.cdb().be32(10);
    if length == 0 {
        return Ok(Reply::GOOD);
    }
    let parameters = parse(cx, cx.parameter_list(length)?)?;
    let mut done = Done::default();
    let outcome = copy_segments(cx, &parameters, &mut done).await;
    if parameters.keeps_results {
        let failure = match &outcome {
            Err(Failure::Check(sense)) => Some(*sense),
            Err(Failure::Conflict | Failure::Aborted) => {
                Some(Sense::new(SenseKey::CopyAborted, Asc::NONE))
            }
            Ok(()) => None,
        };
        let result = CopyResult {
            list: u32::from(parameters.list),
            action: 0,
            failure,
            segments: done.segments,
            transferred: done.bytes,
            cut: false,
            token: None,
        };
        keep(&mut cx.disk.state().nexus(&cx.command.nexus).copies, result);
    }
    outcome.map(|()| Reply::GOOD)
}

#[derive(Default)]
struct Done {
    segments: u16,
    bytes: u64,
}

async fn copy_segments(
    cx: &Cx<'_>,
    parameters: &Parameters<'_>,
    done: &mut Done,
) -> Result<(), Failure> {
    let resets = |unit: &Option<Unit<'_>>| unit.as_ref().map(|unit| unit.disk().shared.resets());
    let resets: Vec<_> = parameters.units.iter().map(resets).collect();
    for segment in &parameters.segments {
        let bytes = copy_segment(cx, parameters, segment, &resets).await?;
        done.segments = done.segments.saturating_add(1);
        done.bytes += bytes;
    }
    Ok(())
}

/// Returns COPY ABORTED with a code.
pub(crate) fn aborted(asc: Asc) -> Failure {
    Sense::new(SenseKey::CopyAborted, asc).into()
}

/// Copies a segment. `resets`: those that each unit had when the command began.
async fn copy_segment(
    cx: &Cx<'_>,
    parameters: &Parameters<'_>,
    segment: &Segment,
    resets: &[Option<u64>],
) -> Result<u64, Failure> {
    let unit = |index: u16| {
        parameters
            .units
            .get(usize::from(index))
            .and_then(Option::as_ref)
            .ok_or(aborted(Asc::UNREACHABLE_COPY_TARGET))
    };
    let source = unit(segment.source)?.disk();
    let target = unit(segment.target)?.disk();
    // Resets and preempts of the target unit wait for this copy, too.
    let _running = target.shared.running.begin(&cx.command.nexus);
    let resets = resets.get(usize::from(segment.target)).copied().flatten();
    let goes_on = || {
        cx.may_copy(source, target)?;
        // It ends what was to be written to the unit. It aborts this command only if that was
        // sent there.
        let is_reset = resets != Some(target.shared.resets());
        if is_reset { Err(aborted(Asc::THIRD_PARTY_FAILURE)) } else { Ok(()) }
    };
    goes_on()?;
    let bytes = segment.bytes(source.block_bytes(), target.block_bytes());
    let from = disk_offset(source, segment.source_lba, segment.source_offset, bytes)?;
    let to = disk_offset(target, segment.target_lba, segment.target_offset, bytes)?;
    copy(from, to, bytes, &goes_on).await.map_err(|stopped| match stopped {
        Stopped::Store(_) => aborted(Asc::THIRD_PARTY_FAILURE),
        Stopped::Refused(failure) => failure,
    })?;
    Ok(bytes)
}

impl Cx<'_> {
    /// Checks that this command may still copy from `source` to `target`: it is not
    /// aborted, and neither unit refuses its initiator.
    pub(crate) fn may_copy(&self, source: &Disk, target: &Disk) -> Result<(), Failure> {
        self.check_abort()?;
        source.check_third_party(self, false)?;
        target.check_third_party(self, true)
    }
}

/// Returns the position a segment reads or writes, which must lie within the
/// capacity.
fn disk_offset(
    disk: &Disk,
    lba: u64,
    byte_offset: u32,
    bytes: u64,
) -> Result<DiskOffset<'_>, Failure> {
    let capacity = disk.capacity_blocks() * u64::from(disk.block_bytes());
    let offset = lba
        .checked_mul(u64::from(disk.block_bytes()))
        .and_then(|start| start.checked_add(u64::from(byte_offset)))
        .filter(|start| start.checked_add(bytes).is_some_and(|end| end <= capacity))
        .ok_or(aborted(Asc::NONE))?;
    if !bytes.is_multiple_of(u64::from(disk.block_bytes()))
        || !offset.is_multiple_of(u64::from(disk.block_bytes()))
    {
        return Err(aborted(Asc::INEXACT_SEGMENT));
    }
    Ok(DiskOffset { disk, offset })
}

impl Disk {
    /// Checks that a copy manager acting for this initiator may use the unit,
    /// as for a READ or WRITE sent to it.
    pub(crate) fn check_third_party(&self, cx: &Cx<'_>, writes: bool) -> Result<(), Failure> {
        let nexus = &cx.command.nexus;
        let mut state = self.state();
        self.release_lost_holder(&mut state);
        let foreign = state.legacy_holder.is_some_and(|holder| holder != nexus.id);
        let reserved = state
            .registry
            .reserved_against(nexus)
            .is_some_and(|kind| writes || kind.is_exclusive_access());
        if foreign || reserved {
            return Err(Failure::Conflict);
        }
        if state.ejected || state.sanitize != Progress::Idle {
            return Err(aborted(Asc::COPY_TARGET_NOT_REACHABLE));
        }
        let protected = self.refuses_writes(cx.luns) || state.mode.software_write_protect();
        if writes && protected {
            return Err(Sense::new(SenseKey::DataProtect, Asc::WRITE_PROTECTED).into());
        }
        Ok(())
    }

    /// Revokes the tokens that cover a range about to change.
    pub(crate) fn blocks_change(&self, range: BlockRange) {
        self.state().tokens.invalidate(range);
    }
}

#[cfg(test)]
mod tests {
    use super::parameters::tests::{list, own_cscd};
    use crate::LogicalUnits;
    use crate::disk::block_range::BlockRange;
    use crate::sense::{Asc, ScsiStatus, SenseKey};
    use crate::testing::{AbortedWhen, Bench, poll_until};
    use crate::wire::{be16, be32};
    use std::cell::Cell;
    use std::pin::{Pin, pin};
    use std::task::{Context, Waker};

    fn cdb(bytes: usize) -> [u8; 16] {
        let mut cdb = [0u8; 16];
        cdb[0] = 0x83;
        cdb[10..14].copy_from_slice(&u32::try_from(bytes).unwrap().to_be_bytes());
        cdb
    }

    fn segment(indices: (u16, u16), blocks: u16, from: u64, to: u64) -> Vec<u8> {
        let mut data = vec![0x02, 0, 0, 0x18];
        data.extend(indices.0.to_be_bytes());
        data.extend(indices.1.to_be_bytes());
        data.extend([0, 0]);
        data.extend(blocks.to_be_bytes());
        data.extend(from.to_be_bytes());
        data.extend(to.to_be_bytes());
        data
    }

    #[test]
    fn blocks_are_copied_and_the_result_is_kept() {
        let bench = Bench::new();
        bench.fill(0, 16, 0x41);
        let list = list(7, &[own_cscd(&bench)], &[segment((0, 0), 16, 0, 100)]);
        assert_eq!(bench.run(&cdb(list.len()), &list).status, ScsiStatus::Good);
        assert_eq!(bench.content(100, 16), vec![0x41; 16 * 512]);
        let mut status = [0u8; 16];
        (status[0], status[2], status[13]) = (0x84, 7, 12);
        let data = bench.data(&bench.run(&status, b""));
        assert_eq!((data[4], be16(&data, 5), be32(&data, 8)), (1, 1, 16 * 512));
        status[2] = 8;
        bench.refused(&status, b"", Asc::INVALID_FIELD_IN_CDB);
    }

    #[test]
    fn blocks_move_between_logical_units() {
        let (source, target, luns) = Bench::pair();
        source.fill(4, 4, 0x42);
        let cscds = [own_cscd(&source), own_cscd(&target)];
        let list = list(1, &cscds, &[segment((0, 1), 4, 4, 20)]);
        let run = |lun: u8| {
            let command = source.command(&source.nexus, &cdb(list.len()), &list);
            source.block_on(luns.execute([0, lun, 0, 0, 0, 0, 0, 0], command))
        };
        assert_eq!(run(0).status, ScsiStatus::Good);
        assert_eq!(target.content(20, 4), vec![0x42; 4 * 512]);
        // A reservation on the target refuses copies as it refuses writes.
        let stranger = target.another_nexus(9);
        target.run_as(&stranger, &[0x16, 0, 0, 0, 0, 0], b"");
        assert_eq!(run(0).status, ScsiStatus::ReservationConflict);
    }

    #[test]
    fn a_copy_waits_for_an_atomic_write_to_its_source() {
        let bench = Bench::new();
        let list = list(1, &[own_cscd(&bench)], &[segment((0, 0), 8, 0, 100)]);
        let range = BlockRange { lba: 4, blocks: 1 };
        let atomic = bench.block_on(bench.disk.shared.ranges.exclude(range));
        let command = bench.command(&bench.nexus, &cdb(list.len()), &list);
        let mut copy = pin!(bench.disk.execute(command));
        let mut context = Context::from_waker(Waker::noop());
        assert!(copy.as_mut().poll(&mut context).is_pending());
        bench.fill(0, 8, 0x43);
        drop(atomic);
        assert_eq!(bench.block_on(copy).status, ScsiStatus::Good);
        assert_eq!(bench.content(100, 8), vec![0x43; 8 * 512]);
    }

    /// Blocks of a copy that takes two strides.
    const LONG: u16 = 3000;

    /// Two units, and the list of a copy of two strides from the first to the second one.
    fn long_copy() -> (Bench, Bench, LogicalUnits, Vec<u8>) {
        let (source, target, luns) = Bench::pair();
        source.fill(0, u64::from(LONG), 7);
        let cscds = [own_cscd(&source), own_cscd(&target)];
        let list = list(1, &cscds, &[segment((0, 1), LONG, 0, 0)]);
        (source, target, luns, list)
    }

    /// Lets a copy write its first stride, and begin to read the second one.
    fn copy_one_stride<F: Future>(copy: Pin<&mut F>, target: &Bench) {
        poll_until(copy, || target.content(0, 1)[0] == 7);
    }

    fn is_copied(target: &Bench) -> bool {
        target.content(u64::from(LONG) - 1, 1)[0] == 7
    }

    #[test]
    fn an_aborted_copy_writes_no_further_stride() {
        let (source, target, luns, list) = long_copy();
        source.store.pause_calls(true);
        let is_aborted = Cell::new(false);
        let task = AbortedWhen(|| is_aborted.get());
        let command = source.command(&source.nexus, &cdb(list.len()), &list);
        let mut copy = pin!(luns.execute_task([0; 8], command, &task));
        copy_one_stride(copy.as_mut(), &target);
        is_aborted.set(true);
        assert_eq!(source.block_on(copy).status, ScsiStatus::TaskAborted);
        assert!(!is_copied(&target));
    }

    #[test]
    fn a_reset_of_the_target_stops_a_copy_by_a_command_to_another_unit() {
        let (source, target, luns, list) = long_copy();
        source.store.pause_calls(true);
        let command = source.command(&source.nexus, &cdb(list.len()), &list);
        let mut copy = pin!(luns.execute([0; 8], command));
        copy_one_stride(copy.as_mut(), &target);
        target.disk.begin_reset();
        let sense = source.block_on(copy).sense.unwrap();
        assert_eq!((sense.key, sense.asc), (SenseKey::CopyAborted, Asc::THIRD_PARTY_FAILURE));
        assert!(!is_copied(&target));
    }

    #[test]
    fn a_preempt_stops_the_copy_of_whom_it_preempts() {
        let (source, target, luns, list) = long_copy();
        let other = target.another_nexus(2);
        let reserve_out = |action: u8, kind: u8, key: u8, service_key: u8| {
            let mut list = [0; 24];
            (list[7], list[15]) = (key, service_key);
            ([0x5F, action, kind, 0, 0, 0, 0, 0, 24, 0], list)
        };
        // Both register, the one who copies reserves: write exclusive, registrants only.
        for (nexus, step) in [
            (&source.nexus, reserve_out(6, 0, 0, 1)),
            (&other, reserve_out(6, 0, 0, 2)),
            (&source.nexus, reserve_out(1, 5, 1, 0)),
        ] {
            assert_eq!(target.run_as(nexus, &step.0, &step.1).status, ScsiStatus::Good);
        }
        source.store.pause_calls(true);
        let command = source.command(&source.nexus, &cdb(list.len()), &list);
        let mut copy = pin!(luns.execute([0; 8], command));
        copy_one_stride(copy.as_mut(), &target);
        let (preempt, parameters) = reserve_out(4, 5, 2, 1);
        let preempt = target.command(&other, &preempt, &parameters);
        let mut preempt = pin!(target.disk.execute(preempt));
        let mut context = Context::from_waker(Waker::noop());
        assert!(preempt.as_mut().poll(&mut context).is_pending(), "it waits for the copy");
        assert_eq!(source.block_on(copy).status, ScsiStatus::ReservationConflict);
        assert_eq!(target.block_on(preempt).status, ScsiStatus::Good);
        assert!(!is_copied(&target));
    }

    #[test]
    fn overlapping_ranges_are_copied_as_if_at_once() {
        let bench = Bench::new();
        for block in 0..8 {
            bench.fill(block, 1, u8::try_from(block).unwrap());
        }
        let list = list(0, &[own_cscd(&bench)], &[segment((0, 0), 8, 0, 1)]);
        assert_eq!(bench.run(&cdb(list.len()), &list).status, ScsiStatus::Good);
        for block in 0..8 {
            assert_eq!(bench.content(block + 1, 1)[0], u8::try_from(block).unwrap());
        }
    }

    #[test]
    fn wrong_segments_abort_the_copy() {
        let bench = Bench::new();
        for wrong in [segment((0, 1), 8, 0, 100), segment((0, 0), 8, 0, bench.blocks() - 1)] {
            let list = list(1, &[own_cscd(&bench)], &[wrong]);
            let sense = bench.run(&cdb(list.len()), &list).sense.unwrap();
            assert_eq!(sense.key, SenseKey::CopyAborted);
        }
    }

    #[test]
    fn lists_are_measured() {
        let bench = Bench::new();
        let whole = list(1, &[own_cscd(&bench)], &[segment((0, 0), 8, 0, 100)]);
        let short = &whole[..whole.len() - 1];
        bench.refused(&cdb(short.len()), short, Asc::PARAMETER_LIST_LENGTH);
        bench.refused(&cdb(47), &whole[..47], Asc::PARAMETER_LIST_LENGTH);
        assert_eq!(bench.run(&cdb(0), b"").status, ScsiStatus::Good);
        let cscds = vec![own_cscd(&bench); 9];
        let many = list(1, &cscds, &[segment((0, 0), 8, 0, 100)]);
        bench.refused(&cdb(many.len()), &many, Asc::TOO_MANY_TARGETS);
        let segments = vec![segment((0, 0), 8, 0, 100); 65];
        let many = list(1, &[own_cscd(&bench)], &segments);
        bench.refused(&cdb(many.len()), &many, Asc::TOO_MANY_SEGMENTS);
        let many = list(1, &cscds, &segments);
        bench.refused(&cdb(many.len()), &many, Asc::PARAMETER_LIST_LENGTH);
    }

    #[test]
    fn unknown_descriptors_are_refused() {
        let bench = Bench::new();
        let mut fibre = own_cscd(&bench);
        fibre[0] = 0xE0;
        let wrong = list(1, &[fibre], &[segment((0, 0), 8, 0, 100)]);
        bench.refused(&cdb(wrong.len()), &wrong, Asc::UNSUPPORTED_TARGET);
        let wrong = list(1, &[own_cscd(&bench)], &[vec![0x03, 0, 0, 4, 0, 0, 0, 0]]);
        bench.refused(&cdb(wrong.len()), &wrong, Asc::UNSUPPORTED_SEGMENT);
    }
}
