//! One SCSI command from the session's engine to the disk and back.

use super::cell::Cell;
use super::figures::Family;
use super::functions;
use super::service::BlockService;
use super::unit::Unit;
use crate::serve::boundary;
use crate::serve::data_path::{DataDirection, Transport};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::Notify;
use zgate_iscsi::pdu::TaskAttribute as WireAttribute;
use zgate_iscsi::session::{Command, Completion, TaskTag};
use zgate_scsi::{
    Asc, Cdb, Finished, Lun, Nexus, Response, ScsiStatus, Sense, SenseKey, Task, TaskAttribute,
    Work, expected_data_out, touches_nothing,
};
use zgate_store::BufferPool;

/// Bytes that a command reads or writes, for the bounds.
pub(crate) fn weight(command: &Command) -> u64 {
    u64::from(command.expected_read_bytes) + u64::from(command.expected_write_bytes)
}

/// Runs a command whose data `transport` carries.
pub(crate) async fn execute(
    block: &BlockService,
    cell: &Arc<Cell>,
    command: Box<Command>,
    transport: Transport,
) -> (TaskTag, Completion) {
    let begun = Instant::now();
    let Command { task, lun, cdb, attribute, expected_write_bytes, data_out, copied_bytes, .. } =
        *command;
    let view = cell.view();
    let wire_lun = lun.0.to_be_bytes();
    let unit = Lun::parse(wire_lun).and_then(|lun| view.units.get(&lun));
    let cdb = Cdb::new(&cdb);
    let family = Family::of(cdb.opcode());
    let block_bytes = unit.map_or(512, |unit| unit.config.block_bytes);
    let needed = expected_data_out(&cdb, block_bytes);
    if let Some(unit) = unit
        && cell.waits_for_former(unit)
        && !touches_nothing(&cdb)
    {
        block.figures.command(family, ScsiStatus::Busy, begun.elapsed().as_nanos() as u64);
        return (task, Completion { status: ScsiStatus::Busy as u8, ..Completion::default() });
    }
    let _counted = cell.count_running();
    let (data_out, joined_bytes) = in_one_piece(data_out, needed, &block.home.pool);
    let data_out_bytes = data_out.len();
    let written = data_out_bytes as u64;
    // SANITIZE goes on in the background when its command is aborted (SBC-4
    // §4.11), so the command need not stay. All others do: what they write
    // must not come after the answer to the abort.
    let stop = (family == Family::Sanitize).then(|| Arc::new(Notify::new()));
    let own = OwnTask { block, cell, unit, task };
    let run = view.luns.execute_task(
        wire_lun,
        zgate_scsi::Command {
            nexus: Arc::clone(&cell.nexus),
            cdb,
            attribute: attribute_of(attribute),
            data_out,
            data_out_offered_bytes: expected_write_bytes.into(),
        },
        &own,
    );
    let run = async {
        let done = boundary::caught("SCSI command", run).await;
        done.unwrap_or_else(|| {
            Response::check(Sense::new(SenseKey::HardwareError, Asc::INTERNAL_FAILURE))
        })
    };
    let response = match stop {
        None => run.await,
        Some(stop) => {
            cell.begin_stoppable(task, &stop);
            let response = tokio::select! {
                response = run => response,
                () = stop.notified() => Response::bare(ScsiStatus::TaskAborted),
            };
            cell.end_stoppable(task);
            response
        }
    };
    let copied = copied_bytes as usize + joined_bytes;
    block.figures.data.carried(transport, DataDirection::Write, data_out_bytes, copied);
    if family == Family::Read {
        let read = response.data_in_bytes() as usize;
        block.figures.data.carried(transport, DataDirection::Read, read, 0);
    }
    if let Some(unit) = unit {
        unit.figures.count(family, response.data_in_bytes(), written);
        if let Some(sense) = &response.sense {
            unit.figures.fail(sense);
        }
    }
    let nanos = begun.elapsed().as_nanos() as u64;
    block.figures.command(family, response.status, nanos);
    let sense = response.sense.map(|sense| Bytes::from(sense.encode())).unwrap_or_default();
    let completion = Completion {
        status: response.status as u8,
        sense,
        wanted_bytes: Some(if needed > 0 { needed } else { response.data_in_bytes() }),
        data_in: response.data_in.into_iter().collect(),
    };
    (task, completion)
}

/// A command as the disk sees its task.
struct OwnTask<'a> {
    block: &'a BlockService,
    cell: &'a Arc<Cell>,
    unit: Option<&'a Arc<Unit>>,
    task: TaskTag,
}

impl Task for OwnTask<'_> {
    fn is_aborted(&self) -> bool {
        self.cell.is_aborted(self.task)
    }

    fn abort_others(&self, which: &dyn Fn(&Nexus) -> bool) {
        if let Some(unit) = self.unit {
            functions::abort_others(self.block, self.cell, unit, which);
        }
    }

    fn in_time<'a>(&'a self, work: Work<'a>) -> Finished<'a> {
        let limit = self.block.timeouts.function;
        Box::pin(async move { tokio::time::timeout(limit, work).await.is_ok() })
    }
}

fn attribute_of(attribute: WireAttribute) -> TaskAttribute {
    match attribute {
        WireAttribute::Untagged => TaskAttribute::Untagged,
        WireAttribute::Simple => TaskAttribute::Simple,
        WireAttribute::Ordered => TaskAttribute::Ordered,
        WireAttribute::HeadOfQueue => TaskAttribute::HeadOfQueue,
        WireAttribute::Aca => TaskAttribute::Aca,
    }
}

/// The data that the command needs, in one buffer, and how many bytes were moved
/// for it: none unless it came in several PDUs.
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
