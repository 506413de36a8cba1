//! Task management functions and what they do to logical units and to other
//! sessions (SAM-5 §7; RFC 7143 §11.5).
//!
//! A function is complete when nothing that came before it can still write, from whichever
//! session, even one that has ended. When that takes too long the function is rejected:
//! a host that is told "complete" writes anew, and the old writes would land over it.

use super::cell::Cell;
use super::service::BlockService;
use super::unit::Unit;
use std::sync::Arc;
use tokio::time::Instant;
use zgate_iscsi::pdu::{Lun as WireLun, TaskFunction, TaskResult};
use zgate_iscsi::session::{CloseReason, FunctionTag};
use zgate_scsi::{Lun, Nexus, ResetReason};

/// Carries a function out and tells the session's engine, which waits for the session's
/// own tasks.
pub(crate) async fn carry_out(
    block: &BlockService,
    cell: &Arc<Cell>,
    tag: FunctionTag,
    function: TaskFunction,
    lun: WireLun,
) {
    let result = effects(block, cell, function, lun).await;
    if result == TaskResult::REJECTED {
        tracing::warn!(
            initiator = %cell.key.initiator,
            function = function.0,
            "task management rejected: aborted commands still run on the storage"
        );
    }
    cell.with(|session| session.function_done(tag, result));
}

async fn effects(
    block: &BlockService,
    cell: &Arc<Cell>,
    function: TaskFunction,
    lun: WireLun,
) -> TaskResult {
    let view = cell.view();
    let all: Vec<_> = view.units.values().cloned().collect();
    let named = Lun::parse(lun.0.to_be_bytes()).and_then(|lun| view.units.get(&lun)).cloned();
    let own = cell.nexus.id;
    let others = |nexus: &Nexus| nexus.id != own;
    // The same I_T nexus in a session before this one.
    let former = |nexus: &Nexus| nexus.id != own && nexus.is_same_port(&cell.nexus);
    let one = named.as_ref().map(std::slice::from_ref);
    match (function, one) {
        (TaskFunction::TARGET_WARM_RESET, _) => {
            reset(block, cell, &all, ResetReason::TargetWarmReset).await
        }
        (TaskFunction::TARGET_COLD_RESET, _) => {
            // RFC 7143 §11.5.1: equivalent to a power on: every session of
            // the target ends. This one's ends in the engine.
            let of_target = |other: &&Arc<Cell>| {
                other.key.target == cell.key.target && !Arc::ptr_eq(other, cell)
            };
            for other in block.sessions().iter().filter(of_target) {
                other.with(|session| session.terminate(CloseReason::Dropped));
                block.end_session(other);
            }
            reset(block, cell, &all, ResetReason::TargetColdReset).await
        }
        (TaskFunction::I_T_NEXUS_RESET, _) => {
            let result = settled(block, &all, former).await;
            if result == TaskResult::COMPLETE {
                all.iter().for_each(|unit| unit.disk.nexus_lost(own));
            }
            result
        }
        (_, None) => TaskResult::LUN_DOES_NOT_EXIST,
        (TaskFunction::LUN_RESET, Some(unit)) => {
            reset(block, cell, unit, ResetReason::LunReset).await
        }
        (TaskFunction::CLEAR_TASK_SET, Some(unit)) => {
            for other in others_on(block, cell, &unit[0]) {
                abort_on(&other, &unit[0]);
                unit[0].disk.tasks_cleared(other.nexus.id);
            }
            settled(block, unit, others).await
        }
        (TaskFunction::ABORT_TASK_SET, Some(unit)) => settled(block, unit, former).await,
        _ => TaskResult::COMPLETE,
    }
}

async fn reset(
    block: &BlockService,
    cell: &Arc<Cell>,
    units: &[Arc<Unit>],
    reason: ResetReason,
) -> TaskResult {
    for unit in units {
        others_on(block, cell, unit).iter().for_each(|other| abort_on(other, unit));
    }
    let own = cell.nexus.id;
    let result = settled(block, units, |nexus: &Nexus| nexus.id != own).await;
    if result == TaskResult::COMPLETE {
        units.iter().for_each(|unit| unit.disk.reset_lun(reason));
    }
    result
}

/// Waits for the commands of such I_T nexuses on these units, for all of them together no
/// longer than a function may take.
async fn settled(
    block: &BlockService,
    units: &[Arc<Unit>],
    which: impl Fn(&Nexus) -> bool,
) -> TaskResult {
    let deadline = Instant::now() + block.timeouts.function;
    for unit in units {
        if tokio::time::timeout_at(deadline, unit.disk.settled(&which)).await.is_err() {
            return TaskResult::REJECTED;
        }
    }
    TaskResult::COMPLETE
}

/// Other sessions that see a unit.
fn others_on(block: &BlockService, cell: &Arc<Cell>, unit: &Arc<Unit>) -> Vec<Arc<Cell>> {
    let sees = |other: &Arc<Cell>| {
        !Arc::ptr_eq(other, cell) && other.view().units.values().any(|one| Arc::ptr_eq(one, unit))
    };
    block.sessions().into_iter().filter(sees).collect()
}

/// Ends a session's tasks on a unit without an answer: the control mode page
/// says TAS=0, a unit attention tells instead.
fn abort_on(cell: &Arc<Cell>, unit: &Arc<Unit>) {
    let view = cell.view();
    let luns = view.units.iter().filter(|(_, one)| Arc::ptr_eq(one, unit));
    for (lun, _) in luns {
        // Hosts address a LUN below 256 in one of two ways.
        let number = lun.number();
        let flat = [0x40 | (number >> 8) as u8, number as u8, 0, 0, 0, 0, 0, 0];
        for wire in [lun.encode(), flat] {
            let wire = WireLun(u64::from_be_bytes(wire));
            cell.with(|session| session.abort_tasks(Some(wire), None));
        }
    }
}

/// Ends the tasks that other sessions of such I_T nexuses have on a unit.
pub(crate) fn abort_others(
    block: &BlockService,
    cell: &Arc<Cell>,
    unit: &Arc<Unit>,
    which: &dyn Fn(&Nexus) -> bool,
) {
    for other in others_on(block, cell, unit) {
        if which(&other.nexus) {
            abort_on(&other, unit);
        }
    }
}
