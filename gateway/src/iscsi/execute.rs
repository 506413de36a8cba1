//! Execution of one SCSI command between the session's engine and the disk.

use super::luns::catalog::LunMap;
use super::luns::unit::Unit;
use super::service::IscsiService;
use super::session::LiveSession;
use super::stats::Family;
use super::task_management;
use crate::net::boundary;
use crate::observe::data_path::{DataDirection, Transport};
use crate::observe::load::FinishedRequest;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::Notify;
use zgate_iscsi::session::{Command, Completion, TaskTag};
use zgate_scsi::limits::MAX_TRANSFER_BYTES;
use zgate_scsi::{
    Asc, Cdb, Finished, Lun, Nexus, Response, ScsiStatus, Sense, SenseKey, Task, Work,
    expected_data_out, touches_nothing,
};
use zgate_store::BufferPool;

/// REPORT LUNS.
const REPORT_LUNS: u8 = 0xA0;

/// Bytes that a command may read and write, for the memory limits: an initiator
/// may announce a longer transfer than any command performs.
pub(crate) fn weight(command: &Command) -> usize {
    let most = |expected: u32| u64::from(expected).min(MAX_TRANSFER_BYTES) as usize;
    most(command.expected_read_bytes) + most(command.expected_write_bytes)
}

/// Runs a command whose data is carried by `transport`.
pub(crate) async fn execute(
    block: &IscsiService,
    live: &Arc<LiveSession>,
    command: Box<Command>,
    transport: Transport,
) -> (TaskTag, Completion) {
    let begun = Instant::now();
    let takes_spans = !command.needs_memory;
    let Command { task, lun, cdb, attribute, expected_write_bytes, data_out, copied_bytes, .. } =
        *command;
    let wire_lun = lun.0.to_be_bytes();
    let lun = Lun::parse(wire_lun);
    let (lun_map, awaits) = lun_map_for(live, lun, || {
        live.key.target.as_ref().is_some_and(|target| block.awaits_zvols_of(target))
    });
    let unit = lun.and_then(|lun| lun_map.units.get(&lun));
    let cdb = Cdb::new(&cdb);
    let family = Family::of(cdb.opcode());
    let lists_luns = cdb.opcode() == REPORT_LUNS;
    let block_bytes = unit.map_or(512, |unit| unit.config.block_bytes);
    let needed = expected_data_out(&cdb, block_bytes);
    if let Some(unit) = unit
        && live.waits_for_former(unit)
        && !touches_nothing(&cdb)
    {
        block.stats.command(family, ScsiStatus::Busy, begun.elapsed().as_nanos() as u64);
        return (task, Completion { status: ScsiStatus::Busy as u8, ..Completion::default() });
    }
    let _counted = live.count_running();
    if let Some(unit) = unit {
        unit.stats.begin();
    }
    let (data_out, joined_bytes) = in_one_piece(data_out, needed, &block.home.pool);
    let data_out_bytes = data_out.len();
    let written = data_out_bytes as u64;
    // SANITIZE continues in the background when its command is aborted (SBC-4
    // §4.11), so its command may be abandoned. All others must run to their
    // end: their writes must not follow the response to the abort.
    let stop = (family == Family::Sanitize).then(|| Arc::new(Notify::new()));
    let own = OwnTask { block, live, unit, task, takes_spans };
    let command = zgate_scsi::Command {
        nexus: Arc::clone(&live.nexus),
        cdb,
        attribute: zgate_target::attribute_of(attribute),
        data_out,
        data_out_offered_bytes: expected_write_bytes.into(),
    };
    // The future of a command has kilobytes, and each move would copy them.
    let luns = if unit.is_none() && awaits { &lun_map.awaiting } else { &lun_map.luns };
    let run = Box::pin(luns.execute_task(wire_lun, command, &own));
    let run = async {
        let done = boundary::caught("SCSI command", run).await;
        done.unwrap_or_else(|| {
            let descriptor_format = luns.wants_descriptor_sense(wire_lun);
            let failure = Sense::new(SenseKey::HardwareError, Asc::INTERNAL_FAILURE);
            Response::check(Sense { descriptor_format, ..failure })
        })
    };
    let response = match stop {
        None => run.await,
        Some(stop) => {
            live.begin_stoppable(task, &stop);
            let response = tokio::select! {
                response = run => response,
                () = stop.notified() => Response::bare(ScsiStatus::TaskAborted),
            };
            live.end_stoppable(task);
            response
        }
    };
    if lists_luns && !Arc::ptr_eq(&lun_map, &live.lun_map()) {
        // The list was out of date when it withdrew the news of the change.
        live.luns_changed();
    }
    let copied = copied_bytes as usize + joined_bytes;
    block.stats.data.carried(transport, DataDirection::Write, data_out_bytes, copied);
    if family == Family::Read {
        let read = response.data_in_bytes() as usize;
        block.stats.data.carried(transport, DataDirection::Read, read, 0);
    }
    let nanos = begun.elapsed().as_nanos() as u64;
    let read_bytes = response.data_in_bytes();
    let request = FinishedRequest { nanos, read_bytes, written_bytes: written };
    if let Some(unit) = unit {
        unit.stats.count(family, request);
        if let Some(sense) = &response.sense {
            unit.stats.fail(sense);
        }
    }
    live.load.finish(request);
    block.stats.command(family, response.status, nanos);
    (task, zgate_target::completion(needed, response))
}

/// Returns the LUNs of a session for a command to one of them, and the answer of `awaits`: zvols
/// of the target may yet be found. It is asked only if the session has no such logical unit.
pub(super) fn lun_map_for(
    live: &LiveSession,
    lun: Option<Lun>,
    awaits: impl FnOnce() -> bool,
) -> (Arc<LunMap>, bool) {
    let lun_map = live.lun_map();
    if lun.is_some_and(|lun| lun_map.units.contains_key(&lun)) {
        return (lun_map, false);
    }
    let awaits = awaits();
    // After that: a LUN that has come is no longer awaited, and would be said to be gone.
    (live.lun_map(), awaits)
}

/// Task interface of a command for the disk.
struct OwnTask<'a> {
    block: &'a IscsiService,
    live: &'a Arc<LiveSession>,
    unit: Option<&'a Arc<Unit>>,
    task: TaskTag,
    takes_spans: bool,
}

impl Task for OwnTask<'_> {
    fn is_aborted(&self) -> bool {
        self.live.is_aborted(self.task)
    }

    fn abort_others(&self, which: &dyn Fn(&Nexus) -> bool) {
        if let Some(unit) = self.unit {
            task_management::abort_others(self.block, self.live, unit, which);
        }
    }

    fn takes_spans(&self) -> bool {
        self.takes_spans
    }

    fn has_query_functions(&self) -> bool {
        // They belong to level 2 of iSCSIProtocolLevel (RFC 7144 §7.1.1).
        self.live.with_engine(|session| session.params().protocol_level >= 2)
    }

    fn in_time<'a>(&'a self, work: Work<'a>) -> Finished<'a> {
        let limit = self.block.timeouts.function;
        Box::pin(async move { tokio::time::timeout(limit, work).await.is_ok() })
    }
}

/// Returns the command's data in one buffer, and the number of bytes copied for
/// that: none unless the data arrived in several PDUs.
fn in_one_piece(mut pieces: Vec<Bytes>, needed: u64, pool: &BufferPool) -> (Bytes, usize) {
    let total: usize = pieces.iter().map(Bytes::len).sum();
    let len = total.min(usize::try_from(needed).unwrap_or(usize::MAX));
    if len == 0 {
        return (Bytes::new(), 0);
    }
    if pieces.first().is_some_and(|first| first.len() >= len) {
        return (pieces.swap_remove(0).slice(..len), 0);
    }
    let mut buffer = pool.take(len);
    let mut at = 0;
    for piece in &pieces {
        let take = piece.len().min(len - at);
        buffer[at..at + take].copy_from_slice(&piece[..take]);
        at += take;
    }
    (buffer.into_bytes(), len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_joined_and_cut() {
        let pool = BufferPool::new(1 << 20);
        let piece = |text: &'static str| Bytes::from_static(text.as_bytes());
        let join = |pieces: Vec<Bytes>, needed| in_one_piece(pieces, needed, &pool);
        assert_eq!(join(vec![piece("abc"), piece("def")], 5), (Bytes::from_static(b"abcde"), 5));
        assert_eq!(join(vec![piece("abc"), piece("def")], 99).0, "abcdef");
        assert_eq!(join(vec![piece("abc"), piece("def")], 2), (Bytes::from_static(b"ab"), 0));
        assert_eq!(join(vec![piece("abc")], 0).0, "");
        assert_eq!(join(Vec::new(), 7).0, "");
    }
}
