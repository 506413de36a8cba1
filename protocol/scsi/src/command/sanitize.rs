//! SANITIZE (SBC-4 §5.30, §4.11). Once begun it cannot be stopped by aborting
//! the command, losing the nexus, or a reset.

use super::medium::Span;
use super::{Cx, Failure, Outcome, Reply};
use crate::disk::Disk;
use crate::disk::background::{Job, Method, Pacer, Progress, Runner, Unpaced};
use crate::disk::block_range::BlockRange;
use crate::limits::{MAX_OVERWRITE_PASSES, STRIDE_BYTES};
use crate::sense::{Asc, Sense, SenseKey};
use crate::wire::{be16, byte};
use zgate_store::StoreResult;

const _: () = assert!(MAX_OVERWRITE_PASSES == 0x1F);

/// Background work of a disk.
enum Due {
    /// The write cache is to be emptied, then off.
    Cache,
    Sanitize(Job),
}

/// Service action that leaves the state after a failure.
const EXIT_FAILURE_MODE: u8 = 0x1F;

pub(crate) async fn sanitize(cx: &Cx<'_>) -> Outcome {
    let unrestricted = cx.cdb().byte(1) & 0x20 != 0;
    let immediate = cx.cdb().byte(1) & 0x80 != 0;
    let length = cx.cdb().be16(7);
    let action = cx.cdb().service_action();
    check_restriction(cx, action, unrestricted)?;
    if action != 0x01 && length != 0 {
        return Err(Sense::invalid_cdb(7, None).into());
    }
    let method = match action {
        0x01 => overwrite(cx, length)?,
        0x02 => Method::BlockErase,
        0x03 => Method::CryptographicErase,
        _ => return Ok(exit_failure_mode(cx)),
    };
    cx.disk.state().sanitize = Progress::Running { done: 0 };
    cx.disk.shared.background.submit(Job { method, unrestricted });
    cx.disk.help_background().await;
    if immediate {
        return Ok(Reply::GOOD);
    }
    let end = cx
        .disk
        .shared
        .background
        .changed
        .wait_for(|| match cx.disk.state().sanitize {
            Progress::Running { .. } => None,
            ended => Some(ended),
        })
        .await;
    match end {
        Progress::Failed { .. } => {
            Err(Sense::new(SenseKey::MediumError, Asc::SANITIZE_FAILED).into())
        }
        _ => Ok(Reply::GOOD),
    }
}

impl Disk {
    /// Runs this disk's background work; never returns. Run it in one task for
    /// each disk, independent of sessions. Without such a task SANITIZE runs
    /// inside its command, and a write cache that is to be emptied stays on.
    pub async fn run_background(&self, pacer: &dyn Pacer) {
        let _runner = Runner::new(&self.shared.background);
        loop {
            match self.shared.background.changed.wait_for(|| self.due()).await {
                Due::Cache => self.empty_cache().await,
                Due::Sanitize(job) => work(self, job, pacer).await,
            }
        }
    }

    /// Returns the background work that is due.
    fn due(&self) -> Option<Due> {
        if self.state().empties_cache {
            return Some(Due::Cache);
        }
        self.shared.background.take().map(Due::Sanitize)
    }

    /// Runs pending work here if no background task exists.
    pub(crate) async fn help_background(&self) {
        if !self.shared.background.has_runner()
            && let Some(job) = self.shared.background.take()
        {
            work(self, job, &Unpaced).await;
        }
    }
}

/// Refuses each way out of a failure with AUSE=0 but a SANITIZE that succeeds: EXIT FAILURE MODE,
/// and another SANITIZE that would allow it (SBC-4 §5.30.1).
fn check_restriction(cx: &Cx<'_>, action: u8, unrestricted: bool) -> Result<(), Failure> {
    let restricted = matches!(cx.disk.state().sanitize, Progress::Failed { unrestricted: false });
    if restricted && unrestricted {
        return Err(Sense::invalid_cdb(1, Some(5)).into());
    }
    if restricted && action == EXIT_FAILURE_MODE {
        return Err(Sense::invalid_cdb(1, Some(4)).into());
    }
    Ok(())
}

fn exit_failure_mode(cx: &Cx<'_>) -> Reply {
    let mut state = cx.disk.state();
    if matches!(state.sanitize, Progress::Failed { .. }) {
        state.sanitize = Progress::Idle;
    }
    Reply::GOOD
}

/// Parses the parameter list of OVERWRITE (SBC-4 §5.30.2.2).
fn overwrite(cx: &Cx<'_>, length: u16) -> Result<Method, Failure> {
    const HEADER_BYTES: u16 = 4;
    let block = cx.block_bytes();
    if length <= HEADER_BYTES || u64::from(length) > block + u64::from(HEADER_BYTES) {
        return Err(Sense::invalid_cdb(7, None).into());
    }
    let list = cx.parameter_list(u32::from(length))?;
    let passes = byte(list, 0) & 0x1F;
    // TEST is vendor specific.
    if passes == 0 || byte(list, 0) & 0x60 != 0 {
        return Err(Sense::invalid_parameter(0).into());
    }
    if be16(list, 2) != length - HEADER_BYTES {
        return Err(Sense::invalid_parameter(2).into());
    }
    let initial = list.get(usize::from(HEADER_BYTES)..).unwrap_or_default();
    // The pattern restarts in each block.
    let size = usize::try_from(block).unwrap_or(usize::MAX);
    let pattern = initial.iter().copied().cycle().take(size).collect();
    Ok(Method::Overwrite { pattern, passes, invert: byte(list, 0) & 0x80 != 0 })
}

/// Runs a job and records its result.
pub(crate) async fn work(disk: &Disk, job: Job, pacer: &dyn Pacer) {
    let end = Progress::Failed { unrestricted: job.unrestricted };
    let mut unfinished = Unfinished { disk, end };
    let blocks = disk.capacity_blocks();
    let all = BlockRange { lba: 0, blocks };
    // Commands admitted earlier must not write afterwards.
    drop(disk.shared.ranges.exclude(all).await);
    disk.blocks_change(all);
    let span = Span { offset: 0, len: blocks * u64::from(disk.block_bytes()) };
    let outcome = match &job.method {
        Method::Overwrite { pattern, passes, invert } => {
            overwrite_all(disk, span, pattern, (*passes, *invert), pacer).await
        }
        Method::BlockErase | Method::CryptographicErase => erase_all(disk, span, pacer).await,
    };
    let outcome = match outcome {
        Ok(()) => disk.sync_store(None).await,
        Err(error) => Err(error),
    };
    if outcome.is_ok() {
        unfinished.end = Progress::Idle;
    }
}

/// Records the result of a SANITIZE on drop: a failure unless set otherwise. A
/// job dropped half way must not appear to run forever.
struct Unfinished<'a> {
    disk: &'a Disk,
    end: Progress,
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        self.disk.state().sanitize = self.end;
        self.disk.shared.background.changed.raise();
    }
}

fn report(disk: &Disk, done: u64, total: u64) {
    let part = u128::from(done) * 65_536 / u128::from(total.max(1));
    let done = u16::try_from(part).unwrap_or(u16::MAX);
    disk.state().sanitize = Progress::Running { done };
}

async fn overwrite_all(
    disk: &Disk,
    span: Span,
    pattern: &[u8],
    (passes, invert): (u8, bool),
    pacer: &dyn Pacer,
) -> StoreResult<()> {
    let total = span.len * u64::from(passes);
    let mut done = 0;
    for pass in 0..passes {
        // INVERT: every other pass writes the complement; the last one the pattern (SBC-4
        // §5.30.2.2).
        let inverted = invert && (passes - pass).is_multiple_of(2);
        let pattern: Vec<u8> =
            pattern.iter().map(|byte| if inverted { !byte } else { *byte }).collect();
        for piece in span.strides(STRIDE_BYTES) {
            pacer.pace(piece.len).await;
            disk.write_pattern(piece, &pattern).await?;
            done += piece.len;
            report(disk, done, total);
        }
        // A pass that stays in a cache has overwritten nothing.
        disk.sync_store(None).await?;
    }
    Ok(())
}

/// Unmaps everything, or writes zeros if that is not possible. This layer has
/// no encryption key to discard: a cryptographic erase does the same.
async fn erase_all(disk: &Disk, span: Span, pacer: &dyn Pacer) -> StoreResult<()> {
    /// Stride of an erase, which is faster than writing.
    const ERASE_STRIDE_BYTES: u64 = 256 * STRIDE_BYTES;
    let geometry = disk.store.geometry();
    let erases = disk.is_thin(&geometry) && geometry.discard_zeroes;
    let stride = if erases { ERASE_STRIDE_BYTES } else { STRIDE_BYTES };
    let mut done = 0;
    for piece in span.strides(stride) {
        disk.store.admit_change().await?;
        if erases {
            disk.deallocate(piece).await?;
        } else {
            pacer.pace(piece.len).await;
            disk.store.write_zeroes(piece.offset, piece.len, false).await?;
        }
        done += piece.len;
        report(disk, done, span.len);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::disk::ResetReason;
    use crate::disk::background::Unpaced;
    use crate::sense::{Asc, ScsiStatus, SenseKey};
    use crate::testing::Bench;
    use std::pin::pin;
    use std::task::{Context, Waker};
    use zgate_store::StoreError;

    fn cdb(action: u8, length: u16) -> [u8; 10] {
        let [high, low] = length.to_be_bytes();
        [0x48, action, 0, 0, 0, 0, 0, high, low, 0]
    }

    fn pattern(count: u8, pattern: &[u8]) -> Vec<u8> {
        let mut list = vec![count, 0];
        list.extend(u16::try_from(pattern.len()).unwrap().to_be_bytes());
        list.extend(pattern);
        list
    }

    #[test]
    fn overwriting_leaves_the_pattern() {
        let bench = Bench::new();
        bench.fill(3, 9, 1);
        let list = pattern(1, &[0xAB, 0xCD, 0xEF]);
        assert_eq!(bench.run(&cdb(0x01, 7), &list).status, ScsiStatus::Good);
        let last = bench.content(bench.blocks() - 1, 1);
        assert_eq!((&last[..4], last[511]), (&[0xAB, 0xCD, 0xEF, 0xAB][..], 0xAB ^ 0x66));
        for (count, byte) in [(0x82, 0x0F), (0x83, 0x5A)] {
            let inverted = pattern(count, &[byte]);
            assert_eq!(bench.run(&cdb(0x01, 5), &inverted).status, ScsiStatus::Good);
            assert_eq!(bench.content(0, 1), vec![byte; 512], "{count:02x}");
        }
    }

    #[test]
    fn erasing_unmaps() {
        for action in [0x02, 0x03] {
            let bench = Bench::new();
            bench.fill(0, 64, 1);
            assert_eq!(bench.run(&cdb(action, 0), b"").status, ScsiStatus::Good);
            assert_eq!(bench.content(0, 64), vec![0; 64 * 512]);
            assert!(!bench.store.is_mapped(0));
        }
    }

    #[test]
    fn wrong_lists_and_reserved_bits_are_refused() {
        let bench = Bench::new();
        let invalid = Asc::INVALID_FIELD_IN_CDB;
        for length in 0..5 {
            bench.refused(&cdb(0x01, length), &pattern(1, &[0; 4])[..length.into()], invalid);
        }
        bench.refused(&cdb(0x01, 517), &[1; 517], invalid);
        let parameters = Asc::INVALID_FIELD_IN_PARAMETERS;
        bench.refused(&cdb(0x01, 8), &pattern(0, &[0; 4]), parameters);
        bench.refused(&cdb(0x01, 9), &[1, 0, 0, 4, 0, 0, 0, 0, 0], parameters);
        bench.refused(&cdb(0x02, 8), &[0; 8], invalid);
        bench.refused(&cdb(0x42, 0), b"", invalid);
        bench.refused(&cdb(0x05, 0), b"", invalid);
        bench.refused(&[0x48, 2, 0, 0, 4, 0, 0, 0, 0, 0], b"", invalid);
    }

    /// Asserts that hosts can still identify the unit: INQUIRY, READ CAPACITY (10) and
    /// (16), MODE SENSE of Caching, Control and Informational Exceptions Control.
    #[track_caller]
    fn assert_identifiable(bench: &Bench) {
        let commands: [&[u8]; 6] = [
            &[0x12, 0, 0, 0, 36, 0],
            &[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            &[0x9E, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0],
            &[0x1A, 0, 0x08, 0, 255, 0],
            &[0x5A, 0, 0x0A, 0, 0, 0, 0, 0, 255, 0],
            &[0x1A, 0, 0x1C, 0, 255, 0],
        ];
        for cdb in commands {
            assert_eq!(bench.run(cdb, b"").status, ScsiStatus::Good, "{cdb:02x?}");
        }
    }

    /// Asserts that commands fail with SANITIZE COMMAND FAILED: READ, MODE SENSE of another
    /// page, PERSISTENT RESERVE IN.
    #[track_caller]
    fn assert_unusable(bench: &Bench) {
        let commands: [&[u8]; 3] = [
            &[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0],
            &[0x1A, 0, 0x01, 0, 255, 0],
            &[0x5E, 0, 0, 0, 0, 0, 0, 1, 0, 0],
        ];
        for cdb in commands {
            let sense = bench.run(cdb, b"").sense.unwrap();
            let expected = (SenseKey::MediumError, Asc::SANITIZE_FAILED);
            assert_eq!((sense.key, sense.asc), expected, "{cdb:02x?}");
        }
    }

    #[test]
    fn it_goes_on_in_the_background() {
        let bench = Bench::new();
        let mut background = pin!(bench.disk.run_background(&Unpaced));
        let mut context = Context::from_waker(Waker::noop());
        assert!(background.as_mut().poll(&mut context).is_pending());
        assert_eq!(bench.run(&cdb(0x80 | 0x02, 0), b"").status, ScsiStatus::Good);
        let progress = bench.run(&[0; 6], b"").sense.unwrap();
        assert_eq!(progress.asc, Asc::SANITIZE_IN_PROGRESS);
        assert_identifiable(&bench);
        bench.refused_as_not_ready(&[0x1A, 0, 0x01, 0, 255, 0]);
        bench.disk.reset_lun(ResetReason::LunReset);
        bench.settle(&bench.nexus);
        bench.refused_as_not_ready(&[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
        assert!(background.as_mut().poll(&mut context).is_pending());
        assert_eq!(bench.run(&[0; 6], b"").status, ScsiStatus::Good);
    }

    #[test]
    fn work_that_is_dropped_has_failed() {
        let bench = Bench::new();
        bench.store.pause_calls(true);
        let command = bench.command(&bench.nexus, &cdb(0x02, 0), b"");
        let mut execution = Box::pin(bench.disk.execute(command));
        let mut context = Context::from_waker(Waker::noop());
        assert!(execution.as_mut().poll(&mut context).is_pending());
        drop(execution);
        bench.store.pause_calls(false);
        let read = bench.run(&[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0], b"").sense.unwrap();
        assert_eq!(read.asc, Asc::SANITIZE_FAILED);
        assert_eq!(bench.run(&cdb(0x02, 0), b"").status, ScsiStatus::Good);
    }

    #[test]
    fn a_unit_opened_again_does_not_take_it_for_done() {
        let bench = Bench::new();
        let mut background = Box::pin(bench.disk.run_background(&Unpaced));
        let mut context = Context::from_waker(Waker::noop());
        assert!(background.as_mut().poll(&mut context).is_pending());
        bench.store.pause_calls(true);
        assert_eq!(bench.run(&cdb(0x80 | 0x02, 0), b"").status, ScsiStatus::Good);
        assert!(background.as_mut().poll(&mut context).is_pending());
        bench.store.pause_calls(false);
        let after = bench.reopened();
        after.settle(&after.nexus);
        let read = [0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0];
        after.refused_as_not_ready(&read);
        // The task of the disk before ends.
        drop(background);
        assert_eq!(after.run(&read, b"").sense.unwrap().asc, Asc::SANITIZE_FAILED);
        assert_eq!(after.run(&cdb(0x02, 0), b"").status, ScsiStatus::Good);
        assert_eq!(after.run(&read, b"").status, ScsiStatus::Good);
    }

    #[test]
    fn a_failure_is_left_only_when_allowed() {
        for (unrestricted, exits) in [(0x20, true), (0x00, false)] {
            let bench = Bench::new();
            bench.store.fail_writes(Some(StoreError::Io));
            let failed = bench.run(&cdb(unrestricted | 0x02, 0), b"").sense.unwrap();
            assert_eq!(failed.asc, Asc::SANITIZE_FAILED);
            bench.store.fail_writes(None);
            assert_unusable(&bench);
            assert_identifiable(&bench);
            if exits {
                assert_eq!(bench.run(&cdb(0x1F, 0), b"").status, ScsiStatus::Good);
                continue;
            }
            // EXIT FAILURE MODE, and a SANITIZE that would allow it.
            for action in [0x1F, 0x22] {
                bench.refused(&cdb(action, 0), b"", Asc::INVALID_FIELD_IN_CDB);
                assert_unusable(&bench);
            }
            assert_eq!(bench.run(&cdb(0x02, 0), b"").status, ScsiStatus::Good);
        }
    }
}
