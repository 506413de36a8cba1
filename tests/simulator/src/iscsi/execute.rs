//! Execution of one SCSI command between a session's engine and the disk, as
//! `gateway/src/iscsi/execute.rs` does it.

use super::target::{FUNCTION_SECONDS, Live, Target};
use super::tasks;
use crate::executor::SECOND;
use crate::mutant::Mutant;
use bytes::Bytes;
use std::sync::Arc;
use zgate_iscsi::session::{Command, Completion, TaskTag};
use zgate_scsi::{
    Cdb, Finished, Nexus, ScsiStatus, Task, Work, expected_data_out, touches_nothing,
};
use zgate_store::BlockStore;

/// WRITE (10).
const WRITE: u8 = 0x2a;

/// Runs a command.
pub(super) async fn execute(
    target: &Arc<Target>,
    live: &Arc<Live>,
    command: Box<Command>,
) -> (TaskTag, Completion) {
    let Command { task, lun, cdb, attribute, expected_write_bytes, data_out, .. } = *command;
    let wire = cdb;
    let cdb = Cdb::new(&wire);
    let needed = expected_data_out(&cdb, super::LOGICAL_BLOCK_BYTES as u32);
    if live.waits_for_former(&target.disk) && !touches_nothing(&cdb) {
        let status = ScsiStatus::Busy as u8;
        return (task, Completion { status, ..Completion::default() });
    }
    let received = target.executor.nanos();
    let mut data = Bytes::from(data_out.concat());
    data.truncate(usize::try_from(needed).unwrap_or(usize::MAX));
    let backlog = target.backlog();
    if backlog > 0 {
        target.executor.sleep(backlog).await;
    }
    if let Some(completion) = planted(target, &wire, &data).await {
        return (task, completion);
    }
    let own = OwnTask { target, live, task };
    let (begins, is_write) = (target.executor.nanos(), wire.first() == Some(&WRITE));
    let command = zgate_scsi::Command {
        nexus: Arc::clone(&live.nexus),
        cdb,
        attribute: zgate_target::attribute_of(attribute),
        data_out: data,
        data_out_offered_bytes: expected_write_bytes.into(),
    };
    let response = target.luns.execute_task(lun.0.to_be_bytes(), command, &own).await;
    let completion = zgate_target::completion(needed, response);
    if is_write && completion.status == 0 {
        target.wires.wrote(received, begins);
    }
    (task, completion)
}

/// Planted faults in place of the product's command.
async fn planted(target: &Arc<Target>, cdb: &[u8], data: &Bytes) -> Option<Completion> {
    let store: &Arc<dyn BlockStore> = target.disk.store();
    let address = |at: usize| {
        let lba = cdb.get(at..)?.first_chunk::<4>()?;
        Some(u64::from(u32::from_be_bytes(*lba)) * super::LOGICAL_BLOCK_BYTES as u64)
    };
    match (target.mutant?, *cdb.first()?) {
        // WRITE (10) without any check.
        (Mutant::ReservationIgnored, WRITE) => {
            let through = cdb.get(1)? & 8 != 0;
            let written = store.write(address(2)?, data.clone(), through).await;
            let status = if written.is_ok() { 0 } else { ScsiStatus::Busy as u8 };
            Some(Completion { status, ..Completion::default() })
        }
        // COMPARE AND WRITE without a lock between its two halves.
        (Mutant::CompareNotAtomic, 0x89) => {
            let (expected, new) = data.split_at_checked(super::LOGICAL_BLOCK_BYTES)?;
            let at = address(6)?;
            let found = store.read(at, super::LOGICAL_BLOCK_BYTES).await.ok()?;
            let zgate_store::Payload::Bytes(found) = found else { return None };
            if found != expected {
                return None;
            }
            store.write(at, Bytes::copy_from_slice(new), true).await.ok()?;
            Some(Completion::default())
        }
        _ => None,
    }
}

/// Task interface of a command for the disk.
struct OwnTask<'a> {
    target: &'a Arc<Target>,
    live: &'a Arc<Live>,
    task: TaskTag,
}

impl Task for OwnTask<'_> {
    fn is_aborted(&self) -> bool {
        self.target.mutant != Some(Mutant::AbortNotSeen)
            && self.live.ask(|session| session.is_aborted(self.task))
    }

    fn abort_others(&self, which: &dyn Fn(&Nexus) -> bool) {
        tasks::abort_others(self.target, self.live, which);
    }

    fn in_time<'a>(&'a self, work: Work<'a>) -> Finished<'a> {
        if self.target.mutant == Some(Mutant::PreemptNotAwaited) {
            return Box::pin(async { true });
        }
        let limit = FUNCTION_SECONDS * SECOND;
        Box::pin(async move { self.target.executor.within(limit, work).await.is_some() })
    }
}
